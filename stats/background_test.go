package stats

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri"
	"jettison/cri/critest"
)

func TestLayout(t *testing.T) {
	on := func(device uint64) Opt[FsStats] { return Some(FsStats{Device: device}) }
	absent := Opt[FsStats]{}
	for _, c := range []struct {
		name                   string
		node, image, container Opt[FsStats]
		split                  bool
		want                   Opt[Layout]
	}{
		{"one file system", on(1), on(1), on(1), false, Some(Layout{})},
		{"images on their own", on(1), on(2), on(2), false, Some(Layout{DedicatedImageFs: true})},
		{"split", on(1), on(2), on(1), true, Some(Layout{DedicatedImageFs: true, SplitContainerFs: true})},
		{"two stores on one device", on(1), on(2), on(2), true, Some(Layout{DedicatedImageFs: true})},
		{"node unknown", absent, on(2), on(2), false, Opt[Layout]{}},
		{"image unknown", on(1), absent, absent, false, Opt[Layout]{}},
		{"container unknown", on(1), on(2), absent, true, Opt[Layout]{}},
	} {
		if got := layout(c.node, c.image, c.container, c.split); got != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func filesystem(mountpoint string, bytes, inodes uint64) []*runtimev1.FilesystemUsage {
	return []*runtimev1.FilesystemUsage{{
		FsId: &runtimev1.FilesystemIdentifier{Mountpoint: mountpoint}, UsedBytes: &runtimev1.UInt64Value{Value: bytes}, InodesUsed: &runtimev1.UInt64Value{Value: inodes},
	}}
}

// The runtime of this test says that images and writable layers lie apart; and then, that they do not any more.
func TestASplitContainerFileSystemIsFoundAndLostAgain(t *testing.T) {
	r := critest.Start(t)
	client, err := cri.Dial(r.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r.Change(func() {
		r.ImageFs, r.ContainerFs = filesystem("/proc", 10, 1), filesystem("/sys", 20, 2)
	})
	b := backgroundOn(t, "/", nil, client)
	look := func() (s Summary) {
		b.Fill(time.Now(), &s)
		return s
	}
	b.WaitFirst(t.Context())
	s := look()
	if l := s.Node.Layout; !l.OK || l.V != (Layout{DedicatedImageFs: true, SplitContainerFs: true}) {
		t.Errorf("split: %+v of %+v", l, s.Node)
	}
	if c := s.Node.ContainerFs; c.V.Path != "/sys" || c.V.UsedBytes != Some[uint64](20) || s.Node.ImageFs.V.UsedBytes != Some[uint64](10) {
		t.Errorf("containers on %+v, images on %+v", c, s.Node.ImageFs)
	}
	r.Change(func() { r.ImageFs, r.ContainerFs = filesystem("/dev", 30, 3), nil })
	b.runtime.soon()
	for end := time.Now().Add(10 * time.Second); ; {
		if s = look(); s.Node.ImageFs.V.Path == "/dev" && s.Node.ContainerFs == s.Node.ImageFs {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("moved to one store: %+v", s.Node)
		}
	}
}

// A runtime that hangs and a file system whose statfs never returns blind their own signals only: the kernel's go on, on time,
// and each look says which source is silent.
func TestWhatHangsBlindsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := recordedNode(t, "6.12")
		release := make(chan struct{})
		b := &Background{learned: make(chan struct{}), done: make(chan struct{}), networks: newNetworks("/nowhere")}
		b.runtime = newSource("image file system of the runtime", runtimeEvery, runtimeLimit, func(ctx context.Context) (cri.FsInfo, error) {
			<-ctx.Done()
			return cri.FsInfo{}, ctx.Err()
		})
		answers := 0
		b.nodeFs = newSource("statfs /var/lib/kubelet", fsEvery, fsLimit, func(context.Context) (FsStats, error) {
			if answers++; answers > 3 {
				<-release // as the kernel does: no context ends it
			}
			fs := fsStats(&unix.Statfs_t{Blocks: 100, Bavail: 40, Bfree: 50, Bsize: 4096, Files: 10, Ffree: 5})
			fs.Time = time.Now()
			return fs, nil
		})
		never := func(context.Context) (FsStats, error) { return FsStats{}, nil }
		b.imageFs, b.container = newSource("images", fsEvery, fsLimit, never), newSource("containers", fsEvery, fsLimit, never)
		b.imageFs.err, b.container.err = errNoStore, errNoStore
		b.network = newSource("network of pods", networkEvery, networkLimit, func(context.Context) (networkReading, error) { return networkReading{}, nil })
		b.storage = newStorageLoop(&storageWalker{}, storageEvery)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 2)
		go func() { b.runtime.run(ctx); ended <- struct{}{} }()
		go func() { b.nodeFs.run(ctx); ended <- struct{}{} }()
		var s Summary
		seenAt := time.Time{}
		for i := range 40 {
			time.Sleep(500 * time.Millisecond)
			now := time.Now()
			if err := c.Collect(now, nil, &s); err != nil {
				t.Fatal(err)
			}
			b.Fill(now, &s)
			if took := time.Since(now); took != 0 {
				t.Fatalf("look %d waited %v", i, took)
			}
			m := s.Observe(now, SignalMemoryAvailable, MemoryAvailableLower)
			if !m.OK || !m.Time.Equal(now) || len(s.Pods) != 3 || !s.Pods[0].Memory.WorkingSetBytes.OK {
				t.Fatalf("look %d: memory %+v", i, m)
			}
			if s.Observe(now, SignalNodeFsAvailable, "").OK {
				seenAt = now
			}
		}
		now := time.Now()
		if o := s.Observe(now, SignalNodeFsAvailable, ""); o.OK || o.Reason == "" {
			t.Errorf("nodefs after 17 s of silence: %+v", o)
		}
		if silent := now.Sub(seenAt); silent > 18*time.Second-fsLimit || silent < 5*time.Second {
			t.Errorf("nodefs was last seen %v ago, limit %v", silent, fsLimit)
		}
		if o := s.Observe(now, SignalImageFsAvailable, ""); o.OK {
			t.Errorf("imagefs: %+v", o)
		}
		text := s.Err().Error()
		for _, want := range []string{"statfs /var/lib/kubelet: no answer for 1", "image file system of the runtime: no answer for 20s", "the runtime has not told yet where its images are"} {
			if !strings.Contains(text, want) {
				t.Errorf("errors do not say %q:\n%s", want, text)
			}
		}
		close(release)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.Fill(time.Now(), &s)
		if o := s.Observe(time.Now(), SignalNodeFsAvailable, ""); !o.OK || o.Available != 40*4096 || o.Capacity != 100*4096 {
			t.Errorf("nodefs is back: %+v", o)
		}
		cancel()
		<-ended
		<-ended
	})
}

// What lies in a pod's memory-backed volumes is not freed by killing it: it comes off what might be, never off what is sure.
func TestMemoryBackedVolumesAreNotFreed(t *testing.T) {
	now := time.Now()
	b := &Background{
		runtime: newSource[cri.FsInfo]("runtime", runtimeEvery, runtimeLimit, nil), nodeFs: newSource[FsStats]("node", fsEvery, fsLimit, nil),
		imageFs: newSource[FsStats]("images", fsEvery, fsLimit, nil), container: newSource[FsStats]("containers", fsEvery, fsLimit, nil),
		network: newSource[networkReading]("network", networkEvery, networkLimit, nil), storage: newStorageLoop(&storageWalker{}, storageEvery),
	}
	for uid, size := range map[string]uint64{"some": 30, "more": 500} {
		b.storage.pods[uid] = &storage{time: now, volumes: []VolumeStats{{Name: "v", Memory: true, FsUsage: FsUsage{Time: now, UsedBytes: size}}}}
	}
	for uid, want := range map[string]Range{"some": {100, 170}, "more": {100, 100}, "none": {100, 200}} {
		s := Summary{Pods: []PodStats{{PodRef: PodReference{UID: uid}, Memory: PodMemoryStats{FreedBytes: Some(Range{100, 200})}}}}
		b.Fill(now, &s)
		if got := s.Pods[0].Memory.FreedBytes; got != Some(want) {
			t.Errorf("%s: %+v, want %+v", uid, got, want)
		}
	}
}

// A container store that hangs is absent; the image store's figures are not taken for its own.
func TestAContainerStoreThatHangsIsAbsent(t *testing.T) {
	now := time.Now()
	answer := func(path string) *source[FsStats] {
		s := newSource("statfs "+path, fsEvery, fsLimit, func(context.Context) (FsStats, error) { return FsStats{}, nil })
		s.value, s.at = FsStats{Path: path, Time: now, Device: 1, AvailableBytes: Some[uint64](999), CapacityBytes: Some[uint64](1000)}, now
		return s
	}
	b := &Background{
		nodeFs: answer("/node"), imageFs: answer("/img"), container: answer("/ctr"), storage: newStorageLoop(&storageWalker{}, storageEvery),
		runtime: newSource("runtime", runtimeEvery, runtimeLimit, func(context.Context) (cri.FsInfo, error) { return cri.FsInfo{}, nil }),
		network: newSource("network", networkEvery, networkLimit, func(context.Context) (networkReading, error) { return networkReading{}, nil }),
		stores:  stores{image: "/img", container: "/ctr"},
	}
	b.container.at, b.container.asked = now.Add(-time.Minute), now.Add(-time.Minute)
	var s Summary
	b.Fill(now, &s)
	if o := s.Observe(now, SignalContainerFsAvailable, ""); o.OK || s.Node.Layout.OK {
		t.Errorf("containerfs %+v, layout %+v", o, s.Node.Layout)
	}
	if o := s.Observe(now, SignalImageFsAvailable, ""); !o.OK {
		t.Errorf("imagefs %+v", o)
	}
	if o := s.Observe(now.Add(time.Hour), SignalImageFsAvailable, ""); o.OK {
		t.Errorf("imagefs an hour later: %+v", o)
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "statfs /ctr: no answer for 1m") {
		t.Errorf("errors: %v", err)
	}
}

// Close does not wait for what cannot be ended.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Background{cancel: func() {}, done: make(chan struct{})}
		began := time.Now()
		b.Close()
		if took := time.Since(began); took != closePatience {
			t.Errorf("waited %v", took)
		}
	})
}

func TestObserveSaysWhyASignalIsAbsent(t *testing.T) {
	now := time.Unix(2000, 0)
	s := Summary{Node: NodeStats{
		Memory:      NodeMemoryStats{Time: now.Add(-time.Minute), CapacityBytes: Some[uint64](100), WorkingSetBytes: Some[uint64](30), KernelAvailableBytes: Some[uint64](60)},
		Swap:        NodeSwapStats{Time: now, TotalBytes: Some[uint64](0), FreeBytes: Some[uint64](0)},
		PIDs:        NodePIDStats{Time: now, Max: Some[uint64](1000), Current: Some[uint64](1200)},
		Allocatable: AllocatableMemoryStats{Time: now, LimitBytes: Some[uint64](100), WorkingSetBytes: Some[uint64](30)},
		Fs:          Some(FsStats{Time: now, AvailableBytes: Some[uint64](5), CapacityBytes: Some[uint64](10)}),
	}}
	for _, c := range []struct {
		signal              Signal
		ok                  bool
		available, capacity uint64
		reason              string
	}{
		{SignalMemoryAvailable, false, 0, 0, "read 1m0s ago"},
		{SignalAllocatableMemoryAvailable, true, 70, 100, ""},
		{SignalSwapAvailable, false, 0, 0, "no swap"},
		{SignalPIDAvailable, true, 0, 1000, ""},
		{SignalNodeFsAvailable, true, 5, 10, ""},
		{SignalNodeFsInodesFree, false, 0, 0, "no fixed number of inodes"},
		{SignalImageFsAvailable, false, 0, 0, "no answer"},
		{"x.available", false, 0, 0, "unknown signal"},
	} {
		o := s.Observe(now, c.signal, MemoryAvailableLower)
		if o.OK != c.ok || o.Available != c.available || o.Capacity != c.capacity || !strings.Contains(o.Reason, c.reason) || (o.Reason == "") != o.OK {
			t.Errorf("%s: %+v", c.signal, o)
		}
	}
	for _, signal := range Signals {
		if o := (&Summary{}).Observe(now, signal, MemoryAvailableLower); o.OK || o.Reason == "" {
			t.Errorf("%s of nothing: %+v", signal, o)
		}
	}
}

func TestAHostRootThatIsNotThere(t *testing.T) {
	if _, err := OpenHostRoot(filepath.Join(t.TempDir(), "none")); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}
