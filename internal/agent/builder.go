package agent

import (
	"cmp"
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"jettison/api"
	"jettison/cgroup"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/agent/admission"
	"jettison/internal/agent/evictions"
	"jettison/internal/agent/logrotate"
	"jettison/internal/agent/looks"
	"jettison/internal/agent/nodestats"
	"jettison/internal/agent/objects"
	"jettison/internal/agent/objects/kubeletpods"
	"jettison/internal/agent/pace"
	"jettison/internal/agent/podlister"
	"jettison/internal/agent/reload"
	"jettison/internal/agent/serve/endpoints"
	"jettison/internal/agent/serve/eventlog"
	"jettison/internal/agent/squeeze"
	"jettison/internal/agent/thresholdadvice"
	"jettison/internal/agent/wakes"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/frames"
	"jettison/internal/node/garbage"
	"jettison/internal/node/kill"
	"jettison/internal/node/kubeletdetect"
	"jettison/internal/node/limits"
	"jettison/internal/node/nodedescheduler"
	"jettison/internal/node/podfiles"
	"jettison/internal/node/priorities"
	"jettison/internal/node/records"
	"jettison/internal/node/sources"
	"jettison/stats"
	"jettison/stats/read"
)

// builder creates the resources of the loop's parts, and closes them in reverse order.
type builder struct {
	o       Options
	s       *sources.Sources
	log     *logthrottle.Logger
	closers []func()

	publisher *publisher
	meter     *meter
	admission *admission.Admission
	named     *garbage.Named
	objects   *objects.Objects
	endpoints *endpoints.Endpoints
	taker     *nodestats.Taker
	recording *frames.Recording
	manager   *eviction.Manager
	lister    *podlister.Lister
	runtime   string // its name and version
	pods      read.Index
	host      *read.HostRoot          // nil: the host's root directory cannot be opened
	presence  *kubeletdetect.Presence // of a kubelet
	keeper    *records.Keeper
	queue     *records.Queue
	doubts    []error
	before    inherited
}

// inherited is the state that the previous process left.
type inherited struct {
	state   records.State
	running []api.Record     // of evictions in progress
	left    limits.Remaining // in cgroups of pods
}

func newBuilder(o Options, s *sources.Sources, ring *eventlog.Ring) *builder {
	b := &builder{
		o: o, s: s, log: logthrottle.New(o.Log), publisher: newPublisher(o, s.Client.Endpoint()),
		manager:   eviction.NewManager(o.Config.Eviction()),
		admission: admission.New(o.Config.Eviction().Policy),
	}
	b.meter, b.queue = &meter{o: o, publisher: b.publisher}, records.NewQueue()
	b.endpoints = endpoints.New(endpoints.Options{
		LoopAge: b.publisher.lastTurn, Events: ring, Records: b.queue, Metrics: b.meter.metrics,
		Stats: b.stats(), State: b.publisher.currentState,
		Kubelet: b.publisher.kubelet.Load, Pprof: o.Config.Pprof,
	})
	b.publisher.outlook = newOutlook(b.taker)
	b.objects = objects.New(objects.Options{
		Socket: o.Config.Socket, Group: o.Config.SocketGroup, Manifests: objects.ManifestPath(o.HostRoot,
			o.Config.StaticPodPath),
		State: b.publisher.currentState, Outlook: b.publisher.outlook.ask, Admission: b.admission,
		Reads: b.endpoints, Log: b.log,
		Kubelet:     kubeletpods.Path(o.HostRoot, o.Config.RootDir),
		OnManifests: func() { b.named.OnManifests() },
		OnDoubt:     func(time.Time) { b.named.OnManifestDoubt() },
	})
	b.named = garbage.NewNamed(b.objects.Provided, o.Config.StaticPodPath != "")
	b.lister = b.newLister()
	return b
}

// newLister returns a lister of the runtime's current client.
func (b *builder) newLister() *podlister.Lister {
	l := podlister.New(b.s.Client, b.objects.Store().SetRuntime)
	l.SetOutside(sources.Options{Config: b.o.Config, ProcMount: b.o.ProcMount}.OutsideFinder(b.s.Client))
	return l
}

// onClose registers a closer, which is called before all earlier ones.
func (b *builder) onClose(closer func()) { b.closers = append(b.closers, closer) }

func (b *builder) close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

// onCloseErr registers a closer that may fail.
func (b *builder) onCloseErr(closer func() error) {
	b.onClose(func() {
		if err := closer(); err != nil {
			b.log.Warn("agent stop incomplete", "error", err)
		}
	})
}

// listen opens the agent's listeners and waits for the runtime's first list. Without it the agent
// does not know which pods are protected, so this comes before the first look.
func (b *builder) listen(ctx context.Context) error {
	stop, err := b.objects.Start()
	if err != nil {
		return err
	}
	b.onClose(stop)
	if b.recording, err = frames.StartRecording(b.o.Config.Record, b.o.Log); err != nil {
		return err
	}
	b.onCloseErr(func() error { return b.recording.Close(time.Second) })
	if err := b.serve(); err != nil {
		return err
	}
	limit := time.Duration(b.o.Config.RuntimeWait)
	version, listing, err := sources.FirstAnswer(ctx, b.runtimeSelector(ctx), limit, func(why string) {
		//log: The container runtime has not answered yet. The agent watches nothing until then, and gives
		//  up after runtimeWait if that is set.
		//do: Start the container runtime, or correct its endpoint in the configuration. See the key
		//  error.
		b.log.Warn("waiting for container runtime",
			api.EventRuntime.Attr(),
			"endpoint", b.s.Client.Endpoint(), "error", why, "runtimeWait", limit)
	})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	b.runtime, b.pods = version.Name+" "+version.Version, b.lister.Index(listing)
	b.objects.Store().SetRuntime(b.pods)
	return nil
}

// runtimeSelector returns a function that selects the runtime for each attempt at the first answer.
// Unless the configuration names the runtime, it is detected again before each attempt except the
// first. It stays the same after that answer.
func (b *builder) runtimeSelector(ctx context.Context) func() (*cri.Client, *cri.Lister) {
	log := func() {
		//log: The agent uses the container runtime at this endpoint. The key from gives the source of the
		//  choice.
		b.log.Info("using container runtime", "endpoint", b.s.Client.Endpoint(),
			"from", b.o.Config.EndpointFrom)
	}
	first := true
	return func() (*cri.Client, *cri.Lister) {
		if first {
			log()
		} else if b.o.Config.RefindRuntime(ctx) &&
			b.s.Redial(b.o.Config) == nil { // the endpoint is detected by the agent, so failing is no error
			b.lister, b.publisher.endpoint = b.newLister(), b.s.Client.Endpoint()
			log()
		}
		first = false
		return b.s.Client, b.lister.Client()
	}
}

// build creates the loop and its parts.
func (b *builder) build(ctx context.Context, pacer *pace.Pacer) (*loop, error) {
	o, c := b.o, b.o.Config
	l := &loop{
		o: o, log: b.log, manager: b.manager, objects: b.objects, recording: b.recording,
		publisher: b.publisher, pace: pacer,
	}
	b.openPresence(l)
	l.upkeep.stats = b.taker
	l.upkeep.deschedule = nodedescheduler.New(time.Now(), b.log)
	l.upkeep.reload = reload.NewPart(time.Now(), c, b.log)
	l.upkeep.unknown = priorities.New(priorities.Options{Policy: c.Eviction().Policy,
		Self: b.s.Reader.Self, Log: b.log})
	l.pods = podlister.NewPods(b.lister, b.log, l.onPods)
	l.gate = b.gateway(l)
	l.looks = looks.New(looks.Options{
		Reader: b.s.Reader, Background: b.startBackground(),
		Tasks: b.manager.Watches(stats.SignalPIDAvailable), All: b.recording.On(), Log: b.log,
	})
	l.wakes = wakes.New(wakes.Options{
		FS: b.s.FS, ProcMount: o.ProcMount, CgroupRoot: c.CgroupRoot, Log: b.log, Ref: l.pods.Ref,
		Name: l.pods.Name,
	})
	l.upkeep.trial = kill.NewTrial(b.s.FS, b.s.Reader.Self, b.log)
	pin := b.startKiller()
	b.startKeeper(time.Now())
	// two agents would each kill a pod, without knowing of the other
	if err := b.keeper.LockedByOther(); err != nil && !o.DryRun {
		return nil, err
	}
	b.storeSocketPath()
	b.startGarbage(l, time.Now())
	l.relief.memory = b.startReclaim(l)
	l.upkeep.rotation = b.rotation()
	l.evictions = evictions.New(evictions.Options{
		Manager: b.manager, Client: b.s.Client, Pin: pin, Host: b.host, Remover: b.remover(),
		Pods: l.pods, Gate: l.gate.Gate,
		Squeeze: l.relief.memory, Keeper: b.keeper, Advice: thresholdadvice.New(l.pace.Fill(), b.log),
		Log: b.log, DryRun: o.DryRun,
		Kubelet: l.kubelet.Found, KubeletNow: b.kubeletNow, StillMet: l.stillMet,
		NotKilled: b.recording.AddKillError,
		OnCleaned: l.onCleaned,
		Blame:     func(p *stats.PodStats) { l.looks.Reader().Blame(l.pods.All(), p) },
	})
	b.collectCounts(l)
	l.pods.OnListed(podlister.Update{Pods: b.pods})
	var err error
	b.doubts, err = l.checkCapacity(ctx)
	return l, err
}

// openPresence prepares the detection of a kubelet.
func (b *builder) openPresence(l *loop) {
	var err error
	b.presence, err = kubeletdetect.OpenPresence(kubeletdetect.PresenceOptions{
		ProcMount: b.o.ProcMount, StateDir: b.o.Config.StateDir, ReadOnly: b.o.DryRun,
	})
	if err != nil {
		b.log.Warn("saved state incomplete", "error", err)
	}
	l.kubelet = kubeletdetect.NewWatch(kubeletdetect.WatchOptions{
		Presence: b.presence, Log: b.o.Log, Fields: func() []any { return []any{"disk", l.diskMode()} },
	})
	b.onCloseErr(func() error { return l.kubelet.Close(time.Second) })
}

// startBackground opens the host's root directory and starts the measurements below it; nil if it
// cannot be opened.
func (b *builder) startBackground() *read.Background {
	host, err := read.OpenHostRoot(b.o.HostRoot)
	if err != nil {
		//log: The node's root directory could not be opened. Disk signals and disk usage of pods are not
		//  available.
		//do: Set --host-root to the node's root directory as mounted in the agent's container.
		b.log.Warn("disk usage not measured", api.EventSource.Attr(), "error", err)
		return nil
	}
	// it stays open: a goroutine may block on a file system that hangs
	b.host = host
	cgroups, err := cgroup.Open(b.s.FS.Mount()) // it stays open, too
	if err != nil {
		//log: The cgroups could not be opened to search for deleted files that pods keep open. Their disk
		//  usage is not assigned to pods.
		//do: See the key error.
		b.log.Warn("deleted open files not measured", api.EventSource.Attr(),
			"error", err)
	}
	background := read.StartBackground(read.BackgroundOptions{
		Cgroups: cgroups, CgroupRoot: b.o.Config.CgroupRoot,
		Host: host, Runtime: b.s.Client, Proc: b.o.ProcMount, RootDir: b.o.Config.RootDir,
		PodLogsDir: b.o.Config.PodLogsDir,
		Pods:       b.pods, NoNetwork: true, Lazy: !b.recording.On(),
	})
	b.onClose(background.Close)
	b.taker.SetBackground(background)
	return background
}

// startKiller starts the threads that free victims' memory. A dry run kills no pod.
func (b *builder) startKiller() (pin func(*stats.PodStats) (*kill.Victim, error)) {
	if b.o.DryRun {
		return func(p *stats.PodStats) (*kill.Victim, error) { return kill.Pin(b.s.FS, p) }
	}
	killer := kill.New(kill.Options{
		FS: b.s.FS, Ladder: b.o.Ladder, Held: b.s.Reader.DupCgroup, Proc: b.o.ProcMount,
		NoMonitors: strings.HasPrefix(b.runtime, "containerd "),
	})
	for _, err := range killer.Refused() {
		b.log.Warn("self-protection incomplete", "error", err)
	}
	b.onCloseErr(killer.Close)
	return killer.Pin
}

// startKeeper starts to write records and state. A dry run writes only records of evictions that it
// would have begun.
func (b *builder) startKeeper(now time.Time) {
	b.keeper, b.before.state, b.before.running = records.StartKeeper(now, records.KeeperOptions{
		Dir: b.o.Config.StateDir, Proc: cmp.Or(b.o.ProcMount, "/proc"), Agent: b.o.Version, Log: b.log,
		DryRun: b.o.DryRun,
		Queue:  b.queue,
	})
	b.onCloseErr(b.keeper.Close)
}

// startGarbage starts garbage collection. A dry run collects none.
func (b *builder) startGarbage(l *loop, now time.Time) {
	c := b.o.Config
	l.relief.disk = garbage.NewPart(garbage.PartOptions{
		Log: b.log, Named: b.named, Mode: c.GC, Kubelet: l.kubelet.Found, Remeasure: l.remeasure,
	})
	if b.o.DryRun {
		return
	}
	b.onClose(l.relief.disk.Start(garbage.Options{
		Collect: c.Collect(), Runtime: b.s.Client, Kubelet: b.presence.Look, ProcMount: b.o.ProcMount,
		Host:        b.host,
		CgroupMount: b.s.FS.Mount(), StateDir: c.StateDir, Started: now,
	}, garbage.Schedule{
		Started: now, Containers: time.Duration(c.ContainerGCPeriod),
		Images: time.Duration(c.ImageGCPeriod), Jitter: rand.Float64(),
		Detect: true,
	}))
}

// kubeletNow checks now whether a kubelet runs, for code outside of the loop.
func (b *builder) kubeletNow() bool {
	found, _ := b.presence.Look()
	return found
}

// startReclaim starts proactive reclaim; nil in a dry run.
func (b *builder) startReclaim(l *loop) *squeeze.Loop {
	if b.o.DryRun {
		return nil
	}
	node := squeeze.Node{Need: l.need, Available: l.available, Swap: l.swap}
	loop, stop := squeeze.StartLoop(b.o.CgroupMount, b.o.Config.CgroupRoot, node, b.log)
	b.onClose(stop)
	return loop
}

// rotation returns the log rotation; nil if it is disabled.
func (b *builder) rotation() *logrotate.Rotation {
	c := b.o.Config
	if b.host == nil || b.o.DryRun || c.LogMaxBytes < 0 {
		return nil
	}
	return logrotate.NewRotation(logrotate.Rotator{
		Host: b.host, Runtime: b.s.Client, PodLogsDir: c.PodLogsDir, MaxSize: c.LogMaxBytes,
		MaxFiles: int(c.ContainerLogMaxFiles),
		Kubelet:  b.kubeletNow,
	}, b.log)
}

// remover returns the Remover for files and mounts of the host.
func (b *builder) remover() podfiles.Remover {
	return podfiles.Remover{
		Host: b.host, RootDir: b.o.Config.RootDir, PodLogsDir: b.o.Config.PodLogsDir,
		Proc: filepath.Join(cmp.Or(b.o.ProcMount, "/proc"), "1"),
	}
}
