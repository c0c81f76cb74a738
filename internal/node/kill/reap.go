package kill

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

const (
	// bounds the search for processes without a pidfd and for those that could not be freed yet
	sweepLimit = 2 * time.Second
	sweepPause = 2 * time.Millisecond // before a retry of processes that could not be freed
	maxTries   = 25                   // for each process with a pidfd
	maxSeen    = 1 << 16              // processes remembered in one search
)

// reaper is the state of one thread that frees the memory of one victim after another.
type reaper struct {
	k       *Killer
	v       *Victim
	walker  cgroup.Walker
	buf     [4096]byte
	seen    map[int]bool // processes that are done
	fresh   int          // processes done in this round
	pending int          // processes of this round that could not be freed yet
	raiser  *raiser
	until   time.Time
	err     error
	sweep   func(*cgroup.Group) bool
	free    func(int)
	began   atomic.Int64 // CLOCK_MONOTONIC, start of the current step; 0: idle
}

func newReaper(k *Killer) *reaper {
	r := &reaper{k: k, seen: map[int]bool{}}
	r.sweep, r.free = r.sweepGroup, r.freeProcess
	r.raiser = newRaiser(k.monitors.proc, r.step)
	return r
}

// stuck reports whether the current step of the thread takes longer than stuckAfter.
func (r *reaper) stuck(now time.Duration) bool {
	began := time.Duration(r.began.Load())
	return began != 0 && now-began > stuckAfter
}

// step records that the thread begins a step.
func (r *reaper) step() { r.began.Store(int64(monotonic())) }

// run is the body of one thread. It locks the thread and never unlocks it, so the thread and its
// priority end with run. run sends the errors of raising the priority to raised, if not nil.
func (r *reaper) run(raised chan<- []error) {
	runtime.LockOSThread()
	_, refused := cgroup.RaiseThread()
	if raised != nil {
		raised <- refused
	}
	for {
		select {
		case <-r.k.done:
			r.k.exited <- struct{}{}
			return
		case v := <-r.k.jobs:
			r.step()
			r.reap(v)
			v.release()
			r.k.refill()
			r.began.Store(0)
			if r.k.retire(r) {
				return
			}
		}
	}
}

// reap frees the memory of the dying processes and gives their threads real-time priority. The
// first thread raises them after it has freed the pinned processes, because the raise may wait for
// a kernel lock. If freeing itself waits for threads without CPU time, repeatKill raises them.
func (r *reaper) reap(v *Victim) {
	r.v, r.err = v, nil
	clear(r.seen)
	first := v.freeing.begin()
	frees := r.k.ladder.has(Mrelease)
	if frees {
		v.freeing.join()
	}
	if first && frees {
		for range min(r.k.reapers, v.processes.count()) - 1 {
			v.life.retain()
			if r.k.offer(v) != nil {
				v.release()
			}
		}
	}
	if frees {
		r.pidfds()
	}
	if first && r.k.ladder.has(CPU) {
		raised, err := r.raiser.raise(v, &v.group.reap)
		v.steps.add(CPU.String(), raised, err)
	}
	if !frees {
		return
	}
	if first {
		for i := range v.processes.count() {
			r.seen[v.processes.at(i).pid] = true // freed by this thread or another
		}
		r.search()
	}
	if r.err != nil {
		v.freeing.fail(r.err)
	}
	if v.freeing.leave() {
		freed, err := v.freeing.result()
		v.steps.add(Mrelease.String(), freed, err)
	}
}

// pidfds frees the memory of the pinned processes. The threads share the work: each takes the next
// process.
func (r *reaper) pidfds() {
	v := r.v
	for i := v.freeing.take(); i < v.processes.count(); i = v.freeing.take() {
		p := v.processes.at(i)
		for range maxTries {
			if r.pending = 0; r.release(p.pid, p.fd) || !r.pause() {
				break
			}
		}
	}
}

// release frees the memory of one process. It returns false if the caller must retry.
func (r *reaper) release(pid, fd int) (done bool) {
	if e := r.k.absent.Load(); e != nil {
		r.err = *e
		return true
	}
	r.step()
	switch err := cgroup.Mrelease(fd); err {
	case nil:
		r.v.freeing.add()
		r.see(pid)
	case unix.EAGAIN:
		r.pending++
		return false
	// exited; or it shares its memory with a live process, so nothing can be freed
	case unix.ESRCH, unix.EINVAL:
		r.see(pid)
	case unix.ENOSYS, unix.EPERM: // permanent
		text := os.NewSyscallError("process_mrelease", err)
		r.k.absent.Store(&text)
		r.err = text
	default:
		r.err = os.NewSyscallError("process_mrelease", err)
		r.see(pid)
	}
	return true
}

// pause waits for sweepPause. It returns false if the Killer was closed.
func (r *reaper) pause() bool {
	pause := time.NewTimer(sweepPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-r.k.done:
		return false
	}
}

// see records that a process is done.
func (r *reaper) see(pid int) {
	r.fresh++
	if len(r.seen) < maxSeen {
		r.seen[pid] = true
	}
}

// search finds and frees processes of the victim that are not freed yet, until a round finds none.
func (r *reaper) search() {
	for end := time.Now().Add(sweepLimit); time.Now().Before(end) && r.k.absent.Load() == nil; {
		r.fresh, r.pending = 0, 0
		r.until = end
		r.walker.Walk(&r.v.group.reap, r.sweep)
		if r.fresh == 0 && r.pending == 0 {
			return
		}
		if r.fresh == 0 && !r.pause() {
			return
		}
	}
}

func (r *reaper) sweepGroup(g *cgroup.Group) bool {
	r.step()
	_ = g.Procs(r.buf[:], r.free)
	select {
	case <-r.k.done:
		return false
	default:
		return time.Now().Before(r.until)
	}
}

// freeProcess frees the memory of one listed process. The pid may have been reused: the kernel
// frees only the memory of a dying process.
func (r *reaper) freeProcess(pid int) {
	if pid == 0 || r.seen[pid] || time.Now().After(r.until) {
		return
	}
	fd, err := cgroup.OpenPidfd(pid)
	if err != nil {
		r.see(pid)
		return
	}
	r.release(pid, fd)
	unix.Close(fd)
}
