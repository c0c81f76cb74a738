package kill

import (
	"runtime"
	"time"

	"jettison/cgroup"
)

// Writing cgroup.kill takes cgroup_mutex, and so does cgroup.freeze; to look a file up in a cgroup
// takes the lock of its directory, and the rwsem of the whole hierarchy. Whoever makes or removes a
// pod's cgroup meanwhile holds them while it allocates, which under pressure takes as long as
// reclaim does (v6.12 kernel/cgroup/cgroup.c cgroup_kill_write, cgroup_mkdir; fs/kernfs/dir.c
// kernfs_iop_lookup). So one thread writes, others see to processes one by one, and who asks for a
// kill waits for neither longer than slowKill.
const (
	helpers = 2 // threads that go through processes
	// after which a write counts as held up, and the processes are killed one by one
	slowKill = 20 * time.Millisecond
)

// strike is a kill for the thread that writes cgroup.kill.
type strike struct {
	v     *Victim
	again bool // it was written before
}

// errand is what one of its helpers is asked to do.
type errand struct {
	v    *Victim
	what what
}

type what uint8

const (
	listProcesses what = iota // open descriptors of them
	killSingly                // one by one
)

// startKillers starts the threads that the ladder needs for that.
func (k *Killer) startKillers() {
	ready := make(chan []error)
	start := func(run func()) {
		k.killers++
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with it, and its priority
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

// strikeAll writes the kill of one victim after another.
func (k *Killer) strikeAll() {
	var buf [256]byte
	for {
		select {
		case <-k.done:
			return
		case s := <-k.strikes:
			if s.again {
				s.v.writeAgain(buf[:])
			} else {
				tell(s.v.replies.written, s.v.write(buf[:]))
			}
			s.v.release()
		}
	}
}

// strike hands a kill to the thread that writes; false: there is none, or it has too much to do. It
// never waits.
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

// errand is strike for a helper.
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

// helper is one thread that goes through processes.
type helper struct {
	k       *Killer
	v       *Victim
	until   time.Time
	walker  cgroup.Walker
	each    *cgroup.ProcKiller
	buf     [4096]byte
	next    int       // of the pinned ones: that is expected
	pid     func(int) // take, or confirm
	list    func(*cgroup.Group) bool
	take    func(int)
	confirm func(int)
}

func newHelper(k *Killer) *helper {
	h := &helper{k: k, each: cgroup.NewProcKiller()}
	h.list, h.take, h.confirm = h.listGroup, h.openPidfd, h.mark
	return h
}

func (h *helper) run() {
	for {
		select {
		case <-h.k.done:
			return
		case e := <-h.k.errands:
			if h.v = e.v; e.what == listProcesses {
				h.pidfds()
				tell(e.v.replies.listed, nil)
			} else {
				tell(e.v.replies.singled, e.v.eachProcess(h.each))
			}
			e.v.release()
		}
	}
}

// pidfds opens descriptors of the victim's processes. None of that is a condition for the kill.
func (h *helper) pidfds() {
	if h.v.life.over() {
		return // who is listed now is another's
	}
	h.until, h.next = time.Now().Add(pidfdLimit), 0
	h.pid = h.take
	h.walker.Walk(&h.v.group.each, h.list)
	h.pid = h.confirm
	h.walker.Walk(&h.v.group.each, h.list)
	h.v.steps.add(stepPidfds, h.v.processes.count(), nil)
}

func (h *helper) listGroup(g *cgroup.Group) bool {
	_ = g.Procs(h.buf[:], h.pid)
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

// mark notes that a process is still listed.
func (h *helper) mark(pid int) { h.next = h.v.processes.mark(pid, h.next) }
