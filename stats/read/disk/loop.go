package disk

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cri"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/openfiles"
	"jettison/stats/read/podindex"
	"jettison/stats/read/quota"
	"jettison/stats/read/walk"
)

// Runtime is the part of a container runtime that the loop queries (*cri.Client). Its calls set
// their own deadlines.
type Runtime interface {
	ListContainerStats(context.Context) ([]cri.ContainerStats, error)
	ContainerStats(ctx context.Context, id string) (cri.ContainerStats, error)
}

// Options locate the directories on the host and configure the measurement. OpenFiles and Store
// may be nil.
type Options struct {
	Host       *hostroot.Root
	Runtime    Runtime
	Proc       string        // the host's /proc
	RootDir    string        // the kubelet's
	PodLogsDir string        // the directory of pods' logs
	Store      func() string // the runtime's image store; empty: not known yet
	// OpenFiles finds the files without a name while a disk is short. Run closes it.
	OpenFiles *openfiles.Finder
	Share     float64 // of a core for walking directories, 0 to 1
	Lazy      bool    // measure only pods set by SetEager, and all pods in a Hurry or on Demand
	OneRound  bool    // measure every pod once, as fast as the disk allows
}

// Loop measures all pods repeatedly with a storageWalker and keeps the results.
type Loop struct {
	walker    *storageWalker
	every     time.Duration // maximum age of a pod's measurement
	lazy      bool          // see Options.Lazy
	oneRound  bool          // measure every pod once, at full speed
	restShare float64       // share of a core for walking

	short atomic.Bool // a disk is short: walk faster

	mu       sync.Mutex
	hurry    bool
	demanded time.Time // measurements before this time are renewed immediately
	// walks from before this time that were cut off are repeated in the longest turn
	finishSince    time.Time
	eager          map[string]bool // UIDs of pods that are measured often
	woken          chan struct{}   // one slot: a measurement is due
	pods           map[string]*storage
	index          podindex.Index
	rooted         bool            // the runtime reports the root of some container
	known          map[string]bool // UIDs of all pods to measure
	dirs           map[string]bool // UIDs of pods with a directory other than that of their logs
	listed         time.Time       // when the pods' directories were last listed; zero: never
	err            error           // of that listing
	began          time.Time       // start of the round in progress; zero: none
	round          time.Duration   // duration of the last round
	walking        string          // UID of the pod being walked; empty: none
	walkStart      time.Time       // start of its walk
	turnEnd        time.Time       // end of its turn
	startedInHurry bool            // the turn started in a hurry
	turnTimer      *time.Timer     // ends the turn; nil: none started yet
	settled        bool            // first is closed
	// closed when every pod of the first listing has been measured, or pods cannot be listed
	first chan struct{}
}

func newStorageLoop(w *storageWalker, every time.Duration) *Loop {
	return &Loop{walker: w, every: every, woken: make(chan struct{}, 1), pods: map[string]*storage{},
		first: make(chan struct{})}
}

// New returns a loop. Run starts the measurements.
func New(o Options) *Loop {
	l := newStorageLoop(&storageWalker{host: o.Host, proc: o.Proc, rootDir: o.RootDir,
		logsDir: o.PodLogsDir,
		uppers:  map[string]string{}, runtime: o.Runtime, store: o.Store, unnamed: o.OpenFiles},
		storageEvery)
	l.lazy, l.oneRound, l.restShare = o.Lazy, o.OneRound, o.Share
	return l
}

// storageEvery is the interval between two measurements of a pod.
const storageEvery = time.Minute

// Run measures until ctx ends, on its own thread with idle I/O priority.
func (l *Loop) Run(ctx context.Context) {
	walk.YieldDisk()
	clock, f := walk.ThreadCPU, l.walker.unnamed
	if f != nil {
		defer f.Close()
		clock = func() time.Duration { return walk.ThreadCPU() + f.CPUTime() }
	}
	pace := walk.Share(l.share, clock)
	if l.oneRound {
		pace = func(ctx context.Context) error { return ctx.Err() }
	}
	l.walker.w = walk.New(pace)
	if f != nil {
		f.SetPace(pace)
	}
	l.run(ctx, l.oneRound)
}

// First returns a channel that is closed when every pod of the first listing has been measured, or
// the pods cannot be listed.
func (l *Loop) First() <-chan struct{} { return l.first }

func (l *Loop) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// run measures until ctx ends or, with oneRound, until all pods are measured once.
func (l *Loop) run(ctx context.Context, oneRound bool) {
	for ctx.Err() == nil {
		found, err := l.walker.find()
		l.keep(found, err)
		if err == nil { // a partial listing would replace good measurements with partial ones
			next, due := l.oldest(found)
			l.count(next, due)
			if due {
				l.measure(ctx, next, found[next])
				continue
			}
		}
		l.settle()
		if oneRound {
			return
		}
		timer := time.NewTimer(l.rest())
		select {
		case <-timer.C:
		case <-l.woken:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// settle ends the first round.
func (l *Loop) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled {
		l.settled = true
		close(l.first)
	}
}

// keep stores the listing and forgets pods that are gone.
func (l *Loop) keep(found map[string]storageDirs, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err != nil {
		return
	}
	l.listed, l.known, l.dirs = time.Now(), map[string]bool{}, map[string]bool{}
	for uid, dirs := range found {
		if l.known[uid] = true; dirs.pod != "" {
			l.dirs[uid] = true
		}
	}
	for uid := range l.index {
		l.known[uid] = true
	}
	maps.DeleteFunc(l.walker.owners, func(_ quota.Project, uid string) bool { return !l.known[uid] })
	maps.DeleteFunc(l.pods, func(uid string, _ *storage) bool { return !l.known[uid] })
	if l.walker.unnamed != nil {
		l.walker.unnamed.Forget(l.known)
	}
}

// SetPods sets the pods that the runtime reports.
func (l *Loop) SetPods(index podindex.Index) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index = index
	l.rooted = reportsRoots(index)
}

// reportsRoots reports whether the runtime reports the root of a container that has not exited.
func reportsRoots(index podindex.Index) bool {
	for _, p := range index {
		for i := range p.Containers {
			if p.Containers[i].Root != "" {
				return true
			}
		}
	}
	return false
}
