package nri

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuShare prevents a thread with a priority from using a whole CPU. A runtime waits for each
// answer and works between two requests. A peer that sends requests without pause is broken, or no
// runtime, and no other thread of this priority would take the CPU from this one.
type cpuShare struct {
	used func() time.Duration // CPU time of the thread so far
	rest func(time.Duration)

	since time.Time // begin of the window
	had   time.Duration
}

// window is the interval of the measurement. The series of requests of a runtime, when the plugin
// connects and when many pods start, take less.
const window = 100 * time.Millisecond

func newShare() *cpuShare { return &cpuShare{used: threadTime, rest: restFor} }

// limit sleeps if the thread has used more than half of a CPU since the window began.
func (s *cpuShare) limit() {
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

// threadTime returns the CPU time of the calling thread, which must be locked to its goroutine.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// restFor makes the thread itself sleep. In a sleep of the Go runtime another, ordinary thread
// would have to wake it. A signal ends it early.
func restFor(d time.Duration) {
	_, _ = unix.Poll(nil, int((d+time.Millisecond-1)/time.Millisecond))
}
