package garbage

import (
	"context"
	"errors"
	"slices"
	"time"

	"jettison/internal/base/retry"
	"jettison/reclaim"
)

// Times between two tries of a removal that failed. Under disk pressure none waits longer than the
// first, but one that was not answered in time: that costs as long as a hundred others take.
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
	late  bool // it was not answered in time
	text  string
}

func keyOf(s *reclaim.Step) key { return key{s.Action, s.ID} }

// failed notes a failure. The one that is the oldest is forgotten for it where there are too many.
func (b *backoff) failed(now time.Time, k key, err error) {
	f := (*b)[k]
	f.wait = retry.Backoff(f.wait, backoffFirst, backoffMost)
	f.last, f.times, f.text, f.late = now, f.times+1, err.Error(),
		errors.Is(err, context.DeadlineExceeded)
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

// until is when a removal may be tried again; ok: now. A time after now is from a clock that was
// set back.
func (b backoff) until(now time.Time, k key, pressure bool) (at time.Time, f failure, ok bool) {
	f, known := b[k]
	if !known || f.last.After(now) {
		return at, f, true
	}
	wait := f.wait
	if pressure && !f.late {
		wait = min(wait, backoffFirst)
	}
	at = f.last.Add(wait)
	return at, f, !now.Before(at)
}

// ordered are steps with those last that were not answered in time before: what comes after them
// would wait for them, or not come to its turn at all.
func (b backoff) ordered(steps []reclaim.Step) []reclaim.Step {
	if len(b) == 0 {
		return steps
	}
	slices.SortStableFunc(steps, func(x, y reclaim.Step) int {
		switch late := b[keyOf(&x)].late; {
		case late == b[keyOf(&y)].late:
			return 0
		case late:
			return 1
		}
		return -1
	})
	return steps
}
