package garbage

import (
	"context"
	"sync"
)

// barrier is what evictions close while they are under way: no step begins then. The one call that
// is in flight goes on. To give it up would leave the runtime with the work and the agent without
// the answer.
type barrier struct {
	mu    sync.Mutex
	holds int           // mu guards it
	open  chan struct{} // closed when holds is 0 again; nil: it is. mu guards it
}

// Hold keeps steps from beginning until Release was called as often. It never blocks.
func (b *barrier) Hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds++; b.open == nil {
		b.open = make(chan struct{})
	}
}

// Release undoes one Hold.
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

// wait waits until no caller holds.
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
