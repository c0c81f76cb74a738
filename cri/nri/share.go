package nri

import (
	"time"

	"golang.org/x/sys/unix"
)

// share keeps a thread with a priority from having a CPU for itself. A runtime waits for each
// answer and has work of its own between two questions; what asks without end is broken, or no
// runtime, and nothing of the priority's own class would take the CPU from this thread.
type share struct {
	used func() time.Duration // CPU time of the thread so far
	rest func(time.Duration)

	since time.Time // the window began
	had   time.Duration
}

// window is how long a share is looked at. What a runtime has to say in a row, when the plugin
// comes and when many pods start, takes less.
const window = 100 * time.Millisecond

func newShare() *share { return &share{used: threadTime, rest: restFor} }

// keep rests where the thread had more than half of a CPU since the window began.
func (s *share) keep() {
	now := time.Now()
	elapsed := now.Sub(s.since)
	if elapsed < window {
		return
	}
	used := s.used()
	if over := 2*(used-s.had) - elapsed; over > 0 && !s.since.IsZero() {
		s.rest(min(over, window))
		now = time.Now()
	}
	s.since, s.had = now, used
}

// threadTime is the calling thread's CPU time, which must be locked to its goroutine.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// restFor has the thread itself sleep: by the Go runtime another one, an ordinary one, would have
// to wake it. A signal ends it early.
func restFor(d time.Duration) {
	_, _ = unix.Poll(nil, int((d+time.Millisecond-1)/time.Millisecond))
}
