package garbage

import (
	"context"
	"sync"
)

// barrier stops new steps while an eviction is in progress. A call in flight continues: canceling
// it would leave the runtime with the work and the agent without the answer.
type barrier struct {
	mu    sync.Mutex
	holds int           // guarded by mu
	open  chan struct{} // closed when holds becomes 0; nil: holds is 0; guarded by mu
}

// Hold blocks new steps until Release was called as many times. Hold itself does not block.
func (b *barrier) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds++; b.open == nil {
		b.open = make(chan struct{})
	}
}

// Release ends one Hold.
func (b *barrier) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds == 0 {
		return
	}
	if b.holds--; b.holds == 0 {
		close(b.open)
		b.open = nil
	}
}

// wait blocks while there is a Hold. It returns the error of ctx.
func (b *barrier) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		open := b.open
		b.mu.Unlock()
		if open == nil {
			return ctx.Err()
		}
		select {
		case <-open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
