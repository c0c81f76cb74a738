// Package agent is the loop that keeps a node alive: look, decide, act, look again. One goroutine owns all mutable state, in parts: each
// has its own fields and a handler for what it is told. What may block runs beside the loop, in types that cannot reach those fields.
//
//	agent.go      Options, Run: what is begun, in order, and ended
//	loop.go       the loop: it selects, and hands each event to the part that it belongs to
//	look.go       the cheap look and what follows from it; what is done once a second
//	decide.go     the dear looks and the decision, when a threshold asks for a victim
//	gateway.go    the gate in the runtime, and what new pods are decided by
//	preempt.go    pods that go for a critical one
//	deschedule.go pods that should not be here any more
//	capacity.go   what this node has, and thresholds and reservations that it cannot satisfy
//	reload.go     another configuration, while it runs
//	own.go        the agent's own memory, kept from being reclaimed
//	reserve.go    node allocatable, and protection of what pods request, as far as they are written
//	shown.go      conditions in the log, and the State that others read
//	metered.go    what metrics say
//	served.go     what looks and listens for others, beside the unix socket, and where that is
//	outlook.go    whom each threshold would have evicted, for those who ask
//
// The parts:
//
//	internal/looks      reads the node and its pods
//	internal/pace       when to look again
//	internal/wakes      what the kernel tells by itself
//	internal/lister     the runtime's pods
//	internal/admission  whether the node takes a pod
//	internal/gate       what the runtime tells by itself; evicted pods are kept out
//	internal/objects    pod objects: the socket and static manifests
//	internal/priorities pods of unknown priority, counted
//	internal/beside     whether a kubelet is on this node
//	internal/evictions  evictions under way, and their records
//	internal/nodedeschedule pods that should not be here any more
//	internal/squeeze    cold memory, given back before a pod goes
//	internal/garbage    garbage, collected in passes and before a pod goes for a disk
//	internal/rotate     logs of live containers, where no kubelet rotates them
//	internal/limits     node allocatable and memory that pods request, in pods' cgroups
//	internal/trim       memory of the agent's own
//	internal/reload     the configuration, read again
//	internal/kill       the self-test of the kill ladder
//	internal/frames     recordings for jettison replay
package agent

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"jettison/api"
	"jettison/cgroup"
	"jettison/cri"
	"jettison/internal/admission"
	"jettison/internal/advice"
	"jettison/internal/beside"
	"jettison/internal/config"
	"jettison/internal/endpoints"
	"jettison/internal/eventlog"
	"jettison/internal/evictions"
	"jettison/internal/frames"
	"jettison/internal/garbage"
	"jettison/internal/kill"
	"jettison/internal/limits"
	"jettison/internal/lister"
	"jettison/internal/looks"
	"jettison/internal/nodedeschedule"
	"jettison/internal/nodestats"
	"jettison/internal/objects"
	"jettison/internal/pace"
	"jettison/internal/priorities"
	"jettison/internal/protect"
	"jettison/internal/records"
	"jettison/internal/reload"
	"jettison/internal/remove"
	"jettison/internal/repeat"
	"jettison/internal/rotate"
	"jettison/internal/sources"
	"jettison/internal/squeeze"
	"jettison/internal/wakes"

	"jettison/eviction"
	"jettison/stats"
	"jettison/stats/read"
)

// Options of Run.
type Options struct {
	Config *config.Loaded
	// Find reads the configuration again, at a signal of Hangup or when a file has changed; nil: it is never read again.
	Find        func(context.Context) (*config.Loaded, error)
	Hangup      <-chan os.Signal
	CgroupMount string // empty: cgroup.DefaultMount
	ProcMount   string // empty: /proc
	HostRoot    string // the node's root directory; empty: /
	DryRun      bool
	Ladder      kill.Ladder // zero: all of it
	Log         *slog.Logger
	LogDropped  func() uint64 // lines of it that were dropped so far; nil: none ever is
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
	ring := eventlog.NewRing(time.Now())
	o.Log = slog.New(eventlog.NewHandler(ring, o.Log.Handler()))
	refused := protect.Self()
	// Before the first list: either takes megabytes, and what a list has left is given back later.
	pacer := pace.New(pace.MeasureFill(pace.Cores()), pace.Cores())
	b, ran := newBuilder(o, s, ring), false
	defer func() {
		b.close()
		if ran { // whoever waits for the line may kill the process then: all is put back
			b.log.Info("stopped")
		}
	}()
	if err := b.listen(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	l, err := b.build(ctx, pacer)
	if err != nil {
		return err
	}
	b.announce(l, refused)
	b.unlimit(ctx, l)
	b.protect(l)
	b.limit(l)
	l.tryOut(ctx)
	for _, err := range protect.Lock() {
		l.log.Warn("not as it should be", "error", err)
	}
	l.warmUp(time.Now()) // what a decision takes is in memory from now on
	b.s.Reader.Beside()
	ctx, cancel := context.WithCancel(ctx)
	b.later(cancel)
	l.onObjects() // what was handed over meanwhile counts at the first look already
	l.upkeep.unknown.Start()
	b.later(l.pods.Start(ctx))
	b.later(l.wakes.Start())
	l.admission(time.Now()) // before the runtime asks
	b.later(l.gate.Start(ctx))
	b.later(cancel)
	b.mend(l)
	b.resume(ctx, l, time.Now())
	if o.Find != nil {
		b.closing(l.upkeep.reload.Start(reload.Options{Find: o.Find, Asks: o.Hangup}))
	}
	l.run(ctx)
	l.evictions.Interrupted()
	cancel()
	l.end()
	ran = true
	return nil
}

// builder opens what the parts of the loop need, and closes it in the opposite order.
type builder struct {
	o       Options
	s       *sources.Sources
	log     *repeat.Logger
	closers []func()

	shown     *shown
	meter     *meter
	admission *admission.Admission
	named     *garbage.Named
	objects   *objects.Objects
	endpoints *endpoints.Endpoints
	taker     *nodestats.Taker
	recording *frames.Recording
	manager   *eviction.Manager
	lister    *lister.Lister
	runtime   string // its name and version
	pods      read.Index
	host      *read.HostRoot   // nil: the host's root directory cannot be opened
	presence  *beside.Presence // of a kubelet
	keeper    *records.Keeper
	queue     *records.Queue
	state     records.State // of the process before this one
	running   []api.Record
	doubts    []error
	left      limits.Left // in cgroups of pods, by the process before this one
}

func newBuilder(o Options, s *sources.Sources, ring *eventlog.Ring) *builder {
	b := &builder{
		o: o, s: s, log: repeat.New(o.Log), shown: newShown(o, s.Client.Endpoint()), manager: eviction.NewManager(o.Config.Eviction()),
		admission: admission.New(o.Config.Eviction().Policy),
	}
	b.meter, b.queue = &meter{o: o, shown: b.shown}, records.NewQueue()
	b.endpoints = endpoints.New(endpoints.Options{
		Turned: b.shown.turned, Events: ring, Records: b.queue, Metrics: b.meter.metrics, Stats: b.stats(), State: b.shown.forOthers,
		Kubelet: b.shown.kubelet.Load, Pprof: o.Config.Pprof,
	})
	b.objects = objects.New(objects.Options{
		Socket: o.Config.Socket, Group: o.Config.SocketGroup, Manifests: objects.ManifestPath(o.HostRoot, o.Config.StaticPodPath),
		State: b.shown.forOthers, Outlook: b.shown.outlook.ask, Admission: b.admission, Reads: b.endpoints, Log: b.log,
		OnManifests: func() { b.named.OnManifests() }, OnDoubt: func(time.Time) { b.named.OnManifestDoubt() },
	})
	b.named = garbage.NewNamed(b.objects.All, o.Config.StaticPodPath != "")
	b.lister = lister.New(s.Client, b.objects.Store().SetRuntime)
	return b
}

// later has something closed at the end, before all that was said so far.
func (b *builder) later(closer func()) { b.closers = append(b.closers, closer) }

func (b *builder) close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

// closing has something closed at the end that may not succeed.
func (b *builder) closing(closer func() error) {
	b.later(func() {
		if err := closer(); err != nil {
			b.log.Warn("stopping", "error", err)
		}
	})
}

// listen opens what others reach the agent by, and waits for the runtime's first answer: without one list of its pods it is not known
// which are protected, so this comes before the first look.
func (b *builder) listen(ctx context.Context) error {
	stop, err := b.objects.Start()
	if err != nil {
		return err
	}
	b.later(stop)
	if b.recording, err = frames.StartRecording(b.o.Config.Record, b.o.Log); err != nil {
		return err
	}
	b.closing(func() error { return b.recording.Close(time.Second) })
	if err := b.serve(); err != nil {
		return err
	}
	limit := time.Duration(b.o.Config.RuntimeWait)
	version, listing, err := sources.FirstAnswer(ctx, b.askedOf(ctx), limit, func(why string) {
		b.log.Warn("waiting for the container runtime's first answer: nothing is watched until then",
			"endpoint", b.s.Client.Endpoint(), "error", why, "runtimeWait", limit)
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	b.runtime, b.pods = version.Name+" "+version.Version, read.NewIndex(listing)
	b.objects.Store().SetRuntime(b.pods)
	return nil
}

// askedOf says whom to ask for the runtime's first answer: before each attempt but the first it is looked for once more, unless somebody
// has said which it is. From that answer on it stays the same.
func (b *builder) askedOf(ctx context.Context) func() (*cri.Client, *cri.Lister) {
	say := func() {
		b.log.Info("container runtime", "endpoint", b.s.Client.Endpoint(), "from", b.o.Config.EndpointFrom)
	}
	first := true
	return func() (*cri.Client, *cri.Lister) {
		if first {
			say()
		} else if b.o.Config.FindRuntimeAgain(ctx) && b.s.Redial(b.o.Config) == nil { // which is an endpoint of ours: it is no error
			b.lister, b.shown.endpoint = lister.New(b.s.Client, b.objects.Store().SetRuntime), b.s.Client.Endpoint()
			say()
		}
		first = false
		return b.s.Client, b.lister.Client()
	}
}

// build makes the loop of its parts.
func (b *builder) build(ctx context.Context, pacer *pace.Pacer) (*loop, error) {
	o, c := b.o, b.o.Config
	l := &loop{
		o: o, log: b.log, manager: b.manager, objects: b.objects, recording: b.recording, shown: b.shown,
		pace: pacer,
	}
	b.watch(l)
	l.upkeep.stats = b.taker
	l.upkeep.deschedule = nodedeschedule.NewPart(time.Now(), b.log)
	l.upkeep.reload = reload.NewPart(time.Now(), c, b.log)
	l.upkeep.unknown = priorities.New(priorities.Options{Policy: c.Eviction().Policy, Self: b.s.Reader.Self, Log: b.log})
	l.pods = lister.NewPods(b.lister, b.log, l.onPods)
	l.gate = b.gateway(l)
	l.looks = looks.New(looks.Options{
		Reader: b.s.Reader, Background: b.background(), Tasks: b.manager.Watches(stats.SignalPIDAvailable), All: b.recording.On(), Log: b.log,
	})
	l.wakes = wakes.New(wakes.Options{
		FS: b.s.FS, ProcMount: o.ProcMount, CgroupRoot: c.CgroupRoot, Log: b.log, Ref: l.pods.Ref, Name: l.pods.Name,
	})
	l.upkeep.trial = kill.NewTrial(b.s.FS, b.s.Reader.Self, b.log)
	pin := b.killer()
	b.keep(time.Now())
	if err := b.keeper.Foreign(); err != nil && !o.DryRun { // two would kill twice, and neither would know of the other's
		return nil, err
	}
	b.leave()
	b.collect(l, time.Now())
	l.relief.memory = b.squeeze(l)
	l.upkeep.rotation = b.rotation()
	l.evictions = evictions.New(evictions.Options{
		Manager: b.manager, Client: b.s.Client, Pin: pin, Host: b.host, Remover: b.remover(), Pods: l.pods, Gate: l.gate.Gate,
		Squeeze: l.relief.memory, Keeper: b.keeper, Advice: advice.New(l.pace.Fill(), b.log), Log: b.log, DryRun: o.DryRun,
		Kubelet: l.kubelet.Found, Look: b.kubelet, StillMet: l.stillMet, NotKilled: b.recording.NotKilled, OnCleaned: l.onCleaned,
	})
	b.metered(l)
	l.pods.OnListed(lister.Update{Pods: b.pods})
	var err error
	b.doubts, err = l.checkCapacity(ctx)
	return l, err
}

// watch prepares to look for a kubelet.
func (b *builder) watch(l *loop) {
	var err error
	b.presence, err = beside.OpenPresence(beside.PresenceOptions{
		ProcMount: b.o.ProcMount, StateDir: b.o.Config.StateDir, ReadOnly: b.o.DryRun,
	})
	if err != nil {
		b.log.Warn("what was kept is not whole", "error", err)
	}
	l.kubelet = beside.NewWatch(beside.WatchOptions{
		Presence: b.presence, Log: b.o.Log, Fields: func() []any { return []any{"disk", l.diskMode()} },
	})
	b.closing(func() error { return l.kubelet.Close(time.Second) })
}

// background opens the host's root directory and measures below it; nil: it cannot.
func (b *builder) background() *read.Background {
	host, err := read.OpenHostRoot(b.o.HostRoot)
	if err != nil {
		b.log.Warn("file systems and disk usage are not measured: name the node's root directory with --host-root", "error", err)
		return nil
	}
	b.host = host                               // it stays open: a file system that hangs may hold a goroutine on it
	cgroups, err := cgroup.Open(b.s.FS.Mount()) // likewise
	if err != nil {
		b.log.Warn("files without a name that pods keep open are not found", "error", err)
	}
	background := read.StartBackground(read.BackgroundOptions{
		Cgroups: cgroups, CgroupRoot: b.o.Config.CgroupRoot,
		Host: host, Runtime: b.s.Client, Proc: b.o.ProcMount, RootDir: b.o.Config.RootDir, PodLogsDir: b.o.Config.PodLogsDir,
		Pods: b.pods, NoNetwork: true, Lazy: !b.recording.On(),
	})
	b.later(background.Close)
	b.taker.SetBackground(background)
	return background
}

// killer starts the threads that free what victims leave. A dry run kills no pod.
func (b *builder) killer() (pin func(*stats.PodStats) (*kill.Victim, error)) {
	if b.o.DryRun {
		return func(p *stats.PodStats) (*kill.Victim, error) { return kill.Pin(b.s.FS, p) }
	}
	killer := kill.New(kill.Options{FS: b.s.FS, Ladder: b.o.Ladder, Held: b.s.Reader.Held})
	for _, err := range killer.Refused() {
		b.log.Warn("not as it should be", "error", err)
	}
	b.closing(killer.Close)
	return killer.Pin
}

// keep begins to write records and state. A dry run only leaves records of what it would have done.
func (b *builder) keep(now time.Time) {
	b.keeper, b.state, b.running = records.StartKeeper(now, records.KeeperOptions{
		Dir: b.o.Config.StateDir, Proc: cmp.Or(b.o.ProcMount, "/proc"), Agent: b.o.Version, Log: b.log, DryRun: b.o.DryRun,
		Queue: b.queue,
	})
	b.closing(b.keeper.Close)
}

// collect begins to collect garbage. A dry run collects none.
func (b *builder) collect(l *loop, now time.Time) {
	c := b.o.Config
	l.relief.disk = garbage.NewPart(garbage.PartOptions{
		Log: b.log, Named: b.named, Mode: c.GC, Kubelet: l.kubelet.Found, Remeasure: l.remeasure,
	})
	if b.o.DryRun {
		return
	}
	b.later(l.relief.disk.Start(garbage.Options{
		Collect: c.Collect(), Runtime: b.s.Client, Kubelet: b.presence.Look, ProcMount: b.o.ProcMount, Host: b.host,
		CgroupMount: b.s.FS.Mount(), StateDir: c.StateDir, Started: now,
	}, garbage.Schedule{
		Started: now, Containers: time.Duration(c.ContainerGCPeriod), Images: time.Duration(c.ImageGCPeriod), Jitter: rand.Float64(),
		Detect: true,
	}))
}

// kubelet looks for one now, for what runs beside the loop.
func (b *builder) kubelet() bool {
	found, _ := b.presence.Look()
	return found
}

// squeeze starts what has pods give back cold memory. A dry run does not.
func (b *builder) squeeze(l *loop) *squeeze.Loop {
	if b.o.DryRun {
		return nil
	}
	node := squeeze.Node{Need: l.need, Available: l.available, Swap: l.swap}
	loop, stop := squeeze.StartLoop(b.o.CgroupMount, b.o.Config.CgroupRoot, node, b.log)
	b.later(stop)
	return loop
}

// rotation rotates logs; nil: it does not.
func (b *builder) rotation() *rotate.Rotation {
	c := b.o.Config
	if b.host == nil || b.o.DryRun || c.LogMaxBytes < 0 {
		return nil
	}
	return rotate.NewRotation(rotate.Rotator{
		Host: b.host, Runtime: b.s.Client, PodLogsDir: c.PodLogsDir, MaxSize: c.LogMaxBytes, MaxFiles: int(c.ContainerLogMaxFiles),
		Kubelet: b.kubelet,
	}, b.log)
}

// remover deletes and unmounts on the host.
func (b *builder) remover() remove.Remover {
	return remove.Remover{
		Host: b.host, RootDir: b.o.Config.RootDir, PodLogsDir: b.o.Config.PodLogsDir, Proc: filepath.Join(cmp.Or(b.o.ProcMount, "/proc"), "1"),
	}
}

// announce logs what the agent starts with, and once each thing that it has to do without.
func (b *builder) announce(l *loop, refused []error) {
	c, reader := b.o.Config, l.looks.Reader()
	selfErr := reader.FindSelf()
	var thresholds []string
	for _, t := range c.Thresholds {
		thresholds = append(thresholds, t.String())
	}
	l.kubelet.LookNow()
	b.log.Info("started", "version", b.o.Version, "runtime", b.runtime, "endpoint", b.s.Client.Endpoint(), "cgroup", b.s.FS.Mount(),
		"thresholds", thresholds, "memoryAvailable", c.MemoryAvailable, "config", c.From, "dryRun", b.o.DryRun,
		"self", reader.Self(), "kubelet", l.kubelet.Found(), "disk", l.diskMode(), "fillFloor", int64(l.pace.Fill()))
	for _, w := range c.Warnings {
		b.log.Warn("config: " + w)
	}
	for _, err := range append(refused, b.doubts...) {
		b.log.Warn("not as it should be", "error", err)
	}
	if selfErr != nil {
		b.log.Warn("the agent's own pod is not known: only its namespace or priority protects it", "error", selfErr)
	}
	if text := sources.NoPressure(b.o.ProcMount); text != "" {
		b.log.Warn(text)
	}
	if len(thresholds) == 0 {
		b.log.Warn("no threshold is set: nothing will be evicted but pods over limits of their own")
	} else if !watchesMemory(c.Config) {
		sayUnwatched(b.log, c.From)
	}
}

// protect keeps the agent's memory from being reclaimed, and undoes at the end what would outlive the agent.
func (b *builder) protect(l *loop) {
	own := l.looks.Reader().Self()
	if own == "" || b.o.DryRun {
		return
	}
	apart, err := protect.Apart(b.s.FS, own)
	b.closing(apart)
	if err != nil {
		b.log.Warn("not as it should be", "error", err)
	}
	o := &ownMemory{fs: b.s.FS, cgroup: own, log: b.log, above: !l.kubelet.Found() && !b.left.Protection}
	o.raise()
	b.closing(o.close)
	l.upkeep.own = o
}

// mend puts back what the process before this one has left in pods' cgroups, if it crashed in the middle of a kill. A pod that dies still,
// and is taken up by resume, dies all the same.
func (b *builder) mend(l *loop) {
	if b.o.DryRun {
		return
	}
	var paths []string
	l.looks.Reader().EachPod(func(_, path string) { paths = append(paths, path) })
	mended, err := kill.Mend(b.s.FS, paths)
	if len(mended) > 0 {
		b.log.Info("put back what a crash has left in pods' cgroups", "cgroups", mended)
	}
	if err != nil {
		b.log.Warn("not as it should be", "error", err)
	}
}

// resume goes on where the process before this one was: it was killed, it crashed, or it was told to stop in the middle of an eviction.
func (b *builder) resume(ctx context.Context, l *loop, now time.Time) {
	l.gate.Resume(now, b.state.HoldOffs)
	for _, err := range b.manager.Resume(now, b.state.Manager) {
		b.log.Warn("what was kept is not whole", "error", err)
	}
	lives := b.manager.Lives()
	for _, life := range lives { // the state of an older agent has no signal in its hold-offs
		l.gate.For(life.Eviction().Pod.PodRef.UID, life.Eviction().Signal)
	}
	n := len(lives)
	going := l.evictions.Resume(ctx, now, b.running)
	if n+len(b.state.HoldOffs)+len(b.state.Manager.Aside) > 0 {
		b.log.Info("going on where the agent was", "evictions", going, "heldOff", len(b.state.HoldOffs),
			"setAside", len(b.state.Manager.Aside), "savedAt", b.state.Time)
	}
}
