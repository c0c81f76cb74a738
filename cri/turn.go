package cri

import (
	"context"
	"time"
)

// patienceForTurn is how long an answer that may be large waits for the one before it. A healthy runtime has sent 16 MiB long before; from
// one that hangs nothing comes that would add up.
const patienceForTurn = 250 * time.Millisecond

// turn has answers that may be large come one after another: several at a time would add up to more memory than the agent has.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// wait waits for its turn, and no longer than patienceForTurn or ctx. done ends it.
func (t turn) wait(ctx context.Context) (done func()) {
	select {
	case t <- struct{}{}:
		return t.done
	default:
	}
	timer := time.NewTimer(patienceForTurn)
	defer timer.Stop()
	select {
	case t <- struct{}{}:
		return t.done
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() {}
}

func (t turn) done() { <-t }
