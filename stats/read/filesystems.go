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

// Query intervals of the sources that may block, and the maximum age of an answer.
const (
	fsEvery      = time.Second
	fsLimit      = stats.MaxAge
	runtimeEvery = 10 * time.Second
	// for the usage of the store as the runtime reports it; the location of the store has no maximum
	// age
	runtimeLimit = time.Minute
)

// stores holds the runtime's mount points from its last answer.
type stores struct {
	image, container string // container is empty if the runtime has one store for both
}

var errNoStore = errors.New("the runtime has not reported its image store yet")

// fileSystems holds the sources of the node's file systems: the kubelet's, and those of the
// runtime's stores.
type fileSystems struct {
	runtime   *source[cri.FsInfo]
	node      *source[stats.FsStats]
	image     *source[stats.FsStats]
	container *source[stats.FsStats]

	mu          sync.Mutex
	stores      stores
	storesKnown chan struct{} // closed once stores are known
}

// newFileSystems creates the sources. rootDir is the kubelet's.
func newFileSystems(host *hostroot.Root, runtime FsRuntime, rootDir string) *fileSystems {
	f := &fileSystems{storesKnown: make(chan struct{})}
	f.runtime = newSource("image file system of the runtime", runtimeEvery, runtimeLimit,
		func(ctx context.Context) (cri.FsInfo, error) {
			info, err := runtime.ImageFsInfo(ctx)
			if err == nil {
				err = f.setStores(info)
			}
			return info, err
		})
	f.node = newSource("statfs "+rootDir, fsEvery, fsLimit, func(context.Context) (stats.FsStats,
		error) {
		return host.StatNearest(rootDir)
	})
	f.image = newSource("statfs of the image store", fsEvery, fsLimit,
		func(context.Context) (stats.FsStats, error) {
			return host.StatFs(f.currentStores().image)
		})
	f.container = newSource("statfs of the container store", fsEvery, fsLimit,
		func(context.Context) (stats.FsStats, error) {
			if path := f.currentStores().container; path != "" {
				return host.StatFs(path)
			}
			return stats.FsStats{}, nil // the runtime has one store
		})
	f.image.err, f.container.err = errNoStore, errNoStore
	return f
}

// start starts a goroutine for each source. The sources of the runtime's stores begin once the
// runtime has reported the paths.
func (f *fileSystems) start(ctx context.Context, all *sync.WaitGroup) {
	for _, run := range []func(context.Context){f.runtime.run, f.node.run} {
		all.Go(func() { run(ctx) })
	}
	for _, run := range []func(context.Context){f.image.run, f.container.run} {
		all.Go(func() {
			select {
			case <-f.storesKnown:
				run(ctx)
			case <-ctx.Done():
			}
		})
	}
}

// waitNode waits until the file systems were measured once or their sources failed, or ctx
// ends.
func (f *fileSystems) waitNode(ctx context.Context) {
	if !waitClosed(ctx, f.node.answered) || !waitClosed(ctx, f.runtime.answered) ||
		f.currentStores().image == "" {
		return
	}
	_ = waitClosed(ctx, f.image.answered) && waitClosed(ctx, f.container.answered)
}

// disks returns the devices of the node's file systems.
func (f *fileSystems) disks() map[uint64]bool {
	devices, now := map[uint64]bool{}, time.Now()
	for _, source := range []*source[stats.FsStats]{f.node, f.image, f.container} {
		if fs, _ := source.get(now); fs.OK && fs.V.Path != "" {
			devices[fs.V.Device] = true
		}
	}
	return devices
}

// remeasure queries the file systems immediately.
func (f *fileSystems) remeasure() {
	f.node.refresh()
	f.image.refresh()
	f.container.refresh()
}

// setStores stores the paths of the runtime's stores, so that these are measured even while the
// runtime does not answer.
func (f *fileSystems) setStores(info cri.FsInfo) error {
	if len(info.Images) == 0 || info.Images[0].Mountpoint == "" {
		return errors.New("the runtime reports no image file system")
	}
	s := stores{image: info.Images[0].Mountpoint}
	if len(info.Containers) > 0 && info.Containers[0].Mountpoint != s.image {
		s.container = info.Containers[0].Mountpoint
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stores.image == "":
		close(f.storesKnown)
	case f.stores != s: // the path has changed
		f.image.refresh()
		f.container.refresh()
	}
	f.stores = s
	return nil
}

func (f *fileSystems) currentStores() stores {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stores
}

// nodeSources holds the state of the sources of the node's file systems.
type nodeSources struct {
	runtime, node, image, container stats.SourceStatus
	split                           bool
}

// fill adds the latest values of the node's file systems and returns the state of their sources.
func (f *fileSystems) fill(now time.Time, n *stats.NodeStats) nodeSources {
	info, runtime := f.runtime.get(now)
	var node, image, container stats.SourceStatus
	n.Fs, node = f.node.get(now)
	n.ImageFs, image = f.image.get(now)
	n.ContainerFs, container = f.container.get(now)
	store := f.currentStores().container
	split := store != ""
	if !split { // the runtime has one store: containerfs is imagefs, as in the kubelet
		n.ContainerFs = n.ImageFs
	} else if n.ContainerFs.V.Path != store { // measured before the runtime reported its path
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

// used sets the usage of a store to the runtime's value.
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

// layout returns the layout of the file systems, by their devices; absent if a device is unknown.
func layout(node, image, container stats.Opt[stats.FsStats], split bool) stats.Opt[stats.Layout] {
	if !node.OK || !image.OK || split && !container.OK {
		return stats.Opt[stats.Layout]{}
	}
	return stats.Some(stats.Layout{
		DedicatedImageFs: image.V.Device != node.V.Device,
		SplitContainerFs: split && container.V.Device != image.V.Device,
	})
}
