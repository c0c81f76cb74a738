package cri

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// patienceForTurn bounds the wait for a previous large answer that makes no progress: a hung
// runtime sends nothing, so a second answer does not exceed the memory. While the previous answer
// makes progress, the wait continues.
const patienceForTurn = 250 * time.Millisecond

// patienceForList bounds the wait for a previous list that makes no progress. It is longer, because
// a runtime may need this time for thousands of containers before it sends the first.
const patienceForList = 2 * time.Second

// turn serializes answers that may be large: several concurrent large answers exceed the agent's
// memory.
type turn struct {
	slot chan struct{}
	read *atomic.Int64 // bytes received on the connection
	mu   sync.Mutex
	// when the current answer last progressed by minProgress, or began; zero: about to begin
	since time.Time
	at    int64 // value of read at that time
}

func newTurn(read *atomic.Int64) *turn { return &turn{slot: make(chan struct{}, 1), read: read} }

// wait waits for the turn. It gives up, and proceeds without the turn, when the current answer has
// made no progress for patience, or when ctx ends. The time counts from the last progress, not from
// the start of the wait. Otherwise each call to a hung runtime would wait again, and three calls
// for an ending pod would use up its grace period. done ends the turn.
func (t *turn) wait(ctx context.Context, patience time.Duration) (done func()) {
	select {
	case t.slot <- struct{}{}:
		return t.begin()
	default:
	}
	defer waited(ctx, time.Now())
	timer := time.NewTimer(t.left(patience))
	defer timer.Stop()
	for {
		select {
		case t.slot <- struct{}{}:
			return t.begin()
		case <-timer.C:
			left := t.left(patience)
			if left <= 0 {
				return func() {}
			}
			timer.Reset(left)
		case <-ctx.Done():
			return func() {}
		}
	}
}

func (t *turn) begin() (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since, t.at = time.Now(), t.read.Load()
	return t.done
}

// left returns the remaining patience.
func (t *turn) left(patience time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if read := t.read.Load(); t.since.IsZero() || read-t.at >= minProgress {
		t.since, t.at = time.Now(), read
	}
	return patience - time.Since(t.since)
}

func (t *turn) done() {
	t.mu.Lock()
	t.since = time.Time{} // reset before the next turn begins, which must not inherit the old time
	t.mu.Unlock()
	<-t.slot
}

// exclusive waits until no other complete list is in progress, without a limit, and then starts the
// timeout of this one (see patient). Two concurrent answers with thousands of containers would exceed
// the agent's memory. done ends the exclusive use and may be called twice.
func (l *link) exclusive(ctx context.Context, limit time.Duration) (within context.Context,
	done func()) {
	began := time.Now()
	select {
	case l.lists.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx, func() {}
	}
	waited(ctx, began)
	turn := l.lists.begin()
	within, end := l.patient(ctx, limit)
	return within, once(end, turn)
}

// exclusiveSoon does the same as exclusive for callers that cannot wait for long and keep little of
// an answer: after patienceForList it proceeds without its turn, and its timeout is fixed.
func (l *link) exclusiveSoon(ctx context.Context, limit time.Duration) (within context.Context,
	done func()) {
	waits, cancel := context.WithTimeout(ctx, patienceForList)
	defer cancel()
	turn := l.lists.wait(waits, patienceForList)
	within, end := context.WithTimeout(ctx, limit)
	return within, once(end, turn)
}

// waitedKey is the context key of the waiting time.
type waitedKey struct{}

// Waited returns a context that measures how long its calls have waited for the answers of other
// calls. Subtract this time from the duration of a list to measure the speed of the runtime.
func Waited(ctx context.Context) (_ context.Context, waited func() time.Duration) {
	sum := new(atomic.Int64)
	return context.WithValue(ctx, waitedKey{}, sum),
		func() time.Duration { return time.Duration(sum.Load()) }
}

func waited(ctx context.Context, since time.Time) {
	if sum, ok := ctx.Value(waitedKey{}).(*atomic.Int64); ok {
		sum.Add(int64(time.Since(since)))
	}
}

// maxSlow bounds the time of a list that makes progress, in multiples of its timeout.
const maxSlow = 12

// once returns a function that calls both, the first time.
func once(end, done func()) func() {
	return sync.OnceFunc(func() {
		end()
		done()
	})
}

// patient returns a context that ends, with the cause context.DeadlineExceeded, after a timeout in
// which the connection received less than minProgress, and after maxSlow timeouts in any case. A list
// that is merely slow would otherwise be dropped and requested again, without end. done ends the
// context and waits for the goroutine that watches the connection.
func (l *link) patient(ctx context.Context, timeout time.Duration) (within context.Context,
	done func()) {
	ctx, end := context.WithTimeout(ctx, maxSlow*timeout)
	within, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(timeout)
		defer tick.Stop()
		for read := l.read.Load(); ; {
			select {
			case <-within.Done():
				return
			case <-tick.C:
			}
			now := l.read.Load()
			if now-read < minProgress {
				cancel(context.DeadlineExceeded)
				return
			}
			read = now
		}
	}()
	return within, func() {
		cancel(nil)
		end()
		<-ended
	}
}

// minProgress is the amount that counts as progress of a large answer. A smaller amount may be
// other traffic.
const minProgress = 64 << 10

// countingConn counts the received bytes.
type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}
