package kill

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cgroup"
	"jettison/stats"
)

const (
	maxReapers = 2               // threads that free memory
	maxThreads = 8               // with those that are stuck, each of which another one stands in for
	stuckAfter = time.Second     // in one step: the kernel holds the thread
	maxDying   = 32              // victims whose memory is being freed or waits for that
	spares     = 2               // victims that are kept ready
	closeLimit = 2 * time.Second // for threads to end: one may be in the kernel, freeing memory
	maxWaiting = 2 * maxDying    // kills that wait for a thread
)

// Options of a Killer.
type Options struct {
	FS     *cgroup.FS
	Ladder Ladder // zero: All

	// Held is a second handle of a pod's cgroup that is open already, and of its cgroup.kill (-1: of
	// that there is none), so that pinning looks up no path; not ok: it has none. It is called by who
	// calls Pin. nil: there is never one.
	Held func(pod *stats.PodStats, out *cgroup.Group) (file int, ok bool)
}

// Killer pins victims and owns what killing them takes: threads that kill, threads that free the
// memory of the dying, and victims with their buffers ready, so that from the choice of a victim to
// its death nothing is allocated. Close it. Pin is called by one goroutine at a time.
type Killer struct {
	fs     *cgroup.FS
	ladder Ladder
	held   heldFunc

	spares  chan *Victim
	strikes chan strike   // for the one thread that writes cgroup.kill
	errands chan errand   // for its helpers
	jobs    chan *Victim  // for the reapers
	done    chan struct{} // closed: the threads end
	exited  chan struct{} // one for each that did
	reapers int           // that are to work; 0: none is wanted
	refused []error
	absent  atomic.Pointer[error] // why process_mrelease cannot work here

	mu      sync.Mutex
	closed  bool       // mu guards it
	killers int        // mu guards it: the thread that writes cgroup.kill, and its helpers
	pool    []*reaping // mu guards it: threads that free memory, the stuck ones too
}

// New starts the threads.
func New(o Options) *Killer {
	if o.Ladder == 0 {
		o.Ladder = All
	}
	k := &Killer{
		fs: o.FS, ladder: o.Ladder, held: o.Held, spares: make(chan *Victim, spares),
		jobs:    make(chan *Victim, maxDying),
		strikes: make(chan strike, maxWaiting), errands: make(chan errand, 2*maxWaiting),
		done: make(chan struct{}), exited: make(chan struct{}, maxThreads+1+helpers),
		pool: make([]*reaping, 0, maxThreads),
	}
	k.refill()
	k.startKillers()
	if !o.Ladder.has(CPU | Mrelease) {
		return k
	}
	// One CPU is left to all other work, for a real-time thread that frees memory stays in the kernel.
	k.reapers = max(1, min(maxReapers, runtime.NumCPU()-1))
	raised := make(chan []error)
	for range k.reapers {
		k.mu.Lock()
		k.addReaper(raised)
		k.mu.Unlock()
		if refused := <-raised; len(refused) > 0 {
			k.refused = refused // the same for each
		}
	}
	return k
}

// Refused is what was not granted to the threads that free memory: they do it all the same, at an
// ordinary priority.
func (k *Killer) Refused() []error { return k.refused }

// Close ends the threads and waits for them, 2 s at most: os.ErrDeadlineExceeded, one is still in
// the kernel. Victims that are pinned stay usable; they free their memory themselves.
func (k *Killer) Close() error {
	k.mu.Lock()
	closed, threads := k.closed, k.killers+len(k.pool)
	k.closed = true
	k.mu.Unlock()
	if closed {
		return nil
	}
	close(k.done)
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	for range threads {
		select {
		case <-k.exited:
		case <-limit.C:
			return fmt.Errorf("end the threads that kill and free memory: %w", os.ErrDeadlineExceeded)
		}
	}
	for {
		select {
		case v := <-k.jobs:
			v.release()
		case s := <-k.strikes:
			s.v.release()
		case e := <-k.errands:
			e.v.release()
		default:
			return nil
		}
	}
}

// offer hands a victim to the threads; it never waits. The caller has retained it for them; they
// release it.
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

// open reports whether its threads are there.
func (k *Killer) open() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.closed && k.killers > 0
}

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
	if v.group.known && k.ladder.has(Mrelease) && k.reapers > 0 {
		// None of that is a condition for the kill: it is not waited for longer than it may take.
		_, _ = v.replies.await(k.errand(errand{v, listProcesses}), v.replies.listed, pidfdLimit)
	}
	return v, nil
}

// addReaper starts one more thread that frees memory. k.mu is held.
func (k *Killer) addReaper(raised chan<- []error) {
	r := newReaping(k)
	k.pool = append(k.pool, r)
	go r.run(raised)
}

// relieve has another thread stand in for each of those that free memory and are stuck, up to
// maxThreads: a process that the kernel holds may keep who frees its memory for as long
// (process_mrelease waits for its mmap_lock). It may start threads, so it is not for the loop.
func (k *Killer) relieve() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for work := k.working(); !k.closed && work < k.reapers && len(k.pool) < maxThreads; work++ {
		k.addReaper(nil)
	}
}

// working is how many threads that free memory are not stuck. k.mu is held.
func (k *Killer) working() (n int) {
	now := monotonic()
	for _, r := range k.pool {
		if !r.stuck(now) {
			n++
		}
	}
	return n
}

// superfluous takes a thread that is not stuck any more out of the pool, if others have stood in
// for it.
func (k *Killer) superfluous(r *reaping) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.working() <= k.reapers {
		return false
	}
	k.pool = slices.DeleteFunc(k.pool, func(other *reaping) bool { return other == r })
	return true
}
