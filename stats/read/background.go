package read

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
)

// How often the sources that may block are asked, and how old an answer may be.
const (
	fsEvery      = time.Second
	fsLimit      = stats.MaxAge
	runtimeEvery = 10 * time.Second
	runtimeLimit = time.Minute // for how much the runtime says its store takes; where the store is, is remembered for good
)

// FsRuntime is what Background asks a container runtime (*cri.Client). Its calls have deadlines of their own.
type FsRuntime interface {
	ImageFsInfo(context.Context) (cri.FsInfo, error)
	ListContainerStats(context.Context) ([]cri.ContainerStats, error)
}

// BackgroundOptions say where things are on the host. Only Host and Runtime have no default.
type BackgroundOptions struct {
	Host       *HostRoot
	Runtime    FsRuntime
	Proc       string // the host's /proc; empty: /proc
	RootDir    string // the kubelet's; empty: /var/lib/kubelet
	PodLogsDir string // empty: /var/log/pods
	Pods       Index  // to begin with, see SetPods
	// Cgroups is a hierarchy that is Background's alone, and CgroupRoot the kubelet's: where pods' processes are found, whose files without a
	// name are looked for while a disk is short. nil: they are not.
	Cgroups    *cgroup.FS
	CgroupRoot string
	Share      float64 // of a core for walking directories, 0 to 1; 0: a hundredth
	NoNetwork  bool    // pods' network figures are not wanted: no descriptor is kept for any
	Lazy       bool    // walk nothing but what is Eager, or while there is a Hurry, or when it is Demanded
	OneRound   bool    // walk everything once, as fast as the disk allows, instead of again and again
}

// Background asks what may block or take long: file systems, the runtime's image store, directories, network namespaces. Each
// source has a goroutine of its own, and one that hangs blinds only its own figures: they grow old and, beyond their limit,
// absent. Make it with StartBackground; Close it.
type Background struct {
	runtime   *source[cri.FsInfo]
	nodeFs    *source[stats.FsStats]
	imageFs   *source[stats.FsStats]
	container *source[stats.FsStats]
	network   *source[networkReading]
	networks  *networks
	storage   *storageLoop
	noNetwork bool
	calm      float64     // share of a core for walking
	hurry     atomic.Bool // a disk is short: walk faster
	cancel    context.CancelFunc
	done      chan struct{} // closed when every goroutine has ended

	mu      sync.Mutex
	stores  stores
	learned chan struct{} // closed once stores are known
}

// stores are the runtime's mount points, as it told last.
type stores struct {
	image, container string // container is empty: on the image store's file system
}

var errNoStore = errors.New("the runtime has not told yet where its images are")

// StartBackground starts asking.
func StartBackground(o BackgroundOptions) *Background {
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	if o.RootDir == "" {
		o.RootDir = "/var/lib/kubelet"
	}
	if o.PodLogsDir == "" {
		o.PodLogsDir = "/var/log/pods"
	}
	if o.Share == 0 {
		o.Share = 0.01
	}
	b := &Background{calm: o.Share, noNetwork: o.NoNetwork, done: make(chan struct{}), learned: make(chan struct{}),
		networks: newNetworks(o.Proc)}
	b.runtime = newSource("image file system of the runtime", runtimeEvery, runtimeLimit, func(ctx context.Context) (cri.FsInfo, error) {
		info, err := o.Runtime.ImageFsInfo(ctx)
		if err == nil {
			err = b.learn(info)
		}
		return info, err
	})
	b.nodeFs = newSource("statfs "+o.RootDir, fsEvery, fsLimit, func(context.Context) (stats.FsStats, error) {
		return o.Host.statNearest(o.RootDir)
	})
	b.imageFs = newSource("statfs of the image store", fsEvery, fsLimit, func(context.Context) (stats.FsStats, error) {
		return o.Host.statFs(b.known().image)
	})
	b.container = newSource("statfs of the container store", fsEvery, fsLimit, func(context.Context) (stats.FsStats, error) {
		if path := b.known().container; path != "" {
			return o.Host.statFs(path)
		}
		return stats.FsStats{}, nil // the runtime has one store
	})
	b.imageFs.err, b.container.err = errNoStore, errNoStore
	b.network = newSource("network of pods", networkEvery, networkLimit, b.networks.read)
	b.storage = newStorageLoop(&storageWalker{host: o.Host, proc: o.Proc, rootDir: o.RootDir, logsDir: o.PodLogsDir,
		uppers: map[string]string{}, runtime: o.Runtime, store: func() string { return b.known().image }}, storageEvery)
	if o.Cgroups != nil {
		b.storage.walker.unnamed = newUnnamedFiles(o.Cgroups, PodRoots(o.CgroupRoot), o.Proc, o.Host, b.disks)
	}
	b.storage.lazy = o.Lazy
	b.networks.setPods(o.Pods)
	b.storage.setPods(o.Pods)
	b.start(o)
	return b
}

func (b *Background) start(o BackgroundOptions) {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	var all sync.WaitGroup
	for _, run := range []func(context.Context){b.runtime.run, b.nodeFs.run} {
		all.Go(func() { run(ctx) })
	}
	for _, run := range []func(context.Context){b.imageFs.run, b.container.run} {
		all.Go(func() {
			select {
			case <-b.learned:
				run(ctx)
			case <-ctx.Done():
			}
		})
	}
	if o.NoNetwork {
		close(b.network.first)
	} else {
		all.Go(func() {
			b.network.run(ctx)
			b.networks.close()
		})
	}
	all.Go(func() {
		yieldDisk()
		clock, f := threadCPU, b.storage.walker.unnamed
		if f != nil {
			defer f.guard.close()
			clock = func() time.Duration { return threadCPU() + f.guard.used() }
		}
		pace := share(b.share, clock)
		if o.OneRound {
			pace = func(ctx context.Context) error { return ctx.Err() }
		}
		b.storage.walker.w = newWalker(pace)
		if f != nil {
			f.pace = pace
		}
		b.storage.run(ctx, o.OneRound)
	})
	go func() { all.Wait(); close(b.done) }()
}

// hurriedShare of a core is what walking may take while a disk is short.
const hurriedShare = 0.2

// share of a core for walking directories.
func (b *Background) share() float64 {
	if b.hurry.Load() {
		return max(b.calm, hurriedShare)
	}
	return b.calm
}

// Hurry has what pods take of the disks measured every few seconds, at up to a fifth of a core, while a disk is short: a victim
// is to be chosen by what is true now.
func (b *Background) Hurry(on bool) {
	if b.hurry.Swap(on) == on {
		return
	}
	b.storage.setHurry(on)
	b.storage.wake()
}

// disks are the devices of the node's file systems.
func (b *Background) disks() map[uint64]bool {
	devices, now := map[uint64]bool{}, time.Now()
	for _, source := range []*source[stats.FsStats]{b.nodeFs, b.imageFs, b.container} {
		if fs, _ := source.get(now); fs.OK && fs.V.Path != "" {
			devices[fs.V.Device] = true
		}
	}
	return devices
}

// Demand has what pods take of the disks measured anew where it was last measured before a time, and Fresh tells whether that is
// done: to be waited for, but not for ever, before a victim is chosen by it.
func (b *Background) Demand(since time.Time) { b.storage.demand(since) }

// Finish has pods walked again at once, and for as long as any is, whose walk from before a time was cut off. Fresh does not wait for that.
func (b *Background) Finish(since time.Time) { b.storage.finish(since) }

// Fresh reports whether no figure of a pod's disk usage is from before a time.
func (b *Background) Fresh(since time.Time) bool { return b.storage.fresh(since) }

// Eager names the pods, by UID, that are measured every ten seconds: those with limits of their own.
func (b *Background) Eager(pods map[string]bool) {
	b.storage.mu.Lock()
	b.storage.eager = pods
	b.storage.mu.Unlock()
	b.storage.wake()
}

// Remeasure has the file systems asked again at once, as after something was removed.
func (b *Background) Remeasure() {
	b.nodeFs.soon()
	b.imageFs.soon()
	b.container.soon()
}

// closePatience is how long Close waits for goroutines. One that the kernel holds in a system call that never returns cannot be
// ended from outside; it ends by itself when the call does.
const closePatience = time.Second

// Close ends all goroutines that can be ended.
func (b *Background) Close() {
	b.cancel()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
	}
}

// learn keeps where the runtime's stores are: they are measured on, whether it answers or not.
func (b *Background) learn(info cri.FsInfo) error {
	if len(info.Images) == 0 || info.Images[0].Mountpoint == "" {
		return errors.New("the runtime names no image file system")
	}
	s := stores{image: info.Images[0].Mountpoint}
	if len(info.Containers) > 0 && info.Containers[0].Mountpoint != s.image {
		s.container = info.Containers[0].Mountpoint
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stores.image == "":
		close(b.learned)
	case b.stores != s: // another place is to be measured
		b.imageFs.soon()
		b.container.soon()
	}
	b.stores = s
	return nil
}

func (b *Background) known() stores {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stores
}

// SetPods tells which pods the runtime knows: whose writable layers and networks are measured. Logs and volumes are found
// without it.
func (b *Background) SetPods(pods Index) {
	b.networks.setPods(pods)
	b.storage.setPods(pods)
}

// WaitFirst waits until every source has answered or failed once, or ctx ends.
func (b *Background) WaitFirst(ctx context.Context) {
	first := []chan struct{}{b.nodeFs.first, b.network.first, b.storage.first}
	if !closed(ctx, b.runtime.first) {
		return
	}
	if b.known().image != "" {
		first = append(first, b.imageFs.first, b.container.first)
	}
	for _, f := range first {
		if !closed(ctx, f) {
			return
		}
	}
}

// closed waits until a channel is; false: ctx ended before.
func closed(ctx context.Context, c chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// WaitNode waits until the file systems of the node were measured once or their sources failed, or ctx ends.
func (b *Background) WaitNode(ctx context.Context) {
	if !closed(ctx, b.nodeFs.first) || !closed(ctx, b.runtime.first) || b.known().image == "" {
		return
	}
	_ = closed(ctx, b.imageFs.first) && closed(ctx, b.container.first)
}

// FillNode adds what is known by now of the node's file systems. It never blocks and does not allocate while all is well.
func (b *Background) FillNode(now time.Time, n *stats.NodeStats) {
	b.fillNodeFrom(now, n)
}

// nodeSources is how the sources of the node's file systems stand.
type nodeSources struct {
	runtime, node, image, container stats.SourceStatus
	split                           bool
}

func (b *Background) fillNodeFrom(now time.Time, n *stats.NodeStats) nodeSources {
	info, runtime := b.runtime.get(now)
	var node, image, container stats.SourceStatus
	n.Fs, node = b.nodeFs.get(now)
	n.ImageFs, image = b.imageFs.get(now)
	n.ContainerFs, container = b.container.get(now)
	store := b.known().container
	split := store != ""
	if !split { // the runtime has one store: the kubelet's containerfs is the imagefs then
		n.ContainerFs = n.ImageFs
	} else if n.ContainerFs.V.Path != store { // measured before the runtime told where it is
		n.ContainerFs = stats.Opt[stats.FsStats]{}
	}
	n.Layout = layout(n.Fs, n.ImageFs, n.ContainerFs, split)
	if info.OK {
		used(&n.ImageFs.V, info.V.Images)
		if split {
			used(&n.ContainerFs.V, info.V.Containers)
		} else {
			n.ContainerFs = n.ImageFs
		}
	}
	return nodeSources{runtime, node, image, container, split}
}

// Fill adds what is known by now to a Summary that Collect has just made, once. It never blocks.
func (b *Background) Fill(now time.Time, out *stats.Summary) {
	from := b.fillNodeFrom(now, &out.Node)
	networks, network := b.network.get(now)
	if network.Err == nil {
		network.Err = networks.V.err
	}
	for i := range out.Pods {
		p := &out.Pods[i]
		if s, ok := networks.V.pods[p.PodRef.UID]; ok {
			p.Network = stats.Some(s)
		}
		b.storage.fill(now, p)
		b.storage.fillUnnamed(now, p, &out.Node)
		// What lies in memory-backed volumes outlives the containers for sure.
		if m, f := p.EphemeralStorage.MemoryVolumesBytes, &p.Memory.FreedBytes; m.OK && f.OK {
			f.V.Max -= min(m.V, f.V.Max-f.V.Min)
		}
	}
	out.Remains = b.storage.remains(out.Remains[:0], out.Pods)
	out.Sources = append(out.Sources[:0], from.runtime, from.node, from.image)
	if !b.noNetwork {
		out.Sources = append(out.Sources, network)
	}
	out.Sources = append(out.Sources, b.storage.status())
	if from.split {
		out.Sources = append(out.Sources, from.container)
	}
}

// Sources are how its sources stand, but for that of networks, by names that stay the same. It is for any goroutine.
func (b *Background) Sources(now time.Time) []stats.SourceStatus {
	var n stats.NodeStats
	from := b.fillNodeFrom(now, &n)
	storage := b.storage.status()
	from.runtime.Name, from.node.Name, from.image.Name, storage.Name = "runtime_imagefs", "nodefs", "imagefs", "pod_storage"
	out := []stats.SourceStatus{from.image, from.node, storage, from.runtime}
	if from.split {
		from.container.Name = "containerfs"
		out = append(out, from.container)
	}
	return out
}

// used takes the runtime's word for how much its store holds.
func used(fs *stats.FsStats, by []cri.FilesystemUsage) {
	for _, u := range by {
		if u.Mountpoint != fs.Path {
			continue
		}
		if u.UsedBytes != nil {
			fs.UsedBytes = stats.Some(*u.UsedBytes)
		}
		if u.InodesUsed != nil {
			fs.InodesUsed = stats.Some(*u.InodesUsed)
		}
	}
}
