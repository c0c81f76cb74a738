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
	// for the search of processes that had no pidfd, or could not be freed yet
	sweepLimit = 2 * time.Second
	sweepPause = 2 * time.Millisecond // before those that could not be freed are tried again
	againMax   = 25                   // times that a process which had a pidfd is tried
	maxSeen    = 1 << 16              // processes that are remembered in one search
)

// reaping is what one thread needs for one victim after another.
type reaping struct {
	k      *Killer
	v      *Victim
	walker cgroup.Walker
	buf    [4096]byte
	seen   map[int]bool // processes that are done
	fresh  int          // processes of this round that are done
	again  int          // processes of this round that were not freed yet
	groups int          // whose limits were lifted
	top    bool         // the next one is the victim's own
	until  time.Time
	err    error
	sweep  func(*cgroup.Group) bool
	boost  func(*cgroup.Group) bool
	free   func(int)
	began  atomic.Int64 // CLOCK_MONOTONIC, when the step that it is at began; 0: it is at none
}

func newReaping(k *Killer) *reaping {
	r := &reaping{k: k, seen: map[int]bool{}}
	r.sweep, r.boost, r.free = r.sweepGroup, r.boostGroup, r.freeProcess
	return r
}

// stuck reports whether the kernel does not let go of the thread.
func (r *reaping) stuck(now time.Duration) bool {
	began := time.Duration(r.began.Load())
	return began != 0 && now-began > stuckAfter
}

// step notes that the thread goes on.
func (r *reaping) step() { r.began.Store(int64(monotonic())) }

// run is one thread. It is never unlocked: the thread ends with it, and its priority. raised: nil
// if nobody asks.
func (r *reaping) run(raised chan<- []error) {
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
			if r.k.superfluous(r) {
				return
			}
		}
	}
}

// reap lets the dying die and frees their memory. The thread that comes first lifts the limits and
// asks the others for help.
func (r *reaping) reap(v *Victim) {
	r.v, r.err = v, nil
	clear(r.seen)
	first := v.freeing.begin()
	if first && r.k.ladder.has(CPU) {
		r.lift()
	}
	if !r.k.ladder.has(Mrelease) {
		return
	}
	v.freeing.join()
	if first {
		for range min(r.k.reapers, v.processes.count()) - 1 {
			v.life.retain()
			if r.k.offer(v) != nil {
				v.release()
			}
		}
	}
	r.pidfds()
	if first {
		for i := range v.processes.count() {
			r.seen[v.processes.at(i).pid] = true // by this thread or another
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

// pidfds frees the processes that were pinned, together with the other threads: each takes the next
// one.
func (r *reaping) pidfds() {
	v := r.v
	for i := v.freeing.take(); i < v.processes.count(); i = v.freeing.take() {
		p := v.processes.at(i)
		for range againMax {
			if r.again = 0; r.release(p.pid, p.fd) || !r.pause() {
				break
			}
		}
	}
}

// release frees the memory of one process. Not done: it has to be asked again.
func (r *reaping) release(pid, fd int) (done bool) {
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
		r.again++
		return false
	// gone; or it shares its memory with a process that lives, so nothing of it can be freed
	case unix.ESRCH, unix.EINVAL:
		r.see(pid)
	case unix.ENOSYS, unix.EPERM: // for good
		text := os.NewSyscallError("process_mrelease", err)
		r.k.absent.Store(&text)
		r.err = text
	default:
		r.err = os.NewSyscallError("process_mrelease", err)
		r.see(pid)
	}
	return true
}

// pause waits a moment. false: the threads are to end.
func (r *reaping) pause() bool {
	pause := time.NewTimer(sweepPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-r.k.done:
		return false
	}
}

// see notes that a process is done.
func (r *reaping) see(pid int) {
	r.fresh++
	if len(r.seen) < maxSeen {
		r.seen[pid] = true
	}
}

// search looks for processes of the victim that are not freed yet, until a round finds none.
func (r *reaping) search() {
	for end := time.Now().Add(sweepLimit); time.Now().Before(end) && r.k.absent.Load() == nil; {
		r.fresh, r.again = 0, 0
		r.until = end
		r.walker.Walk(&r.v.group.reap, r.sweep)
		if r.fresh == 0 && r.again == 0 {
			return
		}
		if r.fresh == 0 && !r.pause() {
			return
		}
	}
}

func (r *reaping) sweepGroup(g *cgroup.Group) bool {
	r.step()
	_ = g.Procs(r.buf[:], r.free)
	select {
	case <-r.k.done:
		return false
	default:
		return time.Now().Before(r.until)
	}
}

// freeProcess frees one process of a list. Its number may be another process's by now: the kernel
// frees the memory only of who is dying anyway.
func (r *reaping) freeProcess(pid int) {
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
