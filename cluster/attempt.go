package cluster

import "time"

// Backoff after a failed write: it starts at minBackoff, doubles with each failure, and is at
// most maxBackoff.
const (
	minBackoff = 250 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Attempt is the state of a write that is retried until it succeeds. The zero value may start
// immediately.
type Attempt struct {
	inFlight  bool
	failures  int
	notBefore time.Time
}

// Begin reports whether the write may be made now, and marks it as in flight if so.
func (a *Attempt) Begin(now time.Time) bool {
	if a.inFlight || now.Before(a.notBefore) {
		return false
	}
	a.inFlight = true
	return true
}

// End records the result of the write.
func (a *Attempt) End(now time.Time, ok bool) {
	a.inFlight = false
	if ok {
		*a = Attempt{}
		return
	}
	a.notBefore = now.Add(min(maxBackoff, minBackoff<<min(a.failures, 10)))
	a.failures++
}

// Failed reports whether the last write failed.
func (a *Attempt) Failed() bool { return a.failures > 0 }

// Next returns the earliest time of the next write, at least now; the zero time: a write is in
// flight.
func (a *Attempt) Next(now time.Time) time.Time {
	switch {
	case a.inFlight:
		return time.Time{}
	case a.notBefore.Before(now):
		return now
	}
	return a.notBefore
}
