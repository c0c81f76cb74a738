package kill

import (
	"jettison/stats"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp is an instant on the wall clock and on CLOCK_MONOTONIC, the clock of the kernel log's
// timestamps.
type Stamp = stats.Stamp

// Now reads both clocks.
func Now() Stamp { return Stamp{Time: time.Now(), Monotonic: monotonic()} }

// StampOf returns the Stamp of a wall clock time.
func StampOf(at time.Time) Stamp {
	now := Now()
	return Stamp{Time: at, Monotonic: max(now.Monotonic-now.Time.Sub(at), 0)}
}

func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// Names of recorded steps. A step of the kill ladder uses its own name instead: "cgroup.kill",
// "pidfd", "cpu", "mrelease". Records contain these names.
const (
	stepPin       = "pin"
	stepPidfds    = "pidfds"
	stepHeldUp    = "cgroup.kill is held up"
	stepAgain     = "cgroup.kill again"
	stepWait      = "wait"
	stepEmptied   = "emptied"
	stepCache     = "page cache"
	stepContainer = "StopContainer"
	stepStop      = "StopPodSandbox"
	stepRemove    = "RemovePodSandbox"
)

// Step is one recorded action on a victim.
type Step struct {
	Name string
	At   time.Duration // CLOCK_MONOTONIC, time of the action
	Err  error         // why it failed, in whole or in part
	// N counts pidfds opened, processes killed through pidfds, threads with raised priority,
	// processes with freed memory, or MiB of page cache. For runtime calls it is the number of calls
	// in a row.
	N int
}

// maxSteps bounds the steps kept for one victim. Retries of a runtime call for hours use one slot.
const maxSteps = 24

// stepLog holds the steps so far.
type stepLog struct {
	mu  sync.Mutex
	of  [maxSteps]Step // guarded by mu
	len int            // guarded by mu
}

// add appends a step. It allocates nothing. When the log is full, the latest step replaces the last
// one.
func (s *stepLog) add(name string, n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.len = min(s.len+1, maxSteps)
	s.of[s.len-1] = Step{Name: name, At: monotonic(), Err: err, N: n}
}

// call records a call of the runtime. Calls with the same name in a row are one step, with the
// latest result and their number.
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

// snapshot returns a copy of the steps so far.
func (s *stepLog) snapshot() []Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Step(nil), s.of[:s.len]...)
}
