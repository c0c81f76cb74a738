package kill

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
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
// the kill is held up in the kernel.
func (r *raiser) raiseThread(tid int) {
	if tid == 0 || time.Now().After(r.until) || !isDying(r.proc, tid) {
		return
	}
	switch err := cgroup.RaiseDying(tid); err {
	case nil:
		r.raised++
	case unix.ESRCH: // has exited
	default:
		if r.err == nil {
			r.err = os.NewSyscallError("sched_setattr", err)
		}
	}
}

// raisePriority raises the threads that were not dying before: the kill may have been held up.
func (v *Victim) raisePriority() {
	_, _ = newRaiser(v.killer.monitors.proc, func() {}).raise(v, &v.group.each)
}

// Fields of /proc/PID/task/TID/stat after the program's name (v6.12 fs/proc/array.c do_task_stat),
// and flags of tasks (include/linux/sched.h).
const (
	statFlags   = 6           // number 9 in proc_pid_stat(5)
	statPending = 28          // number 31: signals pending for the thread
	flagsDying  = 0x4 | 0x400 // PF_EXITING, PF_SIGNALED
	killPending = 1 << (unix.SIGKILL - 1)
)

// isDying reports whether a SIGKILL is pending for a thread, or the thread is exiting. The kernel
// makes a SIGKILL pending for each thread of the process (kernel/signal.c complete_signal). An
// unreadable thread is not dying.
func isDying(proc string, tid int) bool {
	id := strconv.Itoa(tid)
	text, err := os.ReadFile(filepath.Join(proc, id, "task", id, "stat"))
	if err != nil {
		return false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= statPending {
		return false
	}
	flags, flagsErr := strconv.ParseUint(string(fields[statFlags]), 10, 64)
	pending, pendingErr := strconv.ParseUint(string(fields[statPending]), 10, 64)
	return flagsErr == nil && flags&flagsDying != 0 || pendingErr == nil && pending&killPending != 0
}
