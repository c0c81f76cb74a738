package stats

import "time"

// Stamp is an instant on both clocks. Monotonic is CLOCK_MONOTONIC in nanoseconds. Intervals
// between two stamps of one boot are computed from it, so they are exact even if the wall clock is
// set.
type Stamp struct {
	Time      time.Time     `json:"time,omitzero"`
	Monotonic time.Duration `json:"monotonicNs,omitempty"` // 0: not known
}

// Known reports whether the stamp has an instant on either clock.
func (s Stamp) Known() bool { return !s.Time.IsZero() || s.Monotonic > 0 }

// Since returns the time from an earlier stamp to s, by the monotonic clock if both stamps have it.
// ok is false if one stamp is unknown or the order is reversed.
func (s Stamp) Since(before Stamp) (d time.Duration, ok bool) {
	switch {
	case s.Monotonic > 0 && before.Monotonic > 0:
		d = s.Monotonic - before.Monotonic
	case s.Time.IsZero() || before.Time.IsZero():
		return 0, false
	default:
		d = s.Time.Sub(before.Time)
	}
	return d, d >= 0
}
