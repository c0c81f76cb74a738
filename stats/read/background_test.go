package read

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/cri/critest"
	"jettison/stats"
	"jettison/stats/read/disk"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/network"
)

func TestLayout(t *testing.T) {
	on := func(device uint64) stats.Opt[stats.FsStats] { return stats.Some(stats.FsStats{Device: device}) }
	absent := stats.Opt[stats.FsStats]{}
	for _, c := range []struct {
		name                   string
		node, image, container stats.Opt[stats.FsStats]
		split                  bool
		want                   stats.Opt[stats.Layout]
	}{
		{"one file system", on(1), on(1), on(1), false, stats.Some(stats.Layout{})},
		{"images on their own", on(1), on(2), on(2), false, stats.Some(stats.Layout{DedicatedImageFs: true})},
		{"split", on(1), on(2), on(1), true, stats.Some(stats.Layout{DedicatedImageFs: true, SplitContainerFs: true})},
		{"two stores on one device", on(1), on(2), on(2), true, stats.Some(stats.Layout{DedicatedImageFs: true})},
		{"node unknown", absent, on(2), on(2), false, stats.Opt[stats.Layout]{}},
		{"image unknown", on(1), absent, absent, false, stats.Opt[stats.Layout]{}},
		{"container unknown", on(1), on(2), absent, true, stats.Opt[stats.Layout]{}},
	} {
		if got := layout(c.node, c.image, c.container, c.split); got != c.want {
			t.Errorf("layout of the node with %s = %+v", c.name, got)
		}
	}
}

func filesystem(mountpoint string, bytes, inodes uint64) []*runtimev1.FilesystemUsage {
	return []*runtimev1.FilesystemUsage{{
		FsId: &runtimev1.FilesystemIdentifier{Mountpoint: mountpoint}, UsedBytes: &runtimev1.UInt64Value{Value: bytes}, InodesUsed: &runtimev1.UInt64Value{Value: inodes},
	}}
}

// The runtime of this test reports images and writable layers on different file systems first,
// then on the same one.
func TestASplitContainerFileSystemIsFoundAndLostAgain(t *testing.T) {
	r := critest.Start(t)
	client, err := cri.Dial(r.Endpoint(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r.Change(func() {
		r.ImageFs, r.ContainerFs = filesystem("/proc", 10, 1), filesystem("/sys", 20, 2)
	})
	b := backgroundOn(t, "/", nil, client)
	look := func() (s stats.Summary) {
		b.Fill(time.Now(), &s)
		return s
	}
	b.WaitFirst(t.Context())
	s := look()
	if l := s.Node.Layout; !l.OK || l.V != (stats.Layout{DedicatedImageFs: true, SplitContainerFs: true}) {
		t.Errorf("layout with split stores = %+v, node %+v", l, s.Node)
	}
	if c := s.Node.ContainerFs; c.V.Path != "/sys" || c.V.UsedBytes != stats.Some[uint64](20) || s.Node.ImageFs.V.UsedBytes != stats.Some[uint64](10) {
		t.Errorf("file system of containers = %+v, of images = %+v", c, s.Node.ImageFs)
	}
	r.Change(func() { r.ImageFs, r.ContainerFs = filesystem("/dev", 30, 3), nil })
	b.files.runtime.refresh()
	for end := time.Now().Add(10 * time.Second); ; {
		if s = look(); s.Node.ImageFs.V.Path == "/dev" && s.Node.ContainerFs == s.Node.ImageFs {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("node after the move to one store = %+v", s.Node)
		}
	}
}

// A runtime that hangs and a file system with a statfs that never returns affect only their own
// signals: the kernel's stay available and on time, and each look names the silent source.
func TestWhatHangsBlindsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := recordedNode(t, "6.12")
		release := make(chan struct{})
		files := &fileSystems{storesKnown: make(chan struct{})}
		b := &Background{files: files, done: make(chan struct{}), networks: network.New("/nowhere")}
		files.runtime = newSource("image file system of the runtime", runtimeEvery, runtimeLimit, func(ctx context.Context) (cri.FsInfo, error) {
			<-ctx.Done()
			return cri.FsInfo{}, ctx.Err()
		})
		answers := 0
		files.node = newSource("statfs /var/lib/kubelet", fsEvery, fsLimit, func(context.Context) (stats.FsStats, error) {
			if answers++; answers > 3 {
				<-release // like a system call: no context ends it
			}
			fs := hostroot.FsStats(&unix.Statfs_t{Blocks: 100, Bavail: 40, Bfree: 50, Bsize: 4096, Files: 10, Ffree: 5})
			fs.Time = time.Now()
			return fs, nil
		})
		never := func(context.Context) (stats.FsStats, error) { return stats.FsStats{}, nil }
		files.image, files.container = newSource("images", fsEvery, fsLimit, never), newSource("containers", fsEvery, fsLimit, never)
		files.image.err, files.container.err = errNoStore, errNoStore
		b.network = newSource("network of pods", network.Every, network.Limit, func(context.Context) (network.Reading, error) { return network.Reading{}, nil })
		b.storage = disk.New(disk.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 2)
		go func() { files.runtime.run(ctx); ended <- struct{}{} }()
		go func() { files.node.run(ctx); ended <- struct{}{} }()
		var s stats.Summary
		seenAt := time.Time{}
		for i := range 40 {
			time.Sleep(500 * time.Millisecond)
			now := time.Now()
			if err := c.Collect(now, nil, &s); err != nil {
				t.Fatal(err)
			}
			b.Fill(now, &s)
			if took := time.Since(now); took != 0 {
				t.Fatalf("look %d waited %v for a hanging source", i, took)
			}
			m := s.Observe(now, stats.SignalMemoryAvailable, stats.MemoryAvailableLower)
			if !m.OK || !m.Time.Equal(now) || len(s.Pods) != 3 || !s.Pods[0].Memory.WorkingSetBytes.OK {
				t.Fatalf("memory of look %d = %+v, want it observed", i, m)
			}
			if s.Observe(now, stats.SignalNodeFsAvailable, "").OK {
				seenAt = now
			}
		}
		now := time.Now()
		if o := s.Observe(now, stats.SignalNodeFsAvailable, ""); o.OK || o.Reason == "" {
			t.Errorf("nodefs signal after 17 s of silence = %+v", o)
		}
		if silent := now.Sub(seenAt); silent > 18*time.Second-fsLimit || silent < 5*time.Second {
			t.Errorf("nodefs was last seen %v ago, limit %v", silent, fsLimit)
		}
		if o := s.Observe(now, stats.SignalImageFsAvailable, ""); o.OK {
			t.Errorf("imagefs signal while the runtime hangs = %+v", o)
		}
		text := s.Err().Error()
		for _, want := range []string{"statfs /var/lib/kubelet: no answer for 1", "image file system of the runtime: no answer for 20s", "the runtime has not reported its image store yet"} {
			if !strings.Contains(text, want) {
				t.Errorf("errors of the sources lack %q:\n%s", want, text)
			}
		}
		close(release)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.Fill(time.Now(), &s)
		if o := s.Observe(time.Now(), stats.SignalNodeFsAvailable, ""); !o.OK || o.Value != 40*4096 || o.Capacity != 100*4096 {
			t.Errorf("nodefs signal after the source is back = %+v", o)
		}
		cancel()
		<-ended
		<-ended
	})
}

// A container store that hangs is absent; the image store's figures are not used for it.
func TestHangingContainerStoreIsAbsent(t *testing.T) {
	now := time.Now()
	answer := func(path string) *source[stats.FsStats] {
		s := newSource("statfs "+path, fsEvery, fsLimit, func(context.Context) (stats.FsStats, error) { return stats.FsStats{}, nil })
		s.value, s.at = stats.FsStats{Path: path, Time: now, Device: 1, AvailableBytes: stats.Some[uint64](999), CapacityBytes: stats.Some[uint64](1000)}, now
		return s
	}
	files := &fileSystems{
		node: answer("/node"), image: answer("/img"), container: answer("/ctr"), stores: stores{image: "/img", container: "/ctr"},
		runtime: newSource("runtime", runtimeEvery, runtimeLimit, func(context.Context) (cri.FsInfo, error) { return cri.FsInfo{}, nil }),
	}
	b := &Background{
		files: files, storage: disk.New(disk.Options{}),
		network: newSource("network", network.Every, network.Limit, func(context.Context) (network.Reading, error) { return network.Reading{}, nil }),
	}
	files.container.at, files.container.queryStart = now.Add(-time.Minute), now.Add(-time.Minute)
	var s stats.Summary
	b.Fill(now, &s)
	if o := s.Observe(now, stats.SignalContainerFsAvailable, ""); o.OK || s.Node.Layout.OK {
		t.Errorf("containerfs signal of a hanging store = %+v, layout %+v", o, s.Node.Layout)
	}
	if o := s.Observe(now, stats.SignalImageFsAvailable, ""); !o.OK {
		t.Errorf("imagefs signal beside a hanging store = %+v", o)
	}
	if o := s.Observe(now.Add(time.Hour), stats.SignalImageFsAvailable, ""); o.OK {
		t.Errorf("imagefs signal an hour later = %+v", o)
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "statfs /ctr: no answer for 1m") {
		t.Errorf("errors of the sources = %v", err)
	}
}

// Close does not wait for goroutines that cannot be ended.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Background{cancel: func() {}, done: make(chan struct{})}
		began := time.Now()
		b.Close()
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("Close waited %v for a blocked goroutine", took)
		}
	})
}

func TestObserveGivesTheReasonOfAnAbsentSignal(t *testing.T) {
	now := time.Unix(2000, 0)
	s := stats.Summary{Node: stats.NodeStats{
		Memory:      stats.NodeMemoryStats{Time: now.Add(-time.Minute), CapacityBytes: stats.Some[uint64](100), WorkingSetBytes: stats.Some[uint64](30), KernelAvailableBytes: stats.Some[uint64](60)},
		Swap:        stats.NodeSwapStats{Time: now, TotalBytes: stats.Some[uint64](0), FreeBytes: stats.Some[uint64](0)},
		PIDs:        stats.NodePIDStats{Time: now, Max: stats.Some[uint64](1000), Current: stats.Some[uint64](1200)},
		Allocatable: stats.AllocatableMemoryStats{Time: now, LimitBytes: stats.Some[uint64](100), WorkingSetBytes: stats.Some[uint64](30)},
		ContainerFs: stats.Some(hostroot.FsStats(&unix.Statfs_t{Bsize: 4096})),
		Fs:          stats.Some(stats.FsStats{Time: now, AvailableBytes: stats.Some[uint64](5), CapacityBytes: stats.Some[uint64](10)}),
	}}
	for _, c := range []struct {
		signal              stats.Signal
		ok                  bool
		available, capacity uint64
		reason              string
	}{
		{stats.SignalMemoryAvailable, false, 0, 0, "read too long ago"},
		{stats.SignalAllocatableMemoryAvailable, true, 70, 100, ""},
		{stats.SignalSwapAvailable, false, 0, 0, "no swap"},
		{stats.SignalPIDAvailable, true, 0, 1000, ""},
		{stats.SignalNodeFsAvailable, true, 5, 10, ""},
		{stats.SignalNodeFsInodesFree, false, 0, 0, "no fixed number of inodes"},
		{stats.SignalImageFsAvailable, false, 0, 0, "no reading"},
		{stats.SignalContainerFsAvailable, false, 0, 0, "no size"},
		{"x.available", false, 0, 0, "unknown signal"},
	} {
		o := s.Observe(now, c.signal, stats.MemoryAvailableLower)
		if o.OK != c.ok || o.Value != c.available || o.Capacity != c.capacity || !strings.Contains(o.Reason, c.reason) || (o.Reason == "") != o.OK {
			t.Errorf("unexpected observation of signal %s: %+v", c.signal, o)
		}
	}
	for _, signal := range stats.Signals {
		if o := (&stats.Summary{}).Observe(now, signal, stats.MemoryAvailableLower); o.OK || o.Reason == "" {
			t.Errorf("observation of signal %s of an empty Summary = %+v", signal, o)
		}
	}
}
