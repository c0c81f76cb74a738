package garbage

import (
	"time"

	"jettison/reclaim"
)

// Times between two tries of a removal that failed. Under disk pressure none waits longer than the first.
const (
	backoffFirst = time.Minute
	backoffMost  = time.Hour
	backoffSize  = 1024 // removals that are remembered
)

// backoff remembers removals that failed.
type backoff map[key]failure

type key struct {
	action reclaim.Action
	id     string
}

type failure struct {
	last  time.Time
	wait  time.Duration
	times int
	text  string
}

func keyOf(s *reclaim.Step) key { return key{s.Action, s.ID} }

// failed notes a failure. The one that is the oldest is forgotten for it where there are too many.
func (b *backoff) failed(now time.Time, k key, err error) {
	f := (*b)[k]
	f.wait = min(max(backoffFirst, 2*f.wait), backoffMost)
	f.last, f.times, f.text = now, f.times+1, err.Error()
	if *b == nil {
		*b = backoff{}
	}
	if _, ok := (*b)[k]; !ok && len(*b) >= backoffSize {
		oldest := k
		for other, of := range *b {
			if oldest == k || of.last.Before((*b)[oldest].last) {
				oldest = other
			}
		}
		delete(*b, oldest)
	}
	(*b)[k] = f
}

// until is when a removal may be tried again; ok: now. A time after now is from a clock that was set back.
func (b backoff) until(now time.Time, k key, pressure bool) (at time.Time, f failure, ok bool) {
	f, known := b[k]
	if !known || f.last.After(now) {
		return at, f, true
	}
	wait := f.wait
	if pressure {
		wait = min(wait, backoffFirst)
	}
	at = f.last.Add(wait)
	return at, f, !now.Before(at)
}
