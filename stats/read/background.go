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

// FsRuntime is what Background asks a container runtime (*cri.Client). Its calls have deadlines of
// their own.
type FsRuntime interface {
	ImageFsInfo(context.Context) (cri.FsInfo, error)
	ListContainerStats(context.Context) ([]cri.ContainerStats, error)
}

// BackgroundOptions say where things are on the host. Only Host and Runtime have no default.
type BackgroundOptions struct {
	Host       *hostroot.Root
	Runtime    FsRuntime
	Proc       string         // the host's /proc; empty: /proc
	RootDir    string         // the kubelet's; empty: /var/lib/kubelet
	PodLogsDir string         // empty: /var/log/pods
	Pods       podindex.Index // to begin with, see SetPods
	// Cgroups is a hierarchy that is Background's alone, and CgroupRoot the kubelet's: where pods'
	// processes are found, whose files without a name are looked for while a disk is short. nil: they
	// are not.
	Cgroups    *cgroup.FS
	CgroupRoot string
	Share      float64 // of a core for walking directories, 0 to 1; 0: a hundredth
	NoNetwork  bool    // pods' network figures are not wanted: no descriptor is kept for any
	// walk nothing but what is Eager, or while there is a Hurry, or when it is Demanded
	Lazy     bool
	OneRound bool // walk everything once, as fast as the disk allows, instead of again and again
}

// Background asks what may block or take long: file systems, the runtime's image store,
// directories, network namespaces. Each source has a goroutine of its own, and one that hangs
// blinds only its own figures: they grow old and, beyond their limit, absent. Make it with
// StartBackground; Close it.
type Background struct {
	files     *fileSystems
	network   *source[network.Reading]
	networks  *network.Networks
	storage   *disk.Loop
	noNetwork bool
	cancel    context.CancelFunc
	done      chan struct{} // closed when every goroutine has ended
}

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
	b := &Background{files: newFileSystems(o.Host, o.Runtime, o.RootDir),
		networks: network.New(o.Proc), noNetwork: o.NoNetwork,
		done: make(chan struct{})}
	b.network = newSource("network of pods", network.Every, network.Limit, b.networks.Read)
	b.storage = disk.New(storageOptions(&o, b.files))
	b.SetPods(o.Pods)
	b.start(&o)
	return b
}

// storageOptions are those for measuring what pods take of the disks.
func storageOptions(o *BackgroundOptions, files *fileSystems) disk.Options {
	out := disk.Options{Host: o.Host, Runtime: o.Runtime, Proc: o.Proc, RootDir: o.RootDir,
		PodLogsDir: o.PodLogsDir,
		Store:      func() string { return files.known().image }, Share: o.Share, Lazy: o.Lazy,
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
		close(b.network.first)
	} else {
		all.Go(func() {
			b.network.run(ctx)
			b.networks.Close()
		})
	}
	all.Go(func() { b.storage.Run(ctx) })
	go func() { all.Wait(); close(b.done) }()
}

// Hurry has what pods take of the disks measured every few seconds, at up to a fifth of a core,
// while a disk is short: a victim is to be chosen by what is true now.
func (b *Background) Hurry(on bool) { b.storage.Hurry(on) }

// Demand has what pods take of the disks measured anew where it was last measured before a time,
// and Fresh tells whether that is done: to be waited for, but not for ever, before a victim is
// chosen by it.
func (b *Background) Demand(since time.Time) { b.storage.Demand(since) }

// Finish has pods walked again at once, and for as long as any is, whose walk from before a time
// was cut off. Fresh does not wait for that.
func (b *Background) Finish(since time.Time) { b.storage.Finish(since) }

// Fresh reports whether no figure of a pod's disk usage is from before a time.
func (b *Background) Fresh(since time.Time) bool { return b.storage.Fresh(since) }

// Eager names the pods, by UID, that are measured every ten seconds: those with limits of their
// own.
func (b *Background) Eager(pods map[string]bool) { b.storage.SetEager(pods) }

// Remeasure has the file systems asked again at once, as after something was removed.
func (b *Background) Remeasure() { b.files.remeasure() }

// closePatience is how long Close waits for goroutines. One that the kernel holds in a system call
// that never returns cannot be ended from outside; it ends by itself when the call does.
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

// SetPods tells which pods the runtime knows: whose writable layers and networks are measured. Logs
// and volumes are found without it.
func (b *Background) SetPods(pods podindex.Index) {
	b.networks.SetPods(pods)
	b.storage.SetPods(pods)
}

// WaitFirst waits until every source has answered or failed once, or ctx ends.
func (b *Background) WaitFirst(ctx context.Context) {
	first := []<-chan struct{}{b.files.node.first, b.network.first, b.storage.First()}
	if !closed(ctx, b.files.runtime.first) {
		return
	}
	if b.files.known().image != "" {
		first = append(first, b.files.image.first, b.files.container.first)
	}
	for _, f := range first {
		if !closed(ctx, f) {
			return
		}
	}
}

// closed waits until a channel is; false: ctx ended before.
func closed(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// WaitNode waits until the file systems of the node were measured once or their sources failed, or
// ctx ends.
func (b *Background) WaitNode(ctx context.Context) { b.files.waitNode(ctx) }

// FillNode adds what is known by now of the node's file systems. It never blocks and does not
// allocate while all is well.
func (b *Background) FillNode(now time.Time, n *stats.NodeStats) {
	b.files.fill(now, n)
}

// Fill adds what is known by now to a Summary that Collect has just made, once. It never blocks.
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
	out.Remains = b.storage.Remains(out.Remains[:0], out.Pods)
	out.Sources = append(out.Sources[:0], from.runtime, from.node, from.image)
	if !b.noNetwork {
		out.Sources = append(out.Sources, network)
	}
	out.Sources = append(out.Sources, b.storage.Status())
	if from.split {
		out.Sources = append(out.Sources, from.container)
	}
}

// Sources are how its sources stand, but for that of networks, by names that stay the same. It is
// for any goroutine.
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
