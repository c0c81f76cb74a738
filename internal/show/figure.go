package show

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

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
	return Bytes(v)
}

// Pressure reports whether a signal is a share of time stalled: more is worse.
func Pressure(signal stats.Signal) bool { return strings.Contains(string(signal), ".pressure.") }

// Bytes is so many in the largest unit of which there is one, with a digit after the point below a hundred.
func Bytes(v uint64) string {
	if v < 1<<10 {
		return fmt.Sprint(v)
	}
	at := (bits.Len64(v) - 1) / 10
	n := float64(v) / float64(uint64(1)<<(10*at))
	text := strconv.FormatFloat(n, 'f', 1, 64)
	if n >= 99.95 {
		text = strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strings.TrimSuffix(text, ".0") + [...]string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}[at]
}

// Time is an instant with its zone, as tables have it; a dash: none.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Span is how long something takes, in its two largest units.
func Span(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
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
