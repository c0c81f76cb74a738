// Package show formats values of package stats for operators: amounts in the unit of their signal,
// and a dash for unknown values.
package show

import (
	"fmt"
	"strings"

	"jettison/internal/base/output"
	"jettison/stats"
)

// Amount formats a value of a signal in the signal's unit.
func Amount(signal stats.Signal, v uint64) string {
	switch {
	case signal == stats.SignalPIDAvailable || strings.HasSuffix(string(signal), "inodesFree"):
		return fmt.Sprint(v)
	case signal.Pressure():
		return fmt.Sprintf("%.1f%%", float64(v)/stats.ShareUnit*100)
	}
	return output.Bytes(v)
}

// Percent formats the available share of the capacity.
func Percent(o stats.Observation) string {
	if o.Capacity == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", float64(o.Value)/float64(o.Capacity)*100)
}

// Size formats an amount of bytes; "-" if unknown.
func Size(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return output.Bytes(v.V)
}

// Count formats a number; "-" if unknown.
func Count(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return fmt.Sprint(v.V)
}

// Cores formats CPU use, given in billionths of a core, in thousandths of a core.
func Cores(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return fmt.Sprintf("%dm", (v.V+500_000)/1_000_000)
}

// Between formats a range of bytes; one value if both bounds format alike, "-" if unknown.
func Between(v stats.Opt[stats.Range]) string {
	switch {
	case !v.OK:
		return "-"
	case v.V.Min == v.V.Max || output.Bytes(v.V.Min) == output.Bytes(v.V.Max):
		return output.Bytes(v.V.Max)
	}
	return output.Bytes(v.V.Min) + ".." + output.Bytes(v.V.Max)
}
