// Package show formats the figures of package stats as people read them: amounts in the unit of
// their signal, and a dash for what is unknown.
package show

import (
	"fmt"
	"strings"

	"jettison/internal/base/output"
	"jettison/stats"
)

// Amount is a signal's figure in its unit.
func Amount(signal stats.Signal, v uint64) string {
	switch {
	case signal == stats.SignalPIDAvailable || strings.HasSuffix(string(signal), "inodesFree"):
		return fmt.Sprint(v)
	case Pressure(signal):
		return fmt.Sprintf("%.1f%%", float64(v)/stats.ShareUnit*100)
	}
	return output.Bytes(v)
}

// Pressure reports whether a signal is a share of time stalled: more is worse.
func Pressure(signal stats.Signal) bool { return strings.Contains(string(signal), ".pressure.") }

// Percent is the share that is available.
func Percent(o stats.Observation) string {
	if o.Capacity == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", float64(o.Value)/float64(o.Capacity)*100)
}

// Size is an amount of bytes that may not be known.
func Size(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return output.Bytes(v.V)
}

// Count is a number that may not be known.
func Count(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return fmt.Sprint(v.V)
}

// Cores is a use of CPU, given in billionths of a core, in thousandths.
func Cores(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return fmt.Sprintf("%dm", (v.V+500_000)/1_000_000)
}

// Between is a figure with its error bound.
func Between(v stats.Opt[stats.Range]) string {
	switch {
	case !v.OK:
		return "-"
	case v.V.Min == v.V.Max || output.Bytes(v.V.Min) == output.Bytes(v.V.Max):
		return output.Bytes(v.V.Max)
	}
	return output.Bytes(v.V.Min) + ".." + output.Bytes(v.V.Max)
}
