package cluster

import "time"

// How long it is waited after a write that failed: this at first, twice as long each time, at most
// that.
const (
	firstWait = 250 * time.Millisecond
	mostWait  = 30 * time.Second
)

// Attempt is a write that is to happen until it has happened. The zero value may begin at once.
type Attempt struct {
	busy  bool
	fails int
	after time.Time
}

// Begin reports whether the write may be made now, and notes that it is.
func (a *Attempt) Begin(now time.Time) bool {
	if a.busy || now.Before(a.after) {
		return false
	}
	a.busy = true
	return true
}

// End notes how it ended.
func (a *Attempt) End(now time.Time, ok bool) {
	a.busy = false
	if ok {
		*a = Attempt{}
		return
	}
	a.after = now.Add(min(mostWait, firstWait<<min(a.fails, 10)))
	a.fails++
}

// Failed reports whether it has failed since it was made last.
func (a *Attempt) Failed() bool { return a.fails > 0 }

// Next is when it may be made again; the zero time: it is under way, and its end is waited for.
func (a *Attempt) Next(now time.Time) time.Time {
	switch {
	case a.busy:
		return time.Time{}
	case a.after.Before(now):
		return now
	}
	return a.after
}
