package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
)

// Runtime is what the ladder needs of a container runtime (*cri.Client).
type Runtime interface {
	StopContainer(ctx context.Context, id string, timeout time.Duration) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	ContainersOf(ctx context.Context, sandboxID string) ([]cri.Container, error)
	Running(ctx context.Context, sandboxID string) (int, error)
	SandboxesOf(ctx context.Context, uid string) ([]cri.PodSandbox, error)
}

// Victim is a pinned pod: the very cgroup and the very sandboxes that were ranked. A pod that comes back under the same UID
// is another Victim. Kill, Killed, Steps and Close may be called at any time by any goroutine; the other methods by one goroutine at
// a time.
type Victim struct {
	Pod     stats.PodReference
	group   *cgroup.Group // &wait; nil: none was found, only the runtime can kill it
	ids     []string
	since   Stamp // when it was pinned: sandboxes made later are not its own
	settled bool  // ids are all of its sandboxes: a later look would find those of its next life
	ladder  Ladder
	killer  *Killer // nil: it frees its memory itself
	steps   stepLog
	alive   context.Context // ended by end, which the first Kill that worked calls, and Close
	end     context.CancelFunc
	killed  atomic.Bool
	singly  atomic.Bool   // process by process
	limit   time.Duration // of that: eachLimit
	emptied sync.Once
	gone    atomic.Bool // no process was left in its cgroup: nothing there is killed or raised any more

	// The same cgroup four times, for each has a goroutine of its own. Closed when the victim is not retained any more.
	wait cgroup.Group // for the caller that waits
	kill cgroup.Group // to write cgroup.kill; writing guards it
	each cgroup.Group // to kill process by process; singling guards it, but for its directory
	reap cgroup.Group // for the thread that frees its memory

	writing  sync.Mutex
	file     int   // cgroup.kill, open for writing; -1: it could not be opened, and why says the error; writing guards it
	why      error // writing guards it
	singling sync.Mutex

	// What Kill and the threads that carry it out tell one another.
	striking  sync.Mutex  // one Kill at a time
	timer     *time.Timer // striking guards it
	written   chan result // one slot
	singled   chan result // likewise
	listed    chan result // likewise
	struck    atomic.Bool // a kill has worked
	heldUp    atomic.Bool // the write waits for a lock of the kernel
	writeErr  atomic.Pointer[error]
	singleErr atomic.Pointer[error]

	// What the threads that free its memory share. The pidfds were opened before the kill; there may be more of them each time one looks.
	pidfds   [maxPidfds]process
	pids     atomic.Int32
	first    atomic.Bool  // a thread has begun
	next     atomic.Int64 // the next of pidfds
	freeing  atomic.Int64 // threads at it
	freed    atomic.Int64 // processes whose memory was freed
	freeErr  atomic.Pointer[error]
	freeDone atomic.Bool

	mu     sync.Mutex
	closed bool // mu guards it
	users  int  // mu guards it: how many need the descriptors, the caller and threads

	// What was done to the CPU limits of its own cgroup.
	cpu struct {
		sync.Mutex
		raised bool
		below  bool // groups below it were raised, too
		before cgroup.CPUSettings
	}
}

// Pin is Killer.Pin without a Killer, and so without its threads: the rungs that kill, nothing that hastens death.
func Pin(fs *cgroup.FS, pod *stats.PodStats) (*Victim, error) {
	v := newVictim()
	v.ladder = All &^ (CPU | Mrelease)
	if err := v.attach(fs, pod); err != nil {
		return nil, err
	}
	return v, nil
}

// attach opens the victim's cgroup. It allocates nothing where all is well.
func (v *Victim) attach(fs *cgroup.FS, pod *stats.PodStats) error {
	v.Pod, v.since, v.settled = pod.PodRef, Now(), false
	v.ids = append(v.ids[:0], pod.SandboxIDs...)
	if pod.Cgroup == "" {
		if len(v.ids) == 0 {
			return fmt.Errorf("pin pod %s: neither a cgroup nor a sandbox of it is known", pod.PodRef.UID)
		}
		v.steps.add(stepPin, 0, nil)
		return nil
	}
	if err := v.open(fs, pod); err != nil {
		v.closeGroups()
		return fmt.Errorf("pin pod %s: %w", pod.PodRef.UID, err)
	}
	v.group, v.users = &v.wait, 1
	v.steps.add(stepPin, 0, nil)
	return nil
}

func (v *Victim) open(fs *cgroup.FS, pod *stats.PodStats) error {
	for _, g := range []*cgroup.Group{&v.wait, &v.kill, &v.each, &v.reap} {
		g.Forget()
	}
	v.file, v.why = -1, nil
	held := false
	if v.killer != nil && v.killer.held != nil {
		v.file, held = v.killer.held(pod, &v.wait)
	}
	if !held {
		if err := fs.GroupInto(pod.Cgroup, &v.wait); err != nil {
			return err
		}
	}
	if stats.CgroupID(v.wait.ID()) != pod.CgroupID && pod.CgroupID != (stats.CgroupID{}) {
		return fmt.Errorf("cgroup /%s is another one now", pod.Cgroup)
	}
	for _, g := range []*cgroup.Group{&v.kill, &v.each, &v.reap} {
		if err := v.wait.DupInto(g); err != nil {
			return err
		}
	}
	if v.ladder.has(CgroupKill) && v.file < 0 {
		v.file, v.why = v.kill.OpenKill()
	}
	return nil
}

func (v *Victim) closeGroups() {
	for _, g := range []*cgroup.Group{&v.wait, &v.kill, &v.each, &v.reap} {
		g.Close()
	}
	if v.file >= 0 {
		unix.Close(v.file)
		v.file = -1
	}
}

// pinned is how many of pidfds are open.
func (v *Victim) pinned() int { return int(v.pids.Load()) }

// retain keeps the descriptors open until release. v.mu is not held.
func (v *Victim) retain() {
	v.mu.Lock()
	v.users++
	v.mu.Unlock()
}

// release gives them back when they are not needed any more.
func (v *Victim) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.users--; v.users > 0 {
		return
	}
	v.restore()
	v.closeGroups()
	for i := range v.pinned() {
		unix.Close(v.pidfds[i].fd)
	}
	v.pids.Store(0)
}

// Close gives the descriptors back, once the threads that free memory are done with them. Nothing but Kill may be under way.
func (v *Victim) Close() {
	v.mu.Lock()
	closed := v.closed
	v.closed = true
	v.mu.Unlock()
	if closed || v.group == nil {
		return
	}
	v.end()
	v.release()
	if v.killer != nil {
		v.killer.refill()
	}
}

// Steps is what was done to the victim so far, in its order.
func (v *Victim) Steps() []Step { return v.steps.copied() }

// Kill sends SIGKILL to every process of the victim: cgroup.kill, or where the kernel has none or refuses, process by process. A victim
// that is gone already is no error. An error means that something of it may live; Clean then has the runtime kill it. With a Killer its
// threads do it, and Kill waits for no lock of the kernel: a write that takes longer than 20 ms goes on while the processes are killed one
// by one beside it, and after as long again Kill returns. What hastens the death goes on in threads of the Killer, too.
func (v *Victim) Kill() error {
	v.striking.Lock()
	defer v.striking.Unlock()
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	switch {
	case v.group == nil:
		return errors.New("no cgroup of the pod is known")
	case closed:
		return fmt.Errorf("kill pod %s: %w", v.Pod.UID, os.ErrClosed)
	case !v.ladder.has(CgroupKill | Pidfd):
		return fmt.Errorf("kill pod %s: only the runtime may (rungs: %s)", v.Pod.UID, v.ladder)
	}
	var err error
	if v.killer != nil && v.killer.open() {
		err = v.strike()
	} else {
		err = v.climb()
	}
	if err != nil {
		return err
	}
	v.end()
	if v.killed.CompareAndSwap(false, true) && v.killer != nil && v.ladder.has(CPU|Mrelease) {
		v.retain()
		if err := v.killer.offer(v); err != nil {
			v.release()
			v.steps.add(Mrelease.String(), 0, err)
		}
	}
	return nil
}

// eachLimit bounds a kill process by process.
const eachLimit = 500 * time.Millisecond

// climb tries the rungs that kill, until one works, without a Killer's threads.
func (v *Victim) climb() error {
	var refused error
	if v.ladder.has(CgroupKill) {
		if !v.writing.TryLock() {
			return nil // it is being written, by a thread that outlives its Killer
		}
		v.writing.Unlock()
		var buf [256]byte
		if refused = v.write(buf[:]); refused == nil {
			return nil
		}
	}
	if !v.ladder.has(Pidfd) {
		return refused
	}
	v.singly.Store(true)
	if err := v.eachProcess(cgroup.NewProcKiller()); err != nil {
		return errors.Join(refused, err)
	}
	return nil
}

// Killed reports whether a Kill has worked, or is under way.
func (v *Victim) Killed() bool { return v.killed.Load() }

// Struck reports whether the kernel has carried a kill out: the write of cgroup.kill has returned, or all processes were signalled. A kill
// that only waits for that ends with this process, perhaps.
func (v *Victim) Struck() bool { return v.struck.Load() }

// Times between two rounds of a kill, as long as something is left: doubled from one to the next.
const (
	sweepFirst = 20 * time.Millisecond
	sweepMax   = time.Second
)

// WaitEmpty blocks until no process of the victim is left, by the kernel's word. A kill is repeated meanwhile, further and further apart: a
// process that gets SIGKILL in the middle of a fork may finish it, and one may be moved in. What is wrong with the waiting itself (out of
// descriptors) does not end it: it is a step, and tried again. os.ErrDeadlineExceeded: it is not known to be empty in time; ErrNotKilled:
// a kill that was under way has failed.
func (v *Victim) WaitEmpty(ctx context.Context, limit time.Duration) error {
	if v.group == nil {
		return nil // Clean is what kills it
	}
	err := v.awaitEmpty(ctx, limit)
	if err == nil {
		v.emptied.Do(func() { v.steps.add(stepEmptied, 0, nil) })
		v.gone.Store(true)
		v.restore()
	}
	return err
}

func (v *Victim) awaitEmpty(ctx context.Context, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	var again *cgroup.ProcKiller
	for wait := sweepFirst; ; wait = min(2*wait, sweepMax) {
		left := max(time.Until(deadline), 0)
		err := v.group.WaitEmpty(ctx, min(wait, left))
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			v.steps.call(stepWait, err)
			err = fmt.Errorf("%w: it is not known whether pod %s is dead: %w", os.ErrDeadlineExceeded, v.Pod.UID, err)
			pause(ctx, min(wait, left))
		}
		if failed := v.failed(); failed != nil && v.killed.Load() {
			v.killed.Store(false) // so that Clean has the runtime do it
			return fmt.Errorf("kill pod %s: %w", v.Pod.UID, failed)
		}
		if left <= wait {
			return err
		}
		again = v.killAgain(again)
	}
}

func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// killAgain is one more round of a kill that this process has begun. It waits for no thread and holds up none: neither the loop, which may
// have the next victim to kill by now, nor the threads that free memory wait for a round.
func (v *Victim) killAgain(by *cgroup.ProcKiller) *cgroup.ProcKiller {
	if v.killer != nil {
		v.killer.relieve()
	}
	if !v.killed.Load() {
		return by
	}
	switch {
	case v.singly.Load():
		if by == nil {
			by = cgroup.NewProcKiller()
		}
		by.Unfrozen = v.heldUp.Load()
		_, _ = by.Kill(v.group, v.limit) // what goes wrong shows in who is left then
	case v.killer == nil:
		var buf [256]byte
		v.writeAgain(buf[:])
	default:
		v.killer.strike(strike{v: v, again: true})
	}
	return by
}

// raise lifts the CPU limits of the victim's own cgroup and remembers what it had.
func (v *Victim) raise(buf []byte) error {
	v.cpu.Lock()
	defer v.cpu.Unlock()
	if v.dead() {
		return nil
	}
	before, raised, err := raiseCPU(&v.reap, buf)
	v.cpu.raised, v.cpu.before = raised, before
	return err
}

// raisesBelow notes that groups below the victim's own are raised.
func (v *Victim) raisesBelow() {
	v.cpu.Lock()
	v.cpu.below = true
	v.cpu.Unlock()
}

// dead: no process was left in the victim's cgroup at some time. What is in it now is not the victim. It waits for no lock: raise holds its
// own while the kernel does as it likes, and the thread that writes cgroup.kill asks.
func (v *Victim) dead() bool { return v.gone.Load() }

// over: it is dead or closed. What is still to be done to it then is left.
func (v *Victim) over() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed || v.dead()
}

// restore puts the CPU limits back, once no process is left in the cgroup: a kubelet keeps a pod's for its next sandbox. The groups below
// go with their processes, but where the victim lives and is given up.
func (v *Victim) restore() {
	died := v.gone.Swap(true) // before the lock: who kills does not wait for who raises
	v.restoreCPU(!died)
}

func (v *Victim) restoreCPU(lives bool) {
	v.cpu.Lock()
	defer v.cpu.Unlock()
	if !v.cpu.raised {
		return
	}
	v.cpu.raised = false
	var buf [256]byte
	var err error
	if v.cpu.below && lives {
		err = restoreAll(&v.reap, v.cpu.before, time.Now().Add(mendLimit), sound, buf[:])
	} else {
		err = restoreCPU(&v.reap, v.cpu.before, buf[:])
	}
	if !errors.Is(err, cgroup.ErrVanished) {
		v.steps.add(stepRestored, 0, err)
	}
}
