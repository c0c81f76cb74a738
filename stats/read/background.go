package read

import (
	"context"
	"sync"
	"time"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/disk"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/network"
	"jettison/stats/read/openfiles"
	"jettison/stats/read/podindex"
)

// FsRuntime is the part of a container runtime that Background queries (*cri.Client). Its calls
// set their own deadlines.
type FsRuntime interface {
	ImageFsInfo(context.Context) (cri.FsInfo, error)
	disk.Runtime
}

// BackgroundOptions locate the sources on the host. Only Host and Runtime have no default.
type BackgroundOptions struct {
	Host       *hostroot.Root
	Runtime    FsRuntime
	Proc       string         // the host's /proc; empty: /proc
	RootDir    string         // the kubelet's; empty: /var/lib/kubelet
	PodLogsDir string         // empty: /var/log/pods
	Pods       podindex.Index // initial pods, see SetPods
	// Cgroups is a hierarchy for Background's use only, and CgroupRoot the kubelet's.
	// Background finds pods' processes there and searches them for files without a name while a
	// disk is short. nil: no search.
	Cgroups    *cgroup.FS
	CgroupRoot string
	Share      float64 // of a core for walking directories, 0 to 1; 0 means 0.01
	NoNetwork  bool    // do not read pods' networks, and keep no descriptors for them
	// walk only the pods set by Eager, and all pods during a Hurry or after a Demand
	Lazy     bool
	OneRound bool // walk everything once, as fast as the disk allows, instead of repeatedly
}

// Background reads sources that may block or take long: file systems, the runtime's image store,
// directories, network namespaces. Each source has its own goroutine, and a source that hangs
// affects only its own values: they become stale and, beyond their maximum age, absent. Create a
// Background with StartBackground, and call Close.
type Background struct {
	files     *fileSystems
	network   *source[network.Reading]
	networks  *network.Networks
	storage   *disk.Loop
	noNetwork bool
	cancel    context.CancelFunc
	done      chan struct{} // closed when every goroutine has ended
}

// StartBackground starts the goroutines of all sources.
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
	b := &Background{files: newFileSystems(o.Host, o.Runtime, o.RootDir),
		networks: network.New(o.Proc), noNetwork: o.NoNetwork,
		done: make(chan struct{})}
	b.network = newSource("network of pods", network.Every, network.Limit, b.networks.Read)
	b.storage = disk.New(storageOptions(&o, b.files))
	b.SetPods(o.Pods)
	b.start(&o)
	return b
}

// storageOptions returns the options of the disk usage loop.
func storageOptions(o *BackgroundOptions, files *fileSystems) disk.Options {
	out := disk.Options{Host: o.Host, Runtime: o.Runtime, Proc: o.Proc, RootDir: o.RootDir,
		PodLogsDir: o.PodLogsDir,
		Store:      func() string { return files.currentStores().image }, Share: o.Share, Lazy: o.Lazy,
		OneRound: o.OneRound}
	if o.Cgroups != nil {
		out.OpenFiles = openfiles.New(o.Cgroups, podindex.PodRoots(o.CgroupRoot), o.Proc, o.Host,
			files.disks)
	}
	return out
}

func (b *Background) start(o *BackgroundOptions) {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	var all sync.WaitGroup
	b.files.start(ctx, &all)
	if o.NoNetwork {
		close(b.network.answered)
	} else {
		all.Go(func() {
			b.network.run(ctx)
			b.networks.Close()
		})
	}
	all.Go(func() { b.storage.Run(ctx) })
	go func() { all.Wait(); close(b.done) }()
}

// Hurry measures pods' disk usage every few seconds, at up to a fifth of a core, while a disk is
// short: the choice of a victim needs current values.
func (b *Background) Hurry(on bool) { b.storage.Hurry(on) }

// Demand requests new measurements of each pod's disk usage that was measured before since. Fresh
// reports when they are complete. The caller waits for them, within a limit, before it chooses a
// victim.
func (b *Background) Demand(since time.Time) { b.storage.Demand(since) }

// Finish immediately repeats the walks that were cut off and began before since, until no such walk
// is left. Fresh does not wait for these walks.
func (b *Background) Finish(since time.Time) { b.storage.Finish(since) }

// Fresh reports whether every pod's disk usage was measured at or after since.
func (b *Background) Fresh(since time.Time) bool { return b.storage.Fresh(since) }

// Eager sets the pods, by UID, that are measured every ten seconds: pods with their own limits.
func (b *Background) Eager(pods map[string]bool) { b.storage.SetEager(pods) }

// Remeasure queries the file systems immediately, for example after a removal.
func (b *Background) Remeasure() { b.files.remeasure() }

// closeTimeout bounds how long Close waits for goroutines. A goroutine in a blocked system call
// cannot be stopped; it ends when the call returns.
const closeTimeout = time.Second

// Close stops all goroutines, except those in a blocked system call.
func (b *Background) Close() {
	b.cancel()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
	}
}

// SetPods sets the pods that the runtime reports. Background measures their writable layers and
// networks. It finds logs and volumes without SetPods.
func (b *Background) SetPods(pods podindex.Index) {
	b.networks.SetPods(pods)
	b.storage.SetPods(pods)
}

// WaitFirst waits until every source has answered or failed once, or ctx ends.
func (b *Background) WaitFirst(ctx context.Context) {
	first := []<-chan struct{}{b.files.node.answered, b.network.answered, b.storage.First()}
	if !waitClosed(ctx, b.files.runtime.answered) {
		return
	}
	if b.files.currentStores().image != "" {
		first = append(first, b.files.image.answered, b.files.container.answered)
	}
	for _, f := range first {
		if !waitClosed(ctx, f) {
			return
		}
	}
}

// waitClosed waits until c is closed and returns false if ctx ends first.
func waitClosed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// WaitNode waits until the node's file systems were measured once or their sources failed, or
// ctx ends.
func (b *Background) WaitNode(ctx context.Context) { b.files.waitNode(ctx) }

// FillNode adds the latest values of the node's file systems. It never blocks, and it allocates
// nothing while no source fails.
func (b *Background) FillNode(now time.Time, n *stats.NodeStats) {
	b.files.fill(now, n)
}

// Fill adds the latest values to a Summary that Collect has just made. Call it once per Summary. It
// never blocks.
func (b *Background) Fill(now time.Time, out *stats.Summary) {
	from := b.files.fill(now, &out.Node)
	networks, network := b.network.get(now)
	if network.Err == nil {
		network.Err = networks.V.Err
	}
	for i := range out.Pods {
		p := &out.Pods[i]
		if s, ok := networks.V.Pods[p.PodRef.UID]; ok {
			p.Network = stats.Some(s)
		}
		b.storage.Fill(now, p)
		b.storage.FillOpenFiles(now, p, &out.Node)
	}
	out.RemainingDirs = b.storage.Remains(out.RemainingDirs[:0], out.Pods)
	out.Sources = append(out.Sources[:0], from.runtime, from.node, from.image)
	if !b.noNetwork {
		out.Sources = append(out.Sources, network)
	}
	out.Sources = append(out.Sources, b.storage.Status())
	if from.split {
		out.Sources = append(out.Sources, from.container)
	}
}

// Sources returns the state of the sources, except networks, under stable names. Any goroutine may
// call it.
func (b *Background) Sources(now time.Time) []stats.SourceStatus {
	var n stats.NodeStats
	from := b.files.fill(now, &n)
	storage := b.storage.Status()
	from.runtime.Name, from.node.Name, from.image.Name, storage.Name = "runtime_imagefs", "nodefs",
		"imagefs", "pod_storage"
	out := []stats.SourceStatus{from.image, from.node, storage, from.runtime}
	if from.split {
		from.container.Name = "containerfs"
		out = append(out, from.container)
	}
	return out
}
