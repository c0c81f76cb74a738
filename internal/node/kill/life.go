package kill

import (
	"context"
	"sync"
	"sync/atomic"
)

// life is how far a victim is from its end, and how many still need its descriptors. Any goroutine
// may use it: the fields are atomic, safe by themselves, or guarded by mu.
type life struct {
	alive   context.Context // ended by end, which the first Kill that worked calls, and Close
	end     context.CancelFunc
	emptied sync.Once
	// no process was left in its cgroup: nothing there is killed or raised any more
	gone atomic.Bool

	mu     sync.Mutex
	closed bool // mu guards it
	users  int  // mu guards it: how many need the descriptors, the caller and threads
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

// retainOpen is retain, unless Close was called: then it reports false.
func (l *life) retainOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.users++
	}
	return !l.closed
}

// release ends one use. It calls giveBack, with the lock held, when no user is left.
func (l *life) release(giveBack func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	giveBack()
}

// close notes that Close was called, and reports whether it was for the first time.
func (l *life) close() (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = !l.closed
	l.closed = true
	return first
}

// empty notes that no process is left in the victim's cgroup. The first time is a step.
func (l *life) empty(steps *stepLog) {
	l.emptied.Do(func() { steps.add(stepEmptied, 0, nil) })
	l.gone.Store(true)
}

// die marks the victim as gone, and reports whether it was that before.
func (l *life) die() (before bool) { return l.gone.Swap(true) }

// dead: no process was left in the victim's cgroup at some time. What is in it now is not the
// victim. It waits for no lock: raise holds its own while the kernel does as it likes, and the
// thread that writes cgroup.kill asks.
func (l *life) dead() bool { return l.gone.Load() }

// over: it is dead or closed. What is still to be done to it then is left.
func (l *life) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed || l.dead()
}
