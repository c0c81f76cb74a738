package agent

import (
	"cmp"
	"context"
	"math/rand/v2"
	"path/filepath"
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

// builder opens what the parts of the loop need, and closes it in the opposite order.
type builder struct {
	o       Options
	s       *sources.Sources
	log     *logthrottle.Logger
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

// inherited is what the process before this one has left.
type inherited struct {
	state   records.State
	running []api.Record // of evictions that were under way
	left    limits.Left  // in cgroups of pods
}

func newBuilder(o Options, s *sources.Sources, ring *eventlog.Ring) *builder {
	b := &builder{
		o: o, s: s, log: logthrottle.New(o.Log), shown: newShown(o, s.Client.Endpoint()),
		manager:   eviction.NewManager(o.Config.Eviction()),
		admission: admission.New(o.Config.Eviction().Policy),
	}
	b.meter, b.queue = &meter{o: o, shown: b.shown}, records.NewQueue()
	b.endpoints = endpoints.New(endpoints.Options{
		Turned: b.shown.turned, Events: ring, Records: b.queue, Metrics: b.meter.metrics,
		Stats: b.stats(), State: b.shown.forOthers,
		Kubelet: b.shown.kubelet.Load, Pprof: o.Config.Pprof,
	})
	b.objects = objects.New(objects.Options{
		Socket: o.Config.Socket, Group: o.Config.SocketGroup, Manifests: objects.ManifestPath(o.HostRoot,
			o.Config.StaticPodPath),
		State: b.shown.forOthers, Outlook: b.shown.outlook.ask, Admission: b.admission,
		Reads: b.endpoints, Log: b.log,
		Kubelet:     kubeletpods.Path(o.HostRoot, o.Config.RootDir),
		OnManifests: func() { b.named.OnManifests() },
		OnDoubt:     func(time.Time) { b.named.OnManifestDoubt() },
	})
	b.named = garbage.NewNamed(b.objects.All, o.Config.StaticPodPath != "")
	b.lister = podlister.New(s.Client, b.objects.Store().SetRuntime)
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

// listen opens what others reach the agent by, and waits for the runtime's first answer: without
// one list of its pods it is not known which are protected, so this comes before the first look.
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
			api.EventRuntime.Attr(),
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

// askedOf says whom to ask for the runtime's first answer: before each attempt but the first it is
// looked for once more, unless somebody has said which it is. From that answer on it stays the
// same.
func (b *builder) askedOf(ctx context.Context) func() (*cri.Client, *cri.Lister) {
	say := func() {
		b.log.Info("container runtime", "endpoint", b.s.Client.Endpoint(),
			"from", b.o.Config.EndpointFrom)
	}
	first := true
	return func() (*cri.Client, *cri.Lister) {
		if first {
			say()
		} else if b.o.Config.FindRuntimeAgain(ctx) &&
			b.s.Redial(b.o.Config) == nil { // which is an endpoint of ours: it is no error
			b.lister, b.shown.endpoint = podlister.New(b.s.Client, b.objects.Store().SetRuntime),
				b.s.Client.Endpoint()
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
	l.upkeep.deschedule = nodedescheduler.NewPart(time.Now(), b.log)
	l.upkeep.reload = reload.NewPart(time.Now(), c, b.log)
	l.upkeep.unknown = priorities.New(priorities.Options{Policy: c.Eviction().Policy,
		Self: b.s.Reader.Self, Log: b.log})
	l.pods = podlister.NewPods(b.lister, b.log, l.onPods)
	l.gate = b.gateway(l)
	l.looks = looks.New(looks.Options{
		Reader: b.s.Reader, Background: b.background(),
		Tasks: b.manager.Watches(stats.SignalPIDAvailable), All: b.recording.On(), Log: b.log,
	})
	l.wakes = wakes.New(wakes.Options{
		FS: b.s.FS, ProcMount: o.ProcMount, CgroupRoot: c.CgroupRoot, Log: b.log, Ref: l.pods.Ref,
		Name: l.pods.Name,
	})
	l.upkeep.trial = kill.NewTrial(b.s.FS, b.s.Reader.Self, b.log)
	pin := b.killer()
	b.keep(time.Now())
	// two would kill twice, and neither would know of the other's
	if err := b.keeper.Foreign(); err != nil && !o.DryRun {
		return nil, err
	}
	b.leave()
	b.collect(l, time.Now())
	l.relief.memory = b.squeeze(l)
	l.upkeep.rotation = b.rotation()
	l.evictions = evictions.New(evictions.Options{
		Manager: b.manager, Client: b.s.Client, Pin: pin, Host: b.host, Remover: b.remover(),
		Pods: l.pods, Gate: l.gate.Gate,
		Squeeze: l.relief.memory, Keeper: b.keeper, Advice: thresholdadvice.New(l.pace.Fill(), b.log),
		Log: b.log, DryRun: o.DryRun,
		Kubelet: l.kubelet.Found, Look: b.kubelet, StillMet: l.stillMet, NotKilled: b.recording.NotKilled,
		OnCleaned: l.onCleaned,
		Blame:     func(p *stats.PodStats) { l.looks.Reader().Blame(l.pods.All(), p) },
	})
	b.metered(l)
	l.pods.OnListed(podlister.Update{Pods: b.pods})
	var err error
	b.doubts, err = l.checkCapacity(ctx)
	return l, err
}

// watch prepares to look for a kubelet.
func (b *builder) watch(l *loop) {
	var err error
	b.presence, err = kubeletdetect.OpenPresence(kubeletdetect.PresenceOptions{
		ProcMount: b.o.ProcMount, StateDir: b.o.Config.StateDir, ReadOnly: b.o.DryRun,
	})
	if err != nil {
		b.log.Warn("what was kept is not whole", "error", err)
	}
	l.kubelet = kubeletdetect.NewWatch(kubeletdetect.WatchOptions{
		Presence: b.presence, Log: b.o.Log, Fields: func() []any { return []any{"disk", l.diskMode()} },
	})
	b.closing(func() error { return l.kubelet.Close(time.Second) })
}

// background opens the host's root directory and measures below it; nil: it cannot.
func (b *builder) background() *read.Background {
	host, err := read.OpenHostRoot(b.o.HostRoot)
	if err != nil {
		b.log.Warn("file systems and disk usage are not measured: name the node's root directory with "+
			"--host-root", api.EventSource.Attr(), "error", err)
		return nil
	}
	// it stays open: a file system that hangs may hold a goroutine on it
	b.host = host
	cgroups, err := cgroup.Open(b.s.FS.Mount()) // likewise
	if err != nil {
		b.log.Warn("files without a name that pods keep open are not found", api.EventSource.Attr(),
			"error", err)
	}
	background := read.StartBackground(read.BackgroundOptions{
		Cgroups: cgroups, CgroupRoot: b.o.Config.CgroupRoot,
		Host: host, Runtime: b.s.Client, Proc: b.o.ProcMount, RootDir: b.o.Config.RootDir,
		PodLogsDir: b.o.Config.PodLogsDir,
		Pods:       b.pods, NoNetwork: true, Lazy: !b.recording.On(),
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
	b.keeper, b.before.state, b.before.running = records.StartKeeper(now, records.KeeperOptions{
		Dir: b.o.Config.StateDir, Proc: cmp.Or(b.o.ProcMount, "/proc"), Agent: b.o.Version, Log: b.log,
		DryRun: b.o.DryRun,
		Queue:  b.queue,
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
		Collect: c.Collect(), Runtime: b.s.Client, Kubelet: b.presence.Look, ProcMount: b.o.ProcMount,
		Host:        b.host,
		CgroupMount: b.s.FS.Mount(), StateDir: c.StateDir, Started: now,
	}, garbage.Schedule{
		Started: now, Containers: time.Duration(c.ContainerGCPeriod),
		Images: time.Duration(c.ImageGCPeriod), Jitter: rand.Float64(),
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
func (b *builder) rotation() *logrotate.Rotation {
	c := b.o.Config
	if b.host == nil || b.o.DryRun || c.LogMaxBytes < 0 {
		return nil
	}
	return logrotate.NewRotation(logrotate.Rotator{
		Host: b.host, Runtime: b.s.Client, PodLogsDir: c.PodLogsDir, MaxSize: c.LogMaxBytes,
		MaxFiles: int(c.ContainerLogMaxFiles),
		Kubelet:  b.kubelet,
	}, b.log)
}

// remover deletes and unmounts on the host.
func (b *builder) remover() podfiles.Remover {
	return podfiles.Remover{
		Host: b.host, RootDir: b.o.Config.RootDir, PodLogsDir: b.o.Config.PodLogsDir,
		Proc: filepath.Join(cmp.Or(b.o.ProcMount, "/proc"), "1"),
	}
}
