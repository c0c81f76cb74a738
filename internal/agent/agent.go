// Package agent is the loop: look, decide, act, look again. One goroutine owns all state; others wait for what may block (the
// runtime, file systems, the end of a victim) and hand it what they learn. Run waits for all of them when it ends.
//
//	agent.go       Run, and the loop
//	look.go        the cheap look, many times a second; the slow one, each second
//	decide.go      the dear look and the decision, when a threshold asks for a victim
//	evict.go       evictions under way
//	ladder.go      what kills, and whether it works here
//	condition.go   conditions and thresholds, as they are logged
//	capacity.go    thresholds that this node cannot satisfy
//	wake.go        what the kernel tells by itself
//	limit.go       pods at limits of their own
//	gate.go        what the runtime tells by itself; evicted pods are kept out
//	squeeze.go     cold memory, given back before a pod goes
//	rotate.go      logs of live containers, where no kubelet rotates them
//	collect.go     garbage: collected in passes, and before a pod goes for a disk
//	growth.go      what else grows
//	objects.go     the socket and static manifests: pod objects
//	keep.go        records of evictions, and what a restart must not lose
//	resume.go      going on after a restart
//	record.go      frames of what was seen, for jettison replay
//	advice.go      how much headroom this node needs
//	pace.go        when the next cheap look is due
//	runtime.go     the watcher, which lists the runtime's pods
//	state.go       State, as others may read it
//	describe.go    decisions in words
package agent

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cgroup"
	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/internal/beside"
	"jettison/internal/collect"
	"jettison/internal/config"
	"jettison/internal/frames"
	"jettison/internal/kill"
	"jettison/internal/podstore"
	"jettison/internal/protect"
	"jettison/internal/records"
	"jettison/internal/sources"
	"jettison/stats"
	"jettison/stats/read"
)

// Times of the loop.
const (
	poll         = 100 * time.Millisecond // between two cheap looks while a threshold is met and nobody is found to evict
	slowTick     = time.Second            // between two slow looks
	period       = 10 * time.Second       // between two full looks that are made whatever is met
	kubeletEvery = time.Minute            // between two searches for a kubelet; one comes before each eviction that is for disks, too
	unannounced  = 50 * time.Millisecond  // how long a kill waits for the runtime to name a pod that only the kernel knows
	cleanGrace   = 3 * time.Second        // for the runtime to clean up once the agent is told to stop
	stopLimit    = 5 * time.Second        // for all that is under way to end then
	repeatLog    = 10 * time.Second       // between two lines that say the same
)

// asks bounds how often the runtime is asked about one pod that only the kernel knows: a cgroup may be left behind by a pod
// that is gone for good.
const asks = 5

// Options of Run.
type Options struct {
	Config      *config.Loaded
	CgroupMount string // empty: cgroup.DefaultMount
	ProcMount   string // empty: /proc
	HostRoot    string // the node's root directory; empty: /
	DryRun      bool
	Ladder      kill.Ladder // zero: all of it
	Log         *slog.Logger
	Version     string
}

// Run checks what the agent needs, waits for the runtime's first answer and then keeps the node alive until ctx ends. It
// returns an error only for what was wrong at the start.
func Run(ctx context.Context, o Options) error {
	s, err := sources.Open(sources.Options{Config: o.Config, CgroupMount: o.CgroupMount, ProcMount: o.ProcMount, Act: !o.DryRun})
	if err != nil {
		return err
	}
	defer s.Close()
	refused := protect.Self()
	a := newAgent(o, s)
	closeSocket, err := a.serve(ctx)
	if err != nil {
		return err
	}
	defer closeSocket()
	closeRecord, err := a.startRecord()
	if err != nil {
		return err
	}
	defer closeRecord()
	// Without one list of the runtime nobody knows which pods are protected, so this comes before the first look.
	runtime, listing, err := sources.FirstAnswer(ctx, s.Client, a.watcher.lister, time.Duration(o.Config.RuntimeWait))
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	pods := read.NewIndex(listing)
	a.store.SetRuntime(pods)
	a.listed(update{pods: pods})
	a.paces[0].floor = measureFill(cores())
	a.paces[1].floor, a.paces[2].floor = a.paces[0].floor, forkFloor*float64(cores())
	stop := a.startBackground()
	defer stop()
	closeKiller := a.startKiller()
	defer closeKiller()
	kept, running, closeKeeper := a.startKeeping(time.Now())
	defer closeKeeper()
	closeCollector := a.startCollector(time.Now())
	defer closeCollector()
	stopSqueezer := a.startSqueezer()
	defer stopSqueezer()
	doubts, err := a.checkCapacity(ctx)
	if err != nil {
		return err
	}
	a.announce(runtime.Name+" "+runtime.Version, append(refused, doubts...))
	unprotect := a.protect()
	defer unprotect()
	a.rehearse(ctx)
	for _, err := range protect.Lock() {
		a.log.Warn("not as it should be", "error", err)
	}
	a.rehearsal(time.Now()) // what a decision takes is in memory from now on
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.known(a.store.Snapshot()) // what was handed over meanwhile counts at the first look already
	go a.watcher.run(ctx)
	stopWatch := a.startWatch()
	defer stopWatch()
	waitGate := a.startGate(ctx)
	defer waitGate()
	defer cancel()
	a.resume(ctx, time.Now(), kept, running)
	a.loop(ctx)
	a.interrupted()
	cancel()
	a.await()
	<-a.watcher.done
	o.Log.Info("stopped")
	return nil
}

// await waits for the goroutines of evictions, which have cleanGrace to end. One that the kernel holds, in a file system that hangs,
// is left behind.
func (a *agent) await() {
	done := make(chan struct{})
	go func() { a.evictions.Wait(); close(done) }()
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		a.log.Warn("stopping", "error", "an eviction does not end: a file system that hangs")
	}
}

// agent is the loop's state. Everything in it belongs to the loop's goroutine but what is said otherwise.
type agent struct {
	*sources.Sources
	o          Options
	log        *slog.Logger
	manager    *eviction.Manager
	watcher    *watcher
	store      *podstore.Store
	host       *read.HostRoot   // nil: the host's root directory cannot be opened
	background *read.Background // nil: likewise

	pods    read.Index               // the runtime's: what it listed last, and what it told its plugin since
	objects map[string]*eviction.Pod // that somebody told of, by UID
	lost    bool                     // the runtime did not answer last time
	node    stats.NodeStats          // each part as last read
	summary stats.Summary            // of the last look at pods
	limited bool                     // one of the objects has limits on local storage
	kubelet bool                     // one is on this node, as last looked for
	looked  time.Time                // for it

	finder    beside.Finder
	searching bool        // for a kubelet, beside the loop
	search    chan search // one slot: what that has found
	growth    growth
	ladder    ladderTest
	squeezing
	rotating  bool             // beside the loop
	rotatedAt time.Time        // when that last began
	rotated   chan rotation    // one slot: what it did
	paces     [len(quick)]pace // of quick, in its order

	pin     func(*stats.PodStats) (*kill.Victim, error)
	keeper  *records.Writer // nil: nothing is kept
	bootID  string
	changed bool // what is kept for a restart

	collector        *collect.Collector // nil: no garbage is collected
	runner           *collect.Runner    // likewise
	collected        chan collect.Result
	garbageSaid      map[string]string                    // what was last logged of passes, by kind
	ended            chan struct{}                        // closed when the loop takes no results any more
	holding          bool                                 // garbage collection waits for evictions
	evictedPods      atomic.Pointer[map[string]time.Time] // when they were cleaned up; never written again
	manifestsRead    atomic.Bool                          // of the manifests' goroutine, as the next
	manifestsDoubted atomic.Int64                         // when one could not be read, in nanoseconds since 1970

	advice   advice
	lastKill time.Time

	conditions map[eviction.Condition]conditionState
	underway   map[string]*underway // evictions until their effect is known, by pod UID
	history    []Evicted            // the last ones, oldest first
	stopped    string               // why the breaker holds back; empty: it does not
	missed     bool                 // the victim was gone before it could be pinned
	lives      map[*eviction.Life]*underway
	ready      eviction.Ready

	blind  map[string]string          // errors of sources, as logged
	unseen map[stats.Signal]time.Time // signals that are not observed, since when
	said   map[string]time.Time       // what was logged when, of lines that repeat
	asked  map[string]int             // pods that only the kernel knows, by UID: how often the runtime was asked about them

	events    chan event       // from the goroutines of evictions
	requests  chan chan *State // for the state, see state.go
	evictions sync.WaitGroup   // goroutines of evictions and of searches

	kernel    *cgroup.Watcher      // nil: it wakes nobody
	wake      cgroup.Wake          // scratch
	pressed   time.Time            // when a pressure trigger fired last
	looks     uint64               // cheap ones that were made
	lastLook  time.Time            // when the last one was
	limits    map[string]*ownLimit // pods whose event files are watched, by UID
	swept     time.Time            // when it was last checked that they are the same cgroups
	wanted    map[string]bool      // scratch of watchCgroups
	watchedAt time.Time            // when that last did something
	unwatched bool                 // a pod's events are not watched for the moment
	// watchedBefore: a pod that is not watched yet is new, or has a new cgroup.
	watchedBefore bool
	trimmed       time.Time // when memory was last given back
	untrimmed     bool      // the runtime was listed since, or garbage collected
	counted       time.Time // when the hierarchy was last searched for pods that nobody told of

	plugin               *nri.Plugin // nil: there is none
	fromList, fromEvents read.Index  // what pods is made of
	synced, saidNRI      bool
	holds                nri.HoldOffs       // read by the plugin too
	held                 map[string]heldOff // who was kept out, by UID

	recorder   *frames.Recorder  // nil: nothing is recorded
	recorded   time.Time         // the last frame's
	killErrors map[string]string // of pods that did not die since the last frame, by UID
	metBefore  []string          // thresholds that were met at the last look
	nodeName   string            // in frames
}

func newAgent(o Options, s *sources.Sources) *agent {
	c, store := o.Config, podstore.New()
	return &agent{
		Sources: s, o: o, log: o.Log, watcher: newWatcher(s.Client, store.SetRuntime), store: store,
		conditions: map[eviction.Condition]conditionState{}, underway: map[string]*underway{}, lives: map[*eviction.Life]*underway{},
		blind: map[string]string{}, unseen: map[stats.Signal]time.Time{}, said: map[string]time.Time{}, asked: map[string]int{}, killErrors: map[string]string{}, limits: map[string]*ownLimit{}, wanted: map[string]bool{}, held: map[string]heldOff{},
		manager: eviction.NewManager(eviction.Config{
			Thresholds: c.Thresholds, MemoryAvailable: c.MemoryAvailable,
			Policy:                   eviction.Policy{AnnotationNamespaces: c.AnnotationNamespaces, ProtectedNamespaces: c.ProtectedNamespaces},
			MaxPodGracePeriodSeconds: int64(c.EvictionMaxPodGracePeriod), PressureTransitionPeriod: time.Duration(c.EvictionPressureTransitionPeriod),
			LocalStorage: c.LocalStorageCapacityIsolation, Breaker: c.Breaker,
		}),
		ladder:    ladderTest{test: kill.SelfTest, done: make(chan kill.Report, 1)},
		collected: make(chan collect.Result), ended: make(chan struct{}),
		pin:    func(p *stats.PodStats) (*kill.Victim, error) { return kill.Pin(s.FS, p) },
		events: make(chan event, 64), requests: make(chan chan *State), search: make(chan search, 1), rotated: make(chan rotation, 1),
	}
}

// startBackground opens the host's root directory and measures below it. The returned function ends that.
func (a *agent) startBackground() (stop func()) {
	host, err := read.OpenHostRoot(a.o.HostRoot)
	if err != nil {
		a.log.Warn("file systems and disk usage are not measured: name the node's root directory with --host-root", "error", err)
		return func() {}
	}
	a.host = host
	a.background = read.StartBackground(read.BackgroundOptions{
		Host: host, Runtime: a.Client, Proc: a.o.ProcMount, RootDir: a.o.Config.RootDir, PodLogsDir: a.o.Config.PodLogsDir,
		Pods: a.pods, NoNetwork: true, Lazy: a.recorder == nil,
	})
	return a.background.Close // the host's root stays open: a file system that hangs may hold a goroutine on it
}

// announce logs what the agent starts with, and once each thing that it has to do without.
func (a *agent) announce(runtime string, refused []error) {
	selfErr := a.Reader.FindSelf()
	var thresholds []string
	for _, t := range a.o.Config.Thresholds {
		thresholds = append(thresholds, t.String())
	}
	a.lookForKubelet()
	a.log.Info("started", "version", a.o.Version, "runtime", runtime, "endpoint", a.Client.Endpoint(), "cgroup", a.FS.Mount(),
		"thresholds", thresholds, "memoryAvailable", a.o.Config.MemoryAvailable, "config", a.o.Config.Path, "dryRun", a.o.DryRun,
		"self", a.Reader.Self(), "kubelet", a.kubelet, "disk", a.diskMode(), "fillFloor", int64(a.paces[0].floor))
	for _, w := range a.o.Config.Warnings {
		a.log.Warn("config: " + w)
	}
	for _, err := range refused {
		a.log.Warn("not as it should be", "error", err)
	}
	if selfErr != nil {
		a.log.Warn("the agent's own pod is not known: only its namespace or priority protects it", "error", selfErr)
	}
	if text := sources.NoPressure(a.o.ProcMount); text != "" {
		a.log.Warn(text)
	}
	if len(thresholds) == 0 {
		a.log.Warn("no threshold is set: nothing will be evicted but pods over limits of their own")
	}
}

// search is what a search for a kubelet has found.
type search struct {
	found bool
	why   string
}

// lookForKubelet finds out whether one takes care of the disks. It takes the longer the more processes there are, tens of
// milliseconds for a few thousand.
func (a *agent) lookForKubelet() { a.searched(a.lookFor()) }

func (a *agent) lookFor() search {
	found, why := a.finder.Kubelet(a.o.ProcMount)
	return search{found, why}
}

// searchKubelet does the same beside the loop, which gets what is found, now and then: at most one is under way.
func (a *agent) searchKubelet(now time.Time) {
	if a.searching || now.Sub(a.looked) < kubeletEvery {
		return
	}
	a.searching = true
	a.evictions.Go(func() { a.search <- a.lookFor() })
}

func (a *agent) searched(s search) {
	a.looked = time.Now()
	if s.found == a.kubelet {
		return
	}
	a.kubelet = s.found
	a.log.Info("kubelet", "beside", s.found, "evidence", s.why, "disk", a.diskMode())
}

// observeDisks: disk signals only set conditions.
func (a *agent) observeDisks() bool { return a.diskMode() == "observe" }

func (a *agent) diskMode() string {
	switch mode := a.o.Config.Disk; {
	case mode != "":
		return mode
	case a.kubelet:
		return "observe"
	}
	return "act"
}

// loop is the agent's life.
func (a *agent) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	slow := time.NewTicker(slowTick)
	defer slow.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-a.watcher.updates:
			a.listed(u)
			continue
		case u := <-a.gateUpdates():
			a.told(u)
			continue
		case <-a.wakes():
			now := time.Now()
			if !a.woken(now) {
				continue
			}
			if rest := soonest - now.Sub(a.lastLook); rest > 0 { // however many wakes there are, looks are as far apart as ever
				timer.Reset(rest)
				continue
			}
		case <-a.store.Changed():
			a.known(a.store.Snapshot())
			continue
		case reply := <-a.requests:
			reply <- a.state(time.Now())
			continue
		case r := <-a.rotated:
			a.hasRotated(r)
			continue
		case r := <-a.ladder.done:
			a.rehearsedLate(ctx, r)
			continue
		case s := <-a.search:
			a.searching = false
			a.searched(s)
			continue
		case r := <-a.collected:
			a.garbage(time.Now(), &r)
		case e := <-a.squeezed():
			a.hasSqueezed(time.Now(), e)
		case e := <-a.events:
			a.happened(time.Now(), e)
		case <-slow.C:
			a.slow(time.Now())
			a.rotateLogs(ctx, time.Now())
			a.rehearseLate(ctx)
		case <-timer.C:
		}
		a.look(ctx, time.Now())
		timer.Reset(a.due())
	}
}

// due is how long the next cheap look may wait.
func (a *agent) due() time.Duration {
	r := a.manager.Ready(time.Now())
	due := r.Within
	for i := range quick {
		due = min(due, a.paces[i].next(r.Headroom[i].Left))
	}
	return min(due, a.pressedDue())
}

var quick = eviction.Quick

// listed takes an answer of the runtime. Its loss and its return are logged once each.
func (a *agent) listed(u update) {
	if u.err != nil {
		if !a.lost {
			a.log.Warn("lost the runtime, going on with what the kernel tells", "error", u.err)
		}
		a.lost = true
		return
	}
	if a.lost {
		a.log.Info("the runtime is back")
	}
	a.lost, a.untrimmed = false, true
	a.fromList = u.pods
	a.join()
}
