package kill

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

// raiseLimit bounds the work in a pod with very many threads.
const raiseLimit = 100 * time.Millisecond

// raiser gives the dying threads of victims real-time priority, so that they exit soon: neither
// cpu.max nor the cpu.weight of the pod and of its QoS class holds them back. Nothing needs to be
// restored, because the threads end. cpu.weight of the pod is not raised: a kubelet reports it as the
// pod's CPU request and counts it (since v1.36 pkg/kubelet/kubelet_pods.go
// convertToAPIPodLevelResourcesStatus). Use it from one goroutine at a time.
type raiser struct {
	proc   string
	step   func() // called before each cgroup
	v      *Victim
	walker cgroup.Walker
	buf    [4096]byte
	stat   [1024]byte
	until  time.Time
	raised int
	err    error
	group  func(*cgroup.Group) bool
	thread func(int)
}

func newRaiser(proc string, step func()) *raiser {
	r := &raiser{proc: proc, step: step}
	r.group, r.thread = r.raiseGroup, r.raiseThread
	return r
}

// raise raises the victim's dying threads, unless the victim is dead, and returns their number. g
// is the victim's cgroup, of which only the directory is used.
func (r *raiser) raise(v *Victim, g *cgroup.Group) (raised int, err error) {
	r.v, r.raised, r.err, r.until = v, 0, nil, time.Now().Add(raiseLimit)
	r.walker.Walk(g, r.group)
	if r.err == nil {
		r.err = r.walker.Err()
	}
	return r.raised, r.err
}

// raiseGroup raises the threads of one cgroup. Threads that appear after the victim's death belong to
// another pod life.
func (r *raiser) raiseGroup(g *cgroup.Group) bool {
	r.step()
	if r.v.life.dead() {
		return false
	}
	err := g.Threads(r.buf[:], r.thread)
	if err != nil && r.err == nil && !errors.Is(err, cgroup.ErrVanished) {
		r.err = err
	}
	return time.Now().Before(r.until)
}

// raiseThread raises one listed thread if it is dying. A thread that is not may be a monitor, or
// the kill is held up in the kernel. Threads that have real-time priority already are skipped.
func (r *raiser) raiseThread(tid int) {
	if tid == 0 || time.Now().After(r.until) || !cgroup.IsOrdinary(tid) || r.state(tid) != threadDies {
		return
	}
	switch err := cgroup.RaiseDying(tid); err {
	case nil:
		r.verify(tid)
	case unix.ESRCH: // has exited
	default:
		if r.err == nil {
			r.err = os.NewSyscallError("sched_setattr", err)
		}
		if err == unix.EPERM {
			r.until = time.Time{} // the same for each
		}
	}
}

// verify counts a raised thread, or lowers one that lives. The dying thread may have ended before
// it was raised, so that its ID belonged to a new thread, or to the one that calls execve (v6.12
// fs/exec.c de_thread).
func (r *raiser) verify(tid int) {
	if r.state(tid) != threadLives {
		r.raised++
		return
	}
	if err := cgroup.LowerThread(tid); err != nil && err != unix.ESRCH && r.err == nil {
		r.err = os.NewSyscallError("sched_setattr", err)
	}
}

// raisePriority raises the threads that were not dying before: the kill may have been held up.
func (v *Victim) raisePriority() {
	_, _ = newRaiser(v.killer.monitors.proc, func() {}).raise(v, &v.group.each)
}

const (
	flagsDying  = 0x4 | 0x400 // PF_EXITING, PF_SIGNALED (include/linux/sched.h)
	killPending = 1 << (unix.SIGKILL - 1)
)

// threadState is the part of a thread's state that the raise needs.
type threadState uint8

const (
	threadUnknown threadState = iota // it has ended, or is unreadable
	threadLives
	threadDies
)

// state returns whether a SIGKILL is pending for a thread, or the thread is exiting. The kernel
// makes a SIGKILL pending for each thread of the process (kernel/signal.c complete_signal).
func (r *raiser) state(tid int) threadState {
	id := strconv.Itoa(tid)
	fd, err := unix.Open(r.proc+"/"+id+"/task/"+id+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return threadUnknown
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, r.stat[:])
	if err != nil {
		return threadUnknown
	}
	return parseState(r.stat[:n])
}

// parseState parses the text of /proc/PID/task/TID/stat.
func parseState(text []byte) threadState {
	fields := statFields(text)
	if len(fields) <= statPending {
		return threadUnknown
	}
	flags, err := strconv.ParseUint(string(fields[statFlags]), 10, 64)
	pending, pendingErr := strconv.ParseUint(string(fields[statPending]), 10, 64)
	switch {
	case err != nil || pendingErr != nil:
		return threadUnknown
	case flags&flagsDying != 0 || pending&killPending != 0:
		return threadDies
	}
	return threadLives
}
