package read

import (
	"context"
	"errors"
	"sync"
	"time"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/hostroot"
)

// How often the sources that may block are asked, and how old an answer may be.
const (
	fsEvery      = time.Second
	fsLimit      = stats.MaxAge
	runtimeEvery = 10 * time.Second
	// for how much the runtime says its store takes; where the store is, is remembered for good
	runtimeLimit = time.Minute
)

// stores are the runtime's mount points, as it told last.
type stores struct {
	image, container string // container is empty: on the image store's file system
}

var errNoStore = errors.New("the runtime has not told yet where its images are")

// fileSystems are the sources of the node's file systems: the kubelet's, and those of the runtime's
// stores.
type fileSystems struct {
	runtime   *source[cri.FsInfo]
	node      *source[stats.FsStats]
	image     *source[stats.FsStats]
	container *source[stats.FsStats]

	mu      sync.Mutex
	stores  stores
	learned chan struct{} // closed once stores are known
}

// newFileSystems makes the sources. rootDir is the kubelet's.
func newFileSystems(host *hostroot.Root, runtime FsRuntime, rootDir string) *fileSystems {
	f := &fileSystems{learned: make(chan struct{})}
	f.runtime = newSource("image file system of the runtime", runtimeEvery, runtimeLimit,
		func(ctx context.Context) (cri.FsInfo, error) {
			info, err := runtime.ImageFsInfo(ctx)
			if err == nil {
				err = f.learn(info)
			}
			return info, err
		})
	f.node = newSource("statfs "+rootDir, fsEvery, fsLimit, func(context.Context) (stats.FsStats,
		error) {
		return host.StatNearest(rootDir)
	})
	f.image = newSource("statfs of the image store", fsEvery, fsLimit,
		func(context.Context) (stats.FsStats, error) {
			return host.StatFs(f.known().image)
		})
	f.container = newSource("statfs of the container store", fsEvery, fsLimit,
		func(context.Context) (stats.FsStats, error) {
			if path := f.known().container; path != "" {
				return host.StatFs(path)
			}
			return stats.FsStats{}, nil // the runtime has one store
		})
	f.image.err, f.container.err = errNoStore, errNoStore
	return f
}

// start begins a goroutine for each source. Those of the stores wait until the runtime has said
// where they are.
func (f *fileSystems) start(ctx context.Context, all *sync.WaitGroup) {
	for _, run := range []func(context.Context){f.runtime.run, f.node.run} {
		all.Go(func() { run(ctx) })
	}
	for _, run := range []func(context.Context){f.image.run, f.container.run} {
		all.Go(func() {
			select {
			case <-f.learned:
				run(ctx)
			case <-ctx.Done():
			}
		})
	}
}

// waitNode waits until they were measured once or their sources failed, or ctx ends.
func (f *fileSystems) waitNode(ctx context.Context) {
	if !closed(ctx, f.node.first) || !closed(ctx, f.runtime.first) || f.known().image == "" {
		return
	}
	_ = closed(ctx, f.image.first) && closed(ctx, f.container.first)
}

// disks are the devices of the node's file systems.
func (f *fileSystems) disks() map[uint64]bool {
	devices, now := map[uint64]bool{}, time.Now()
	for _, source := range []*source[stats.FsStats]{f.node, f.image, f.container} {
		if fs, _ := source.get(now); fs.OK && fs.V.Path != "" {
			devices[fs.V.Device] = true
		}
	}
	return devices
}

// remeasure has them asked again at once.
func (f *fileSystems) remeasure() {
	f.node.soon()
	f.image.soon()
	f.container.soon()
}

// learn keeps where the runtime's stores are: they are measured on, whether it answers or not.
func (f *fileSystems) learn(info cri.FsInfo) error {
	if len(info.Images) == 0 || info.Images[0].Mountpoint == "" {
		return errors.New("the runtime names no image file system")
	}
	s := stores{image: info.Images[0].Mountpoint}
	if len(info.Containers) > 0 && info.Containers[0].Mountpoint != s.image {
		s.container = info.Containers[0].Mountpoint
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stores.image == "":
		close(f.learned)
	case f.stores != s: // another place is to be measured
		f.image.soon()
		f.container.soon()
	}
	f.stores = s
	return nil
}

func (f *fileSystems) known() stores {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stores
}

// nodeSources is how the sources of the node's file systems stand.
type nodeSources struct {
	runtime, node, image, container stats.SourceStatus
	split                           bool
}

// fill adds what is known by now of the node's file systems, and says how their sources stand.
func (f *fileSystems) fill(now time.Time, n *stats.NodeStats) nodeSources {
	info, runtime := f.runtime.get(now)
	var node, image, container stats.SourceStatus
	n.Fs, node = f.node.get(now)
	n.ImageFs, image = f.image.get(now)
	n.ContainerFs, container = f.container.get(now)
	store := f.known().container
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

// layout compares devices. Absent: one of them is not known.
func layout(node, image, container stats.Opt[stats.FsStats], split bool) stats.Opt[stats.Layout] {
	if !node.OK || !image.OK || split && !container.OK {
		return stats.Opt[stats.Layout]{}
	}
	return stats.Some(stats.Layout{
		DedicatedImageFs: image.V.Device != node.V.Device,
		SplitContainerFs: split && container.V.Device != image.V.Device,
	})
}
