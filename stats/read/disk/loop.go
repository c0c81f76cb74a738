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

// Runtime is what is asked of a container runtime (*cri.Client). Its calls have deadlines of their
// own.
type Runtime interface {
	ListContainerStats(context.Context) ([]cri.ContainerStats, error)
}

// Options say where things are on the host, and how they are measured. OpenFiles and Store may be
// nil.
type Options struct {
	Host       *hostroot.Root
	Runtime    Runtime
	Proc       string        // the host's /proc
	RootDir    string        // the kubelet's
	PodLogsDir string        // where it keeps the logs of pods
	Store      func() string // where the runtime says that its images are; empty: not known yet
	// finds the files without a name while a disk is short. Its end is that of Run
	OpenFiles *openfiles.Finder
	Share     float64 // of a core for walking directories, 0 to 1
	Lazy      bool    // only pods that SetEager names, in a Hurry, or on Demand
	OneRound  bool    // everything once, as fast as the disk allows
}

// Loop has a storageWalker measure all pods again and again, and keeps what it found.
type Loop struct {
	walker *storageWalker
	every  time.Duration // a pod's figures are renewed when they are older
	lazy   bool          // only on demand, in a hurry, or of pods that are measured often
	once   bool          // every pod is measured once, at full speed
	calm   float64       // share of a core for walking

	short atomic.Bool // a disk is short: walk faster

	mu       sync.Mutex
	hurry    bool
	demanded time.Time // figures from before that are renewed at once
	// and those of walks from before that which were cut off by one in the longest turn
	whole   time.Time
	eager   map[string]bool // UIDs of pods that are measured often
	woken   chan struct{}   // one slot: something is due
	pods    map[string]*storage
	index   podindex.Index
	known   map[string]bool // UIDs of all pods there are to measure
	dirs    map[string]bool // of those that have a directory of their own, beside that of their logs
	listed  time.Time       // when the pods' directories were last listed; zero: never
	err     error           // of that
	began   time.Time       // start of the round under way; zero: none is
	round   time.Duration   // measuring all pods that were due took, the last time
	doing   string          // UID of the pod being walked; empty: none is
	since   time.Time       // that
	until   time.Time       // its turn ends
	hurried bool            // it began in a hurry
	end     *time.Timer     // ends it; nil: none was begun
	settled bool            // first is closed
	// closed when every pod that was found at first is measured, or they cannot be listed
	first chan struct{}
}

func newStorageLoop(w *storageWalker, every time.Duration) *Loop {
	return &Loop{walker: w, every: every, woken: make(chan struct{}, 1), pods: map[string]*storage{},
		first: make(chan struct{})}
}

// New makes a loop that measures nothing before Run.
func New(o Options) *Loop {
	l := newStorageLoop(&storageWalker{host: o.Host, proc: o.Proc, rootDir: o.RootDir,
		logsDir: o.PodLogsDir,
		uppers:  map[string]string{}, runtime: o.Runtime, store: o.Store, unnamed: o.OpenFiles},
		storageEvery)
	l.lazy, l.once, l.calm = o.Lazy, o.OneRound, o.Share
	return l
}

// storageEvery is the age at which a pod's storage is measured again.
const storageEvery = time.Minute

// Run measures until ctx ends, on a thread of its own whose disk accesses come after all others.
func (l *Loop) Run(ctx context.Context) {
	walk.YieldDisk()
	clock, f := walk.ThreadCPU, l.walker.unnamed
	if f != nil {
		defer f.Close()
		clock = func() time.Duration { return walk.ThreadCPU() + f.CPUTime() }
	}
	pace := walk.Share(l.share, clock)
	if l.once {
		pace = func(ctx context.Context) error { return ctx.Err() }
	}
	l.walker.w = walk.New(pace)
	if f != nil {
		f.SetPace(pace)
	}
	l.run(ctx, l.once)
}

// First is closed when every pod that was found at first is measured, or they cannot be listed.
func (l *Loop) First() <-chan struct{} { return l.first }

func (l *Loop) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// run measures until ctx ends. oneRound: until all pods are measured once.
func (l *Loop) run(ctx context.Context, oneRound bool) {
	for ctx.Err() == nil {
		found, err := l.walker.find()
		l.keep(found, err)
		if err == nil { // with a part of the directories only, good figures would make way for half ones
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

// keep forgets pods that are gone.
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

// SetPods tells which pods the runtime knows.
func (l *Loop) SetPods(index podindex.Index) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index = index
}
