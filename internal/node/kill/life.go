package kill

import (
	"context"
	"sync"
	"sync/atomic"
)

// life tracks a victim's end and counts the users of its descriptors. Any goroutine may use it: the
// fields are atomic, safe for concurrent use, or guarded by mu.
type life struct {
	alive   context.Context // canceled by end, which the first successful Kill and Close call
	end     context.CancelFunc
	emptied sync.Once
	// its cgroup was empty once: from then on, processes in it are not the victim's
	gone atomic.Bool

	mu     sync.Mutex
	closed bool // guarded by mu
	users  int  // guarded by mu: users of the descriptors, the caller and threads
}

func (l *life) init() { l.alive, l.end = context.WithCancel(context.Background()) }

// begin makes the caller of Pin the first user.
func (l *life) begin() { l.users = 1 }

// retain keeps the descriptors open until release. l.mu is not held.
func (l *life) retain() {
	l.mu.Lock()
	l.users++
	l.mu.Unlock()
}

// retainOpen is like retain, but returns false without retaining once Close was called.
func (l *life) retainOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.users++
	}
	return !l.closed
}

// release ends one use, and reports whether no user is left. Then Close was called, so only the
// caller may add a use.
func (l *life) release() (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	return l.users == 0
}

// close records that Close was called, and reports whether this is the first call.
func (l *life) close() (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = !l.closed
	l.closed = true
	return first
}

// empty records that no process is left in the victim's cgroup. The first call adds a step.
func (l *life) empty(steps *stepLog) {
	l.emptied.Do(func() { steps.add(stepEmptied, 0, nil) })
	l.gone.Store(true)
}

// dead reports whether the victim's cgroup was empty at some time. Processes in it now are not the
// victim's.
func (l *life) dead() bool { return l.gone.Load() }

// over reports whether the victim is dead or closed. Remaining work on it is then skipped.
func (l *life) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed || l.dead()
}
