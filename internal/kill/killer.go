package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cgroup"
	"jettison/stats"
)

const (
	maxReapers = 2               // threads that free memory
	maxDying   = 32              // victims whose memory is being freed or waits for that
	spares     = 2               // victims that are kept ready
	closeLimit = 2 * time.Second // for threads to end: one may be in the kernel, freeing memory
)

// Options of a Killer.
type Options struct {
	FS     *cgroup.FS
	Ladder Ladder // zero: All
}

// Killer pins victims and owns what killing them takes: threads that free the memory of the dying, and victims with their
// buffers ready, so that from the choice of a victim to its death nothing is allocated. Close it. Pin is called by one
// goroutine at a time.
type Killer struct {
	fs      *cgroup.FS
	ladder  Ladder
	walker  cgroup.Walker // Pin's
	buf     [4096]byte    // Pin's
	pinning *Victim       // Pin's: whose processes are being listed
	until   time.Time     // Pin's: when that ends
	list    func(*cgroup.Group) bool
	take    func(int)

	spares  chan *Victim
	jobs    chan *Victim
	done    chan struct{} // closed: the reapers end
	exited  chan struct{} // one for each that did
	reapers int
	refused []error
	absent  atomic.Pointer[error] // why process_mrelease cannot work here

	mu     sync.Mutex
	closed bool // mu guards it

	killing sync.Mutex
	each    *cgroup.ProcKiller // killing guards it
}

// New starts the threads.
func New(o Options) *Killer {
	if o.Ladder == 0 {
		o.Ladder = All
	}
	k := &Killer{
		fs: o.FS, ladder: o.Ladder, spares: make(chan *Victim, spares), jobs: make(chan *Victim, maxDying),
		done: make(chan struct{}), exited: make(chan struct{}, maxReapers), each: cgroup.NewProcKiller(),
	}
	k.list, k.take = k.listGroup, k.openPidfd
	k.refill()
	if !o.Ladder.has(CPU | Mrelease) {
		return k
	}
	// One CPU is left to all other work, for a real-time thread that frees memory stays in the kernel.
	k.reapers = max(1, min(maxReapers, runtime.NumCPU()-1))
	raised := make(chan []error)
	for range k.reapers {
		go k.reaper(raised)
	}
	for range k.reapers {
		if refused := <-raised; len(refused) > 0 {
			k.refused = refused // the same for each
		}
	}
	return k
}

// Refused is what was not granted to the threads that free memory: they do it all the same, at an ordinary priority.
func (k *Killer) Refused() []error { return k.refused }

// Close ends the threads and waits for them, 2 s at most: os.ErrDeadlineExceeded, one is still in the kernel. Victims that
// are pinned stay usable; they free their memory themselves.
func (k *Killer) Close() error {
	k.mu.Lock()
	closed := k.closed
	k.closed = true
	k.mu.Unlock()
	if closed {
		return nil
	}
	close(k.done)
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	for range k.reapers {
		select {
		case <-k.exited:
		case <-limit.C:
			return fmt.Errorf("end the threads that free memory: %w", os.ErrDeadlineExceeded)
		}
	}
	for {
		select {
		case v := <-k.jobs:
			v.release()
		default:
			return nil
		}
	}
}

// offer hands a victim to the threads; it never waits. The caller has retained it for them; they release it.
func (k *Killer) offer(v *Victim) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.reapers == 0 {
		return os.ErrClosed
	}
	select {
	case k.jobs <- v:
		return nil
	default:
		return errBusy
	}
}

var errBusy = errors.New("too many victims are dying at once")

// refill makes the victims that are kept ready, off the hot path.
func (k *Killer) refill() {
	for len(k.spares) < spares {
		select {
		case k.spares <- newVictim():
		default:
			return
		}
	}
}

func newVictim() *Victim {
	v := &Victim{ids: make([]string, 0, 16), limit: eachLimit}
	v.alive, v.end = context.WithCancel(context.Background())
	return v
}

// Pin opens the victim's cgroup and, where that takes no time, its processes. Close the victim.
func (k *Killer) Pin(pod *stats.PodStats) (*Victim, error) {
	var v *Victim
	select {
	case v = <-k.spares:
	default:
		v = newVictim()
	}
	v.killer, v.ladder = k, k.ladder
	if err := v.attach(k.fs, pod); err != nil {
		return nil, err
	}
	if v.group != nil && k.ladder.has(Mrelease) && k.reapers > 0 {
		k.pidfds(v)
	}
	return v, nil
}

// Bounds of the pidfds that are opened before the kill. A process without one is found after it.
const (
	maxPidfds  = 64
	pidfdLimit = time.Millisecond
)

// pidfds opens descriptors of the victim's processes. None of that is a condition for the kill.
func (k *Killer) pidfds(v *Victim) {
	k.pinning, k.until = v, time.Now().Add(pidfdLimit)
	k.walker.Walk(v.group, k.list)
	k.pinning = nil
	v.steps.add(stepPidfds, v.pids, nil)
}

func (k *Killer) listGroup(g *cgroup.Group) bool {
	_ = g.Procs(k.buf[:], k.take)
	return k.pinning.pids < maxPidfds && time.Now().Before(k.until)
}

func (k *Killer) openPidfd(pid int) {
	v := k.pinning
	if pid == 0 || v.pids == maxPidfds || time.Now().After(k.until) {
		return
	}
	if fd, err := cgroup.OpenPidfd(pid); err == nil {
		v.pidfds[v.pids] = process{pid, fd}
		v.pids++
	}
}

// process is one process of a victim.
type process struct{ pid, fd int }
