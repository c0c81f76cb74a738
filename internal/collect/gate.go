package collect

import (
	"context"
	"sync"
)

// gate is what evictions close while they are under way: no step begins then. The one call that is in flight goes on, for to give it up
// would leave the runtime with the work and nobody with the answer.
type gate struct {
	mu    sync.Mutex
	holds int           // mu guards it
	open  chan struct{} // closed when holds is 0 again; nil: it is. mu guards it
}

// Hold keeps steps from beginning until Release was called as often. It never blocks.
func (g *gate) Hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds++; g.open == nil {
		g.open = make(chan struct{})
	}
}

// Release undoes one Hold.
func (g *gate) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holds == 0 {
		return
	}
	if g.holds--; g.holds == 0 {
		close(g.open)
		g.open = nil
	}
}

// pass waits until nobody holds.
func (g *gate) pass(ctx context.Context) error {
	for {
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
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
