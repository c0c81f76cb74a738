// Package retry spaces out attempts, and waits for work to end within a limit. It knows no error
// and no caller: what is worth another attempt is the caller's decision. It uses the standard
// library only, and the clock of testing/synctest where a test has one.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, or until ctx ends. It reports whether d passed.
func Sleep(ctx context.Context, d time.Duration) bool { return !Await(ctx.Done(), d) }

// Backoff returns the pause that follows another: first where there was none (0), else twice that
// pause, and at most last. Set the pause to 0 when an attempt succeeds.
func Backoff(pause, first, last time.Duration) time.Duration {
	return min(max(2*pause, first), last)
}

// Jitter returns a random duration between half of d and d, so that callers that failed together do
// not retry together. d must not be negative.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
