package kill

import (
	"bytes"
	"runtime"
	"time"

	"jettison/cgroup"
)

// Writing cgroup.kill takes cgroup_mutex, and so does cgroup.freeze. Looking up a file in a cgroup
// takes the lock of its directory and the rwsem of the whole hierarchy. A process that creates or
// removes a pod's cgroup holds these locks while it allocates, which under pressure takes as long
// as reclaim does (v6.12 kernel/cgroup/cgroup.c cgroup_kill_write, cgroup_mkdir; fs/kernfs/dir.c
// kernfs_iop_lookup). So one thread writes, others handle processes one by one, and the caller of
// Kill waits for each no longer than slowKill.
const (
	helpers = 2 // threads that handle single processes
	// after slowKill a write counts as held up, and the processes are killed one by one
	slowKill = 20 * time.Millisecond
)

// strike is a job for the thread that writes cgroup.kill.
type strike struct {
	v      *Victim
	repeat bool // cgroup.kill was written before
}

// errand is a job for a helper thread.
type errand struct {
	v    *Victim
	task task
}

type task uint8

const (
	listProcesses task = iota // open pidfds of the processes
	killProcesses             // kill one by one
)

// startKillers starts the threads that the ladder needs to kill.
func (k *Killer) startKillers() {
	ready := make(chan []error)
	start := func(run func()) {
		k.killers++
		go func() {
			runtime.LockOSThread() // never unlocked: the thread and its priority end with the goroutine
			_, refused := cgroup.RaiseThread()
			ready <- refused
			run()
			k.exited <- struct{}{}
		}()
		if refused := <-ready; len(refused) > 0 {
			k.refused = refused
		}
	}
	if k.ladder.has(CgroupKill) {
		start(k.strikeAll)
	}
	if k.ladder.has(CgroupKill | Pidfd | Mrelease) {
		for range helpers {
			start(newHelper(k).run)
		}
	}
}

// strikeAll runs the jobs that write cgroup.kill, one after another.
func (k *Killer) strikeAll() {
	var buf [killBuffer]byte
	for {
		select {
		case <-k.done:
			return
		case s := <-k.strikes:
			if s.repeat {
				s.v.rewrite(buf[:])
			} else {
				reply(s.v.replies.written, s.v.write(buf[:]))
			}
			s.v.release()
		}
	}
}

// strike queues a job for the thread that writes cgroup.kill. It never blocks, and returns false if
// there is no such thread or the queue is full.
func (k *Killer) strike(s strike) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || !k.ladder.has(CgroupKill) || len(k.strikes) == cap(k.strikes) {
		return false
	}
	s.v.life.retain()
	k.strikes <- s
	return true
}

// errand queues a job for a helper, as strike does.
func (k *Killer) errand(e errand) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.killers == 0 || len(k.errands) == cap(k.errands) {
		return false
	}
	e.v.life.retain()
	k.errands <- e
	return true
}

// helper is the state of one thread that handles single processes.
type helper struct {
	k       *Killer
	v       *Victim
	until   time.Time
	walker  cgroup.Walker
	each    *cgroup.ProcKiller
	buf     [4096]byte
	next    int       // index of the pinned process that confirm expects
	pid     func(int) // add or confirm
	list    func(*cgroup.Group) bool
	add     func(int)
	confirm func(int)
}

func newHelper(k *Killer) *helper {
	h := &helper{k: k, each: cgroup.NewProcKiller()}
	h.list, h.add, h.confirm = h.listGroup, h.openPidfd, h.mark
	return h
}

func (h *helper) run() {
	for {
		select {
		case <-h.k.done:
			return
		case e := <-h.k.errands:
			if h.v = e.v; e.task == listProcesses {
				h.pidfds()
				reply(e.v.replies.listed, nil)
			} else {
				reply(e.v.replies.singled, e.v.eachProcess(h.each))
			}
			e.v.release()
		}
	}
}

// pidfds opens pidfds of the victim's processes. The kill does not depend on them.
func (h *helper) pidfds() {
	if h.v.life.over() {
		return // processes listed now are not the victim's
	}
	h.until, h.next = time.Now().Add(pidfdLimit), 0
	h.pid = h.add
	h.walker.Walk(&h.v.group.each, h.list)
	h.pid = h.confirm
	h.walker.Walk(&h.v.group.each, h.list)
	h.v.steps.add(stepPidfds, h.v.processes.count(), nil)
}

func (h *helper) listGroup(g *cgroup.Group) bool {
	if !bytes.HasPrefix(h.walker.Child(), monitorPrefix) { // later rounds kill what is none
		_ = g.Procs(h.buf[:], h.pid)
	}
	return time.Now().Before(h.until)
}

func (h *helper) openPidfd(pid int) {
	if pid == 0 || h.v.processes.full() || time.Now().After(h.until) {
		return
	}
	if fd, err := cgroup.OpenPidfd(pid); err == nil {
		h.v.processes.add(pid, fd)
	}
}

// mark records that a process is still listed.
func (h *helper) mark(pid int) { h.next = h.v.processes.mark(pid, h.next) }
