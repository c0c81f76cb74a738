package output

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Bytes formats an amount in the largest unit not above it, with one decimal below a hundred.
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

// Time formats an instant with its zone; a dash: the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Span formats a duration in its two largest units.
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
