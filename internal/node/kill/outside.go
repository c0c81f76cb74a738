package kill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read"
)

// part is a container of the victim outside the pod's cgroup. Its methods are those of a Victim.
type part interface {
	Kill() error
	Killed() bool
	Struck() bool
	KilledAt() Stamp
	WaitEmpty(ctx context.Context, limit time.Duration) error
	Close()
}

// pinOutside pins the containers outside the pod's cgroup. pin pins a cgroup. A container that has
// exited is left out. After an error the victim is closed.
func (v *Victim) pinOutside(pod *stats.PodStats, pin func(*stats.PodStats) (*Victim, error)) error {
	for i := range pod.Outside {
		c := &pod.Outside[i]
		v.group.outsideIDs = append(v.group.outsideIDs, c.ID)
		var one part
		var err error
		if c.Cgroup != "" {
			one, err = pin(&stats.PodStats{PodRef: pod.PodRef, Cgroup: c.Cgroup, CgroupID: c.CgroupID})
		} else {
			one, err = pinTree(c.Process, v.ladder)
		}
		switch {
		case errors.Is(err, cgroup.ErrVanished), err == unix.ESRCH:
		case err != nil:
			v.Close()
			return fmt.Errorf("pin container %s of pod %s: %w", c.ID, pod.PodRef.UID, err)
		default:
			v.group.outside = append(v.group.outside, one)
		}
	}
	return nil
}

// Located reports whether the kernel reports the end of the victim's processes: its cgroup or a
// container outside it is pinned. Otherwise only the runtime does.
func (v *Victim) Located() bool { return v.group.known || len(v.group.outside) > 0 }

// eachOutside reports whether has holds for each container outside the pod's cgroup.
func (v *Victim) eachOutside(has func(part) bool) bool {
	for _, p := range v.group.outside {
		if !has(p) {
			return false
		}
	}
	return true
}

// killOutside kills the containers outside the pod's cgroup, all at the same time: one may take
// 2*slowKill.
func (v *Victim) killOutside() error {
	answers := make(chan error, len(v.group.outside))
	for _, p := range v.group.outside {
		go func() { answers <- p.Kill() }()
	}
	var err error
	for range v.group.outside {
		err = errors.Join(err, <-answers)
	}
	return err
}

// waitOutside waits for the containers outside the pod's cgroup and for own, all at the same time.
func (v *Victim) waitOutside(ctx context.Context, limit time.Duration, own func() error) error {
	if len(v.group.outside) == 0 {
		return own()
	}
	answers := make(chan error, len(v.group.outside))
	for _, p := range v.group.outside {
		go func() { answers <- p.WaitEmpty(ctx, limit) }()
	}
	err := own()
	for range v.group.outside {
		err = errors.Join(err, <-answers)
	}
	return err
}

const (
	maxPinned = 256  // processes of a tree that the pin opens, on the loop
	maxTree   = 1024 // processes of a tree that are killed
)

// procMount is the proc file system of the agent's PID namespace, in which it sends signals.
const procMount = "/proc"

const (
	stopPause = 200 * time.Microsecond // between two looks at processes that must stop
	taskBatch = 64                     // threads listed at a time
)

// processTree is a process and its descendants. Their cgroup has other processes too, so each is killed by
// its own pidfd.
type processTree struct {
	ladder   Ladder
	progress progress
	whole    bool // the first process is enough: its descendants die with it
	limit    int  // maxTree

	mu        sync.Mutex
	processes []stats.ProcessID // guarded by mu
	fds       []int             // guarded by mu: of processes; only Close closes them
	cut       bool              // guarded by mu: it has more processes, which are not killed
	closed    bool              // guarded by mu
}

// pinTree opens pidfds of a process and its descendants. ESRCH: the process has ended, or its PID was
// reused.
func pinTree(first stats.ProcessID, ladder Ladder) (*processTree, error) {
	t := &processTree{ladder: ladder, limit: maxTree}
	if err := t.add(first); err != nil {
		return nil, err
	}
	t.whole = isNamespaceInit(first.PID)
	t.extend(maxPinned)
	return t, nil
}

// isNamespaceInit reports whether a process is process 1 of a PID namespace below the node's. The
// kernel kills the others of the namespace with it, and reports its end after theirs
// (pid_namespaces(7)).
func isNamespaceInit(pid int) bool {
	b, _ := os.ReadFile(fmt.Sprintf("%s/%d/status", procMount, pid))
	_, rest, _ := bytes.Cut(b, []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	ids := bytes.Fields(line)
	return len(ids) > 1 && string(ids[len(ids)-1]) == "1"
}

// extend adds the descendants that are not in the tree, up to limit processes in total. t.mu is held,
// except by pinTree.
func (t *processTree) extend(limit int) {
	if t.whole {
		return
	}
	for i := 0; i < len(t.processes) && len(t.processes) < limit; i++ {
		parent := t.processes[i]
		for _, pid := range read.Children(procMount, parent.PID) {
			start, err := read.StartTicks(procMount, pid)
			one := stats.ProcessID{PID: pid, Start: start}
			if err != nil || len(t.processes) == limit || slices.Contains(t.processes, one) {
				continue
			}
			// a reused PID has another parent, or add finds another start time
			if parentOf(procMount, pid) == parent.PID && isProcess(parent) {
				_ = t.add(one)
			}
		}
	}
}

// add opens a pidfd and compares the start time afterwards: then the pidfd is that process's. t.mu
// is held, except by pinTree.
func (t *processTree) add(p stats.ProcessID) error {
	if p.PID <= 1 || p.PID == os.Getpid() {
		return unix.ESRCH
	}
	fd, err := cgroup.OpenPidfd(p.PID)
	if err != nil {
		return err
	}
	if !isProcess(p) {
		unix.Close(fd)
		return unix.ESRCH
	}
	t.processes, t.fds = append(t.processes, p), append(t.fds, fd)
	return nil
}

// isProcess reports whether a process still has its PID.
func isProcess(p stats.ProcessID) bool {
	start, err := read.StartTicks(procMount, p.PID)
	return err == nil && start == p.Start
}

// Kill sends SIGKILL to each process, also to those forked since the last call. It stops a tree
// first: the kernel gives the children of a process that dies another parent, so that they are not
// found.
func (t *processTree) Kill() error {
	if !t.ladder.has(Pidfd) {
		return fmt.Errorf("the configured kill steps (%s) lack %s, which a process in a shared cgroup needs",
			t.ladder, Pidfd)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return os.ErrClosed
	}
	until := time.Now().Add(slowKill)
	for known := 0; known < len(t.fds) && !t.whole; {
		known = len(t.fds)
		_ = t.signal(unix.SIGSTOP)
		t.awaitStop(until)
		t.extend(t.limit)
	}
	if err := t.signal(unix.SIGKILL); err != nil {
		return err
	}
	if t.cut = t.cut || len(t.fds) == t.limit; t.cut {
		return t.cutError()
	}
	t.progress.begin()
	t.progress.singled(nil)
	return nil
}

// awaitStop waits until every process has stopped or ended, until the given time: the kernel stops a
// process only when it returns from a system call, and a fork may be in flight. t.mu is held.
func (t *processTree) awaitStop(until time.Time) {
	for !t.stopped(until) && time.Now().Before(until) {
		time.Sleep(stopPause)
	}
}

// stopped reports whether one look finds every process stopped or ended. A process with a tracer in
// the tree may run on until the tracer has stopped. At the given time it returns false.
func (t *processTree) stopped(until time.Time) bool {
	for _, p := range t.processes {
		if time.Now().After(until) || !isStopped(procMount, p, until) {
			return false
		}
	}
	return true
}

// isStopped reports whether each thread of a process has stopped or ended. There may be thousands, so
// it returns false at the given time.
func isStopped(proc string, p stats.ProcessID, until time.Time) bool {
	dir := filepath.Join(proc, strconv.Itoa(p.PID))
	f, err := readStat(dir)
	switch {
	case isGone(err), err == nil && string(f[statStart]) != strconv.FormatUint(p.Start, 10):
		return true
	case err != nil || !hasStopped(f):
		return false
	case string(f[statThreads]) == "1":
		return true
	}
	tasks, err := os.Open(filepath.Join(dir, "task"))
	if err != nil {
		return isGone(err)
	}
	defer func() { _ = tasks.Close() }()
	for {
		names, listErr := tasks.Readdirnames(taskBatch)
		for _, name := range names {
			if time.Now().After(until) {
				return false
			}
			f, err := readStat(filepath.Join(tasks.Name(), name))
			if err != nil && !isGone(err) || err == nil && !hasStopped(f) {
				return false
			}
		}
		if listErr != nil {
			return listErr == io.EOF || isGone(listErr)
		}
	}
}

// cutError is the error of a tree with processes that were not killed.
func (t *processTree) cutError() error {
	return fmt.Errorf("the container shares its cgroup and has %d processes or more: "+
		"only as many were killed", t.limit)
}

// signal sends a signal to each process. t.mu is held.
func (t *processTree) signal(sig unix.Signal) (err error) {
	for i, fd := range t.fds {
		if e := unix.PidfdSendSignal(fd, sig, nil, 0); e != nil && e != unix.ESRCH {
			err = fmt.Errorf("send %s to process %d: %w", unix.SignalName(sig), t.processes[i].PID, e)
		}
	}
	return err
}

// Killed reports whether a Kill succeeded.
func (t *processTree) Killed() bool { return t.progress.killed.Load() }

// Struck reports the same as Killed: Kill has sent the signals when it returns.
func (t *processTree) Struck() bool { return t.Killed() }

// KilledAt returns when the processes were killed.
func (t *processTree) KilledAt() Stamp { return t.progress.struckAt() }

// WaitEmpty waits until the processes have ended. Close must not run concurrently.
func (t *processTree) WaitEmpty(ctx context.Context, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		left := time.Until(end)
		alive, cut := t.alive()
		switch {
		case len(alive) == 0 && cut:
			return fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, t.cutError())
		case len(alive) == 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case left <= 0:
			return fmt.Errorf("wait for %d processes: %w", len(alive), os.ErrDeadlineExceeded)
		}
		_, _ = unix.Poll(alive, int(min(left, sweepFirst).Milliseconds())+1)
	}
}

// alive returns the pidfds of the processes that have not ended. cut: others were not killed.
func (t *processTree) alive() (left []unix.PollFd, cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]unix.PollFd, 0, len(t.fds))
	for _, fd := range t.fds {
		out = append(out, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	_, _ = unix.Poll(out, 0)
	return slices.DeleteFunc(out, func(p unix.PollFd) bool { return p.Revents != 0 }), t.cut
}

// Close closes the pidfds.
func (t *processTree) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fd := range t.fds {
		unix.Close(fd)
	}
	t.fds, t.closed = nil, true
}
