package cri

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// patienceForTurn is how long an answer that may be large waits for the one before it, once nothing comes of that: a runtime that hangs
// sends nothing that would add up. As long as something comes it waits, however long 16 MiB take.
const patienceForTurn = 250 * time.Millisecond

// patienceForList is likewise for lists, which are larger, and of thousands of containers a runtime takes as long before it sends any.
const patienceForList = 2 * time.Second

// turn has answers that may be large come one after another: several at a time would add up to more memory than the agent has.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// wait waits for its turn, and no longer than it has patience after the last bytes that were read, or ctx. done ends it.
func (t turn) wait(ctx context.Context, patience time.Duration, read *atomic.Int64) (done func()) {
	select {
	case t <- struct{}{}:
		return t.done
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for before := read.Load(); ; {
		select {
		case t <- struct{}{}:
			return t.done
		case <-timer.C:
			now := read.Load()
			if now-before < answerLeast {
				return func() {}
			}
			before = now
			timer.Reset(patience)
		case <-ctx.Done():
			return func() {}
		}
	}
}

// alone gives a list of everything its time, from when no other is under way on: however long a runtime takes before it sends any of
// thousands of containers, two answers at once are more memory than the agent has. done ends it, and may be called twice.
func (c *Client) alone(ctx context.Context) (within context.Context, done func()) {
	select {
	case c.lists <- struct{}{}:
	case <-ctx.Done():
		return ctx, func() {}
	}
	within, cancel := context.WithTimeout(ctx, c.timeouts.list)
	return within, sync.OnceFunc(func() {
		cancel()
		c.lists.done()
	})
}

// answerLeast is what a large answer sends of itself in that time: less may be anything.
const answerLeast = 64 << 10

func (t turn) done() { <-t }

// arriving is a connection whose bytes are counted as they come.
type arriving struct {
	net.Conn
	read *atomic.Int64
}

func (c arriving) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}
