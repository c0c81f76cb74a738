package cgroup

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Trigger causes a wake when tasks have stalled for Stall within a Window, at most once per window
// (Documentation/accounting/psi.rst).
//
// Set triggers on the node and on long-lived cgroups (kubepods and the cgroups of the QoS classes),
// never on a pod's cgroup. Setting a trigger while the cgroup is being removed crashes the kernel:
// 6.12.117 did within 400 such races (page fault at an address equal to the trigger's threshold in
// nanoseconds). Also, the removal of a cgroup with a trigger waits for an RCU grace period, 10 ms
// on a quiet machine, and delays the runtime (v6.12 kernel/sched/psi.c, psi_trigger_destroy).
type Trigger struct {
	Resource Resource
	Full     bool          // all tasks stalled at the same time; false: at least one task stalled
	Stall    time.Duration // more than 0, at most Window; the kernel counts microseconds
	Window   time.Duration // 500 ms to 10 s
}

// Windows of triggers.
const (
	// v6.1 kernel/sched/psi.c, WINDOW_MIN_US; 6.12 accepts shorter ones too
	minWindow = 500 * time.Millisecond
	maxWindow = 10 * time.Second
	// plainWindow: without CAP_SYS_RESOURCE, a window must be a multiple of this, because the
	// kernel's worker for averages serves such triggers (v6.12 psi_trigger_create).
	plainWindow = 2 * time.Second
)

// String returns the trigger in the kernel's format with its resource: "memory: some 100000
// 1000000".
func (t Trigger) String() string { return t.Resource.String() + ": " + t.line() }

func (t Trigger) line() string {
	kind := "some"
	if t.Full {
		kind = "full"
	}
	return fmt.Sprintf("%s %d %d", kind, t.Stall.Microseconds(), t.Window.Microseconds())
}

// errTrigger: the caller requests a trigger that no kernel supports.
var errTrigger = errors.New("trigger out of range")

func (t Trigger) validate() error {
	if t.Resource < CPU || t.Resource > IO || t.Stall < time.Microsecond || t.Stall > t.Window ||
		t.Window < minWindow ||
		t.Window > maxWindow {
		return fmt.Errorf("%w: %v: want 1 us <= stall <= window, and window 500 ms to 10 s", errTrigger,
			t)
	}
	return nil
}

// plain returns the nearest trigger that needs no privilege: the window is the next multiple of 2
// s, and the share of time stalled is the same.
func (t Trigger) plain() Trigger {
	window := (t.Window + plainWindow - 1) / plainWindow * plainWindow
	t.Stall = t.Stall * time.Duration(window/time.Microsecond) / (t.Window / time.Microsecond)
	t.Window = window
	return t
}

func (t Trigger) kind() WatchEvents { return CPUPressed << t.Resource }

// openTrigger opens a pressure file and sets a trigger, which exists until the descriptor is
// closed. If the kernel rejects the window because CAP_SYS_RESOURCE is missing, this and all later
// triggers use a window that needs no privilege, and the Watcher reports a refusal.
func (w *Watcher) openTrigger(t Trigger, open func() (int, error)) (opening, error) {
	if err := t.validate(); err != nil {
		return opening{}, err
	}
	fd, err := open()
	if err != nil {
		return opening{}, err
	}
	w.mu.Lock()
	longOnly := w.longOnly
	w.mu.Unlock()
	use := t
	if longOnly {
		use = t.plain()
	}
	err = writeTrigger(fd, use)
	if plain := t.plain(); err == unix.EINVAL && use != plain {
		if err = writeTrigger(fd, plain); err == nil {
			w.mu.Lock()
			w.longOnly = true
			w.mu.Unlock()
			w.addRefusals(fmt.Errorf("the kernel rejects pressure windows that are not a multiple of %v "+
				"(needs CAP_SYS_RESOURCE): %v becomes %v, other triggers accordingly", plainWindow, t, plain))
		}
	}
	if err == nil {
		return opening{fd: fd, kind: t.kind(), events: unix.EPOLLPRI}, nil
	}
	unix.Close(fd)
	switch err {
	case unix.EOPNOTSUPP:
		err = ErrPressureOff
	case unix.ENODEV:
		err = ErrVanished
	}
	return opening{}, fmt.Errorf("write trigger %q: %w", t, err)
}

// writeTrigger writes the line and a terminating byte, which the kernel requires.
func writeTrigger(fd int, t Trigger) error {
	for {
		if _, err := unix.Write(fd, append([]byte(t.line()), 0)); err != unix.EINTR {
			return err
		}
	}
}
