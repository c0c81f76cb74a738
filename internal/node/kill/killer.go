package kill

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cgroup"
	"jettison/internal/base/retry"
	"jettison/stats"
)

const (
	maxReapers = 2               // threads that free memory
	maxThreads = 8               // including stuck threads, each of which has a replacement
	stuckAfter = time.Second     // after this time in one step, a thread counts as blocked in the kernel
	maxDying   = 32              // victims with memory being freed or queued for that
	spares     = 2               // victims kept ready
	closeLimit = 2 * time.Second // for threads to end: one may be in the kernel, freeing memory
	maxWaiting = 2 * maxDying    // kills queued for a thread
)

// Options of a Killer.
type Options struct {
	FS     *cgroup.FS
	Ladder Ladder // zero: All
	Proc   string // the mount of procfs; empty: /proc
	// NoMonitors: the runtime is known to run no monitors (conmon) in pods' cgroups
	NoMonitors bool

	// Held duplicates an open handle of a pod's cgroup into out and returns a descriptor of its
	// cgroup.kill (-1: none), so that Pin looks up no path. It returns false if no handle is open.
	// Pin calls it in the caller's goroutine. May be nil.
	Held func(pod *stats.PodStats, out *cgroup.Group) (file int, ok bool)
}

// Killer pins victims and owns the resources to kill them: threads that kill, threads that free
// the memory of dying processes, and preallocated victims with buffers, so that the kill of a pod
// in its own cgroup allocates nothing. Call Close at the end. One goroutine at a time may call
// Pin.
type Killer struct {
	fs     *cgroup.FS
	ladder Ladder
	held   heldFunc
	// of its victims
	monitors monitors

	spares     chan *Victim
	strikes    chan strike     // for the one thread that writes cgroup.kill
	errands    chan errand     // for its helpers
	jobs       chan *Victim    // for the reapers
	done       chan struct{}   // closed to end the threads
	exited     chan struct{}   // one value for each thread that ended
	background chan assignment // for the workers
	reapers    int             // desired number of working reapers; 0: none
	refused    []error
	absent     atomic.Pointer[error] // why process_mrelease cannot work here

	mu      sync.Mutex
	closed  bool      // guarded by mu
	killers int       // guarded by mu: the thread that writes cgroup.kill, and its helpers
	pool    []*reaper // guarded by mu: threads that free memory, including stuck ones

	ended       bool           // guarded by mu: no further task is accepted
	workers     int            // guarded by mu: goroutines that do tasks
	workerGroup sync.WaitGroup // workers; mu is held to add one
}

// New creates a Killer and starts its threads.
func New(o Options) *Killer {
	if o.Ladder == 0 {
		o.Ladder = All
	}
	k := &Killer{
		fs: o.FS, ladder: o.Ladder, held: o.Held, spares: make(chan *Victim, spares),
		monitors: monitors{cmp.Or(o.Proc, "/proc"), !o.NoMonitors},
		jobs:     make(chan *Victim, maxDying), background: make(chan assignment, maxTasks),
		strikes: make(chan strike, maxWaiting), errands: make(chan errand, 2*maxWaiting),
		done: make(chan struct{}), exited: make(chan struct{}, maxThreads+1+helpers),
		pool: make([]*reaper, 0, maxThreads),
	}
	k.refill()
	k.startKillers()
	if !o.Ladder.has(CPU | Mrelease) {
		return k
	}
	// One CPU stays free for other work, because a real-time thread that frees memory stays in the
	// kernel.
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

// Refused returns the errors of raising the threads' priority. The threads then work at normal
// priority.
func (k *Killer) Refused() []error { return k.refused }

// Close ends the threads and waits for them and for the tasks of victims, 2 s at most; it returns
// os.ErrDeadlineExceeded if one is still in the kernel. Pinned victims stay usable, without help
// from the threads.
func (k *Killer) Close() error {
	k.mu.Lock()
	closed, threads := k.closed, k.killers+len(k.pool)
	k.closed = true
	k.mu.Unlock()
	if closed {
		return nil
	}
	close(k.done)
	deadline := time.Now().Add(closeLimit)
	err := k.awaitThreads(threads)
	k.mu.Lock()
	k.ended = true
	k.mu.Unlock()
	if !retry.AwaitFunc(k.workerGroup.Wait, time.Until(deadline)) && err == nil {
		err = fmt.Errorf("end the tasks of victims: %w", os.ErrDeadlineExceeded)
	}
	return err
}

// awaitThreads waits until the threads have ended, closeLimit at most, and releases the victims of
// the jobs that are left.
func (k *Killer) awaitThreads(threads int) error {
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	for range threads {
		select {
		case <-k.exited:
		case <-limit.C:
			return fmt.Errorf("stop the threads of the kill ladder: %w", os.ErrDeadlineExceeded)
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

// offer queues a victim for the threads that free memory. It never blocks. The caller retains the
// victim for them; the thread releases it.
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

var errBusy = errors.New("too many victims are dying at the same time")

// open reports whether the threads that kill are running.
func (k *Killer) open() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.closed && k.killers > 0
}

// refill preallocates victims, off the hot path.
func (k *Killer) refill() {
	for len(k.spares) < spares {
		select {
		case k.spares <- newVictim():
		default:
			return
		}
	}
}

// Pin opens the victim's cgroup and pidfds of its processes, as far as pidfdLimit allows. The
// caller must close the victim.
func (k *Killer) Pin(pod *stats.PodStats) (*Victim, error) {
	var v *Victim
	select {
	case v = <-k.spares:
	default:
		v = newVictim()
	}
	v.killer, v.ladder, v.file.monitors = k, k.ladder, k.monitors
	if err := v.attach(k.fs, pod); err != nil {
		return nil, err
	}
	if err := v.pinOutside(pod, k.Pin); err != nil {
		return nil, err
	}
	if v.group.known && k.ladder.has(Mrelease) && k.reapers > 0 {
		// The kill does not depend on the pidfds: Pin waits no longer than their limit.
		_, _ = v.replies.await(k.errand(errand{v, listProcesses}), v.replies.listed, pidfdLimit)
	}
	return v, nil
}

// addReaper starts one more thread that frees memory. k.mu is held.
func (k *Killer) addReaper(raised chan<- []error) {
	r := newReaper(k)
	k.pool = append(k.pool, r)
	go r.run(raised)
}

// replaceStuck starts a replacement for each stuck thread that frees memory, up to maxThreads. A
// process blocked in the kernel may block the thread that frees its memory for as long
// (process_mrelease waits for its mmap_lock). It may start threads, so the loop must not call it.
func (k *Killer) replaceStuck() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for work := k.working(); !k.closed && work < k.reapers && len(k.pool) < maxThreads; work++ {
		k.addReaper(nil)
	}
}

// working returns the number of threads that free memory and are not stuck. k.mu is held.
func (k *Killer) working() (n int) {
	now := monotonic()
	for _, r := range k.pool {
		if !r.stuck(now) {
			n++
		}
	}
	return n
}

// retire removes a thread from the pool if a replacement was started while it was stuck. It returns
// true if the thread must end.
func (k *Killer) retire(r *reaper) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.working() <= k.reapers {
		return false
	}
	k.pool = slices.DeleteFunc(k.pool, func(other *reaper) bool { return other == r })
	return true
}
