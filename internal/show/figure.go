package show

import (
	"fmt"
	"strings"

	"jettison/stats"
)

// Amount is a signal's figure in its unit.
func Amount(signal stats.Signal, v uint64) string {
	if signal == stats.SignalPIDAvailable || strings.HasSuffix(string(signal), "inodesFree") {
		return fmt.Sprint(v)
	}
	return Bytes(v)
}

// Bytes is so many in the largest unit that keeps two digits or more.
func Bytes(v uint64) string {
	switch {
	case v < 10<<10:
		return fmt.Sprintf("%d", v)
	case v < 10<<20:
		return fmt.Sprintf("%dKi", v>>10)
	case v < 100<<30:
		return fmt.Sprintf("%dMi", v>>20)
	}
	return fmt.Sprintf("%dGi", v>>30)
}

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
	return Bytes(v.V)
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
	case v.V.Min == v.V.Max || Bytes(v.V.Min) == Bytes(v.V.Max):
		return Bytes(v.V.Max)
	}
	return Bytes(v.V.Min) + ".." + Bytes(v.V.Max)
}
