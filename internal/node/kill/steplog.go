package kill

import (
	"jettison/stats"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp is an instant on both clocks. The monotonic one is CLOCK_MONOTONIC, which the kernel log's
// time stamps follow.
type Stamp = stats.Stamp

// Now reads both clocks.
func Now() Stamp { return Stamp{Time: time.Now(), Monotonic: monotonic()} }

// StampOf is an instant of the wall clock, with what the other clock showed then.
func StampOf(at time.Time) Stamp {
	now := Now()
	return Stamp{Time: at, Monotonic: max(now.Monotonic-now.Time.Sub(at), 0)}
}

func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// Names of steps that are no rungs. Those that are go by the rung's name: "cgroup.kill", "pidfd",
// "cpu", "mrelease".
const (
	stepPin       = "pin"
	stepPidfds    = "pidfds"
	stepHeldUp    = "cgroup.kill is held up"
	stepAgain     = "cgroup.kill again"
	stepWait      = "wait"
	stepEmptied   = "emptied"
	stepRestored  = "cpu restored"
	stepCache     = "page cache"
	stepContainer = "StopContainer"
	stepStop      = "StopPodSandbox"
	stepRemove    = "RemovePodSandbox"
)

// Step is one thing that was done to a victim.
type Step struct {
	Name string
	At   time.Duration // CLOCK_MONOTONIC, when it was done
	Err  error         // why it was not, or not wholly
	// N counts: pidfds opened, processes killed by pidfd, groups whose CPU limits were lifted,
	// processes whose memory was freed, MiB of page cache; of the runtime's calls, how many were made
	// in a row.
	N int
}

// maxSteps bounds what is kept of one victim. A runtime that has to be asked for hours takes one
// place.
const maxSteps = 24

// stepLog is what was done so far.
type stepLog struct {
	mu  sync.Mutex
	of  [maxSteps]Step // mu guards it
	len int            // mu guards it
}

// add notes a step. It allocates nothing. The last place is that of the latest.
func (s *stepLog) add(name string, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.len = min(s.len+1, maxSteps)
	s.of[s.len-1] = Step{Name: name, At: monotonic(), Err: err, N: n}
}

// call notes a call of the runtime. Calls of the same name in a row are one step: the latest, and
// how many there were.
func (s *stepLog) call(name string, err error) {
	s.mu.Lock()
	if s.len == 0 || s.of[s.len-1].Name != name {
		s.mu.Unlock()
		s.add(name, 1, err)
		return
	}
	defer s.mu.Unlock()
	last := &s.of[s.len-1]
	last.At, last.Err, last.N = monotonic(), err, last.N+1
}

// copied are the steps so far.
func (s *stepLog) copied() []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Step(nil), s.of[:s.len]...)
}
