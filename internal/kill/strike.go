package kill

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

// Writing cgroup.kill takes cgroup_mutex, and so does cgroup.freeze; to look a file up in a cgroup takes the lock of its directory, and the
// rwsem of the whole hierarchy. Whoever makes or removes a pod's cgroup meanwhile holds them while it allocates, which under pressure takes
// as long as reclaim does (v6.12 kernel/cgroup/cgroup.c cgroup_kill_write, cgroup_mkdir; fs/kernfs/dir.c kernfs_iop_lookup). So one thread
// writes, others see to processes one by one, and who asks for a kill waits for neither longer than slowKill.
const (
	helpers  = 2                     // threads that go through processes
	slowKill = 20 * time.Millisecond // after which a write counts as held up, and the processes are killed one by one
)

// Bounds of the pidfds that are opened before the kill. A process without one is found after it.
const (
	maxPidfds  = 64
	pidfdLimit = time.Millisecond
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

// process is one process of a victim.
type process struct {
	pid, fd int
	here    atomic.Bool // it was still listed once its descriptor was open: the number was not another process's by then
}

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
				tell(s.v.written, s.v.write(buf[:]))
			}
			s.v.release()
		}
	}
}

// result is what became of it.
type result struct{ err error }

// tell tells who may wait for it; who does not gets it the next time.
func tell(to chan<- result, err error) {
	select {
	case to <- result{err}:
	default:
	}
}

// strike hands a kill to the thread that writes; false: there is none, or it has too much to do. It never waits.
func (k *Killer) strike(s strike) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || !k.ladder.has(CgroupKill) || len(k.strikes) == cap(k.strikes) {
		return false
	}
	s.v.retain()
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
	e.v.retain()
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
				tell(e.v.listed, nil)
			} else {
				tell(e.v.singled, e.v.eachProcess(h.each))
			}
			e.v.release()
		}
	}
}

// pidfds opens descriptors of the victim's processes. None of that is a condition for the kill.
func (h *helper) pidfds() {
	if h.v.over() {
		return // who is listed now is another's
	}
	h.until, h.next = time.Now().Add(pidfdLimit), 0
	h.pid = h.take
	h.walker.Walk(&h.v.each, h.list)
	h.pid = h.confirm
	h.walker.Walk(&h.v.each, h.list)
	h.v.steps.add(stepPidfds, h.v.pinned(), nil)
}

func (h *helper) listGroup(g *cgroup.Group) bool {
	_ = g.Procs(h.buf[:], h.pid)
	return time.Now().Before(h.until)
}

func (h *helper) openPidfd(pid int) {
	v, n := h.v, h.v.pinned()
	if pid == 0 || n == maxPidfds || time.Now().After(h.until) {
		return
	}
	if fd, err := cgroup.OpenPidfd(pid); err == nil {
		v.pidfds[n].pid, v.pidfds[n].fd = pid, fd
		v.pids.Store(int32(n + 1))
	}
}

// mark notes that a process is still listed. The list has the order of the one before, so the next one is tried first.
func (h *helper) mark(pid int) {
	n := h.v.pinned()
	for i := range n {
		if p := &h.v.pidfds[(h.next+i)%n]; p.pid == pid {
			p.here.Store(true)
			h.next = (h.next + i + 1) % n
			return
		}
	}
}

// signalPinned kills the processes that were pinned. That takes no lock which anybody holds while he allocates.
func (v *Victim) signalPinned() (n int) {
	for i := range v.pinned() {
		if p := &v.pidfds[i]; p.here.Load() && unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0) == nil {
			n++
		}
	}
	return n
}

// run waits for what a thread was asked to do, no longer than limit. done: it is, with that error. v.striking is held, or v is new.
func (v *Victim) run(asked bool, answer <-chan result, limit time.Duration) (err error, done bool) {
	if !asked {
		return errBusy, true
	}
	v.timer.Reset(limit)
	defer v.timer.Stop()
	select {
	case r := <-answer:
		return r.err, true
	case <-v.timer.C:
		return nil, false
	}
}

// strike has the victim killed by the Killer's threads. It waits for a moment only: no error means that it is killed, or that a kill is
// under way which the kernel holds up; what became of that one is said by WaitEmpty.
func (v *Victim) strike() error {
	k := v.killer
	drain(v.written)
	drain(v.singled)
	var refused error
	slow := false
	if v.ladder.has(CgroupKill) {
		err, done := v.run(k.strike(strike{v: v}), v.written, slowKill)
		if done && err == nil {
			return nil
		}
		if refused, slow = err, !done; slow {
			v.steps.add(stepHeldUp, v.signalPinned(), nil)
			v.heldUp.Store(true)
		}
	}
	if !v.ladder.has(Pidfd) {
		return refused
	}
	v.singly.Store(true)
	err, done := v.run(k.errand(errand{v, killSingly}), v.singled, slowKill)
	if slow || !done || err == nil { // of two that are under way one will tell
		return nil
	}
	return errors.Join(refused, err)
}

func drain(answers <-chan result) {
	select {
	case <-answers:
	default:
	}
}

// write writes cgroup.kill, unless no process of the victim is left: it may have waited behind others' writes while the victim died by its
// pidfds, and a kubelet makes a pod's next sandbox in the same cgroup. Whether one is left is looked up only for a write that was held up:
// for one that begins at once that would only take longer.
func (v *Victim) write(buf []byte) error {
	v.writing.Lock()
	defer v.writing.Unlock()
	if v.dead() || v.heldUp.Load() && v.isEmpty(buf) {
		v.told(&v.writeErr, nil)
		return nil
	}
	if v.over() { // nobody looks whether it is empty any more
		return os.ErrClosed
	}
	if v.why != nil { // out of descriptors then, perhaps not now
		v.file, v.why = v.kill.OpenKill()
	}
	err := v.why
	if err == nil {
		err = v.kill.WriteKill(v.file)
	}
	if errors.Is(err, cgroup.ErrVanished) {
		err = nil
	}
	v.steps.add(CgroupKill.String(), 0, err)
	v.told(&v.writeErr, err)
	return err
}

// writeAgain writes it once more, unless no process is left: what comes then is not the victim. What goes wrong shows in who is left.
func (v *Victim) writeAgain(buf []byte) {
	if !v.writing.TryLock() {
		return // it is being written
	}
	defer v.writing.Unlock()
	if v.why != nil || v.over() || v.isEmpty(buf) || v.dead() { // the look may take long, too
		return
	}
	err := v.kill.WriteKill(v.file)
	if errors.Is(err, cgroup.ErrVanished) {
		err = nil
	}
	v.steps.call(stepAgain, err)
}

// isEmpty: no process is in the victim's cgroup now, or it is gone. writing is held.
func (v *Victim) isEmpty(buf []byte) bool {
	e, err := v.kill.Events(buf)
	return errors.Is(err, cgroup.ErrVanished) || err == nil && !e.Populated
}

// told remembers what became of a kill that perhaps nobody waits for any more.
func (v *Victim) told(as *atomic.Pointer[error], err error) {
	if err == nil {
		v.struck.Store(true)
		return
	}
	why := err // the parameter would be allocated where all is well, too
	as.Store(&why)
}

// ErrNotKilled is WaitEmpty's if a kill that was under way has failed, so that the runtime has to kill the victim.
var ErrNotKilled = errors.New("the kernel refuses the kill")

// failed is why none of the kills that were under way has worked; nil: one has, or may yet.
func (v *Victim) failed() error {
	wrote, singled := v.writeErr.Load(), v.singleErr.Load()
	switch {
	case v.struck.Load(), v.ladder.has(CgroupKill) && wrote == nil, v.ladder.has(Pidfd) && singled == nil,
		singled != nil && errors.Is(*singled, os.ErrDeadlineExceeded): // it is repeated
		return nil
	}
	err := ErrNotKilled
	for _, why := range []*error{wrote, singled} {
		if why != nil {
			err = fmt.Errorf("%w: %w", err, *why)
		}
	}
	return err
}

// eachProcess kills process by process, unless that is being done, or no process of the victim is left, as in write.
func (v *Victim) eachProcess(by *cgroup.ProcKiller) error {
	if !v.singling.TryLock() {
		return nil
	}
	defer v.singling.Unlock()
	if v.dead() {
		v.told(&v.singleErr, nil)
		return nil
	}
	if v.over() {
		return os.ErrClosed
	}
	by.Unfrozen = v.heldUp.Load()
	n, err := by.Kill(&v.each, v.limit)
	v.steps.add(Pidfd.String(), n, err)
	v.told(&v.singleErr, err)
	return err
}
