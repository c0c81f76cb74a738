// Package retry spaces out attempts, and waits for work to end within a limit. The caller decides
// which errors to retry. It uses the standard library only, and the clock of testing/synctest in
// tests that use it.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, or until ctx ends. It reports whether d passed.
func Sleep(ctx context.Context, d time.Duration) bool { return !Await(ctx.Done(), d) }

// Backoff returns the pause after the next failure: first if pause is 0, otherwise twice pause, at
// most last. Set the pause to 0 after a success.
func Backoff(pause, first, last time.Duration) time.Duration {
	return min(max(2*pause, first), last)
}

// Jitter returns a random duration between half of d and d, so that callers that failed at the same
// time do not retry at the same time. d must not be negative.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
