package cgroup

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Real-time priorities: above all ordinary work. Dying threads have the lowest one, so they never
// hold up the agent's threads.
const (
	dyingPriority = 1
	fifoPriority  = 2
)

// RaiseThread gives the calling thread, which must be locked to its goroutine, a real-time
// priority or, if that is denied, the best ordinary one. Threads that it starts do not inherit
// it. refused lists the denied requests; raised is false if all were denied.
func RaiseThread() (raised bool, refused []error) {
	err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
		Priority: fifoPriority,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK}, 0)
	if err == nil {
		return true, nil
	}
	refused = append(refused, fmt.Errorf("give a thread real-time priority: %w (needs CAP_SYS_NICE, "+
		"and a real-time budget of its cgroup where the kernel has RT_GROUP_SCHED)", err))
	err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL,
		Nice:  -20,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
	if err == nil {
		return true, refused
	}
	return false, append(refused, fmt.Errorf("set a thread to nice -20: %w (needs CAP_SYS_NICE)", err))
}

// RaiseDying gives a dying thread real-time priority. Errors are plain errnos. EPERM: needs
// CAP_SYS_NICE, and a real-time budget of the thread's cgroup where the kernel has RT_GROUP_SCHED.
//
// The policy is SCHED_RR, not SCHED_FIFO: the end of a large process takes seconds, and the
// kernel's psimon threads, which report pressure, have the same priority.
func RaiseDying(tid int) error {
	return unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr,
		Policy: unix.SCHED_RR, Priority: dyingPriority, Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
}

// IsOrdinary reports whether a thread has no real-time priority. A missing thread has none.
func IsOrdinary(tid int) bool {
	policy, _, _ := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0, 0)
	switch policy &^ unix.SCHED_RESET_ON_FORK {
	case unix.SCHED_FIFO, unix.SCHED_RR, unix.SCHED_DEADLINE:
		return false
	}
	return true
}

// LowerThread gives a thread ordinary priority. 0 is the calling thread.
func LowerThread(tid int) error {
	return unix.SchedSetAttr(tid,
		&unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
}
