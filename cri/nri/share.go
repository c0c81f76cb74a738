package nri

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuShare prevents a thread with raised priority from using a whole CPU. A runtime waits for each
// answer and works between two requests. A peer that sends requests without pause is broken, and no
// thread of lower priority could take the CPU from this thread.
type cpuShare struct {
	used func() time.Duration // CPU time of the thread so far
	rest func(time.Duration)

	since time.Time // start of the window
	had   time.Duration
}

// window is the interval of the measurement. A runtime's series of requests, when the plugin
// connects or many pods start, use less CPU time than that.
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

// restFor makes the thread itself sleep. With time.Sleep, a thread of ordinary priority would have
// to wake it. A signal ends the sleep early.
func restFor(d time.Duration) {
	_, _ = unix.Poll(nil, int((d+time.Millisecond-1)/time.Millisecond))
}
