package garbage

import (
	"context"
	"errors"
	"maps"
	"time"

	"jettison/reclaim"
)

// maxUnanswered bounds how long an object without an answer blocks the removal of images, as
// reclaim.MaxPostponed does for young sandboxes, and how long a query that timed out is not
// repeated. maxBlocked bounds how long such objects together block it without a break. A tenant can
// create containers that never answer, and a full disk stops the node.
const (
	maxUnanswered = reclaim.MaxPostponed
	maxBlocked    = 4 * maxUnanswered
)

var errNotQueried = errors.New("not queried, because other status calls timed out")

// answer is the answer of the runtime about one object.
type answer[V any] struct {
	value V
	known bool          // the runtime answered
	err   error         // of the last query, if it did not answer
	since time.Duration // uptime of the first round without an answer
	// uptime of the last timeout, which costs a whole deadline; 0: the last query did not time out
	timedOutAt time.Duration
}

// answers are the answers about the objects of a kind, by ID or by another key.
type answers[V any] map[string]answer[V]

// query queries the runtime about the objects without an answer, and forgets all others. The answer
// about an object does not change, so each is queried once. An error of a query stays with its
// object, and the next round repeats the query. A round ends after maxTimeouts timeouts, and
// objects that timed out come last and are not queried again for maxUnanswered, so that they keep no
// other object from being queried. If ctx ends, query returns its error and keeps the answers.
func (a *answers[V]) query(ctx context.Context, uptime func() time.Duration, keys []string,
	call func(ctx context.Context, key string) (V, error)) error {
	found, timeouts := make(answers[V], len(keys)), 0
	for _, late := range []bool{false, true} {
		for _, key := range keys {
			one, seen := (*a)[key]
			if _, done := found[key]; done || (one.timedOutAt > 0) != late {
				continue
			}
			if !seen {
				one.since = uptime()
			}
			switch {
			case one.known, late && uptime()-one.timedOutAt < maxUnanswered:
			case timeouts >= maxTimeouts:
				if one.err == nil {
					one.err = errNotQueried
				}
			default:
				one = answer[V]{since: one.since}
				if one.value, one.err = call(ctx, key); ctx.Err() != nil {
					maps.Copy(*a, found)
					return ctx.Err()
				}
				one.known = one.err == nil
				if errors.Is(one.err, context.DeadlineExceeded) {
					timeouts++
					one.timedOutAt = max(uptime(), 1)
				}
			}
			found[key] = one
		}
	}
	*a = found
	return nil
}
