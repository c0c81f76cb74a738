package garbage

import (
	"context"
	"errors"
	"slices"
	"time"

	"jettison/internal/base/retry"
	"jettison/reclaim"
)

// Backoff between two attempts of a failed removal. Under disk pressure the backoff is backoffFirst
// at most, except after a timeout, which costs as much time as a hundred other removals.
const (
	backoffFirst = time.Minute
	backoffMax   = time.Hour
	backoffSize  = 1024 // bound of remembered removals
)

// backoff remembers failed removals.
type backoff map[key]failure

type key struct {
	action reclaim.Action
	id     string
}

type failure struct {
	last     time.Time
	wait     time.Duration
	times    int
	timedOut bool // the call was not answered in time
	message  string
}

func keyOf(s *reclaim.Step) key { return key{s.Action, s.ID} }

// failed records a failure. If there are too many it drops the oldest one.
func (b *backoff) failed(now time.Time, k key, err error) {
	f := (*b)[k]
	f.wait = retry.Backoff(f.wait, backoffFirst, backoffMax)
	f.last, f.times, f.message, f.timedOut = now, f.times+1, err.Error(),
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

// until returns the time of the next attempt of a removal and its last failure, and true if it may
// be tried now. A failure dated after now is ignored: the clock was set back.
func (b backoff) until(now time.Time, k key, pressure bool) (at time.Time, f failure, ok bool) {
	f, known := b[k]
	if !known || f.last.After(now) {
		return at, f, true
	}
	wait := f.wait
	if pressure && !f.timedOut {
		wait = min(wait, backoffFirst)
	}
	at = f.last.Add(wait)
	return at, f, !now.Before(at)
}

// ordered sorts the steps that timed out before to the end, so that they do not delay the others.
// It sorts in place and returns the steps.
func (b backoff) ordered(steps []reclaim.Step) []reclaim.Step {
	if len(b) == 0 {
		return steps
	}
	slices.SortStableFunc(steps, func(x, y reclaim.Step) int {
		switch late := b[keyOf(&x)].timedOut; {
		case late == b[keyOf(&y)].timedOut:
			return 0
		case late:
			return 1
		}
		return -1
	})
	return steps
}
