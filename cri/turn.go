package cri

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// patienceForTurn is how long an answer that may be large waits for the one before it, once nothing
// comes of that: a runtime that hangs sends nothing that would add up. As long as something comes
// it waits, however long 16 MiB take.
const patienceForTurn = 250 * time.Millisecond

// patienceForList is likewise for lists, which are larger, and of thousands of containers a runtime
// takes as long before it sends any.
const patienceForList = 2 * time.Second

// turn has answers that may be large come one after another: several at a time would add up to more
// memory than the agent has.
type turn struct {
	slot chan struct{}
	read *atomic.Int64 // bytes of the connection
	mu   sync.Mutex
	// when answerLeast was last seen to have come of the one whose turn it is, or it began; zero: it
	// is about to
	since time.Time
	at    int64 // of read, then
}

func newTurn(read *atomic.Int64) *turn { return &turn{slot: make(chan struct{}, 1), read: read} }

// wait waits for its turn, until nothing has come for as long as it has patience, or ctx ends. That
// is counted from the last bytes, not from its own beginning: of a runtime that hangs each call
// would wait anew, and who makes three for a pod that is to end loses the time that the pod has.
// done ends it.
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

// left is what is left of a patience.
func (t *turn) left(patience time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if read := t.read.Load(); t.since.IsZero() || read-t.at >= answerLeast {
		t.since, t.at = time.Now(), read
	}
	return patience - time.Since(t.since)
}

func (t *turn) done() {
	t.mu.Lock()
	t.since = time.Time{} // before somebody else's is: that one is not to be taken for as old
	t.mu.Unlock()
	<-t.slot
}

// alone gives a list of everything its time, from when no other is under way on: however long a
// runtime takes before it sends any of thousands of containers, two answers at once are more memory
// than the agent has. done ends it, and may be called twice.
func (l *link) alone(ctx context.Context, limit time.Duration) (within context.Context,
	done func()) {
	began := time.Now()
	select {
	case l.lists.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx, func() {}
	}
	waited(ctx, began)
	return timed(ctx, limit, l.lists.begin())
}

// soonAlone is alone for who cannot wait for long, and keeps little of an answer: then it goes
// without.
func (l *link) soonAlone(ctx context.Context, limit time.Duration) (within context.Context,
	done func()) {
	waits, cancel := context.WithTimeout(ctx, patienceForList)
	defer cancel()
	return timed(ctx, limit, l.lists.wait(waits, patienceForList))
}

// waitedKey is the key of what the calls of a context have waited for their turn.
type waitedKey struct{}

// Waited is a context that tells how long the calls made with it have waited for the answers of
// others so far: in that time the runtime was not asked, and who takes how long a list took for how
// fast it is has to leave it out.
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

func timed(ctx context.Context, limit time.Duration, end func()) (within context.Context,
	done func()) {
	within, cancel := context.WithTimeout(ctx, limit)
	return within, sync.OnceFunc(func() {
		cancel()
		end()
	})
}

// answerLeast is what a large answer sends of itself in that time: less may be anything.
const answerLeast = 64 << 10

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
