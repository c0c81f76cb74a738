package disk

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/podindex"
	"jettison/stats/read/walk"
)

// loopOn returns a loop on a host, and a function that measures and returns its pod's usage.
func loopOn(t *testing.T, root string, index podindex.Index, r Runtime) (l *Loop, look func() stats.PodStorageStats) {
	t.Helper()
	host, err := hostroot.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	s := &storageWalker{host: host, proc: filepath.Join(root, "proc"), rootDir: "/var/lib/kubelet", logsDir: "/var/log/pods", runtime: r, w: walk.New(hosttest.NoPause)}
	l = newStorageLoop(s, time.Minute)
	l.SetPods(index)
	return l, func() stats.PodStorageStats {
		t.Helper()
		found, err := s.find()
		if err != nil {
			t.Fatal(err)
		}
		l.measure(t.Context(), "uid-1", found["uid-1"])
		p := stats.PodStats{PodRef: stats.PodReference{UID: "uid-1"}}
		for _, c := range l.index["uid-1"].Containers {
			p.Containers = append(p.Containers, stats.ContainerStats{ID: c.ID})
		}
		l.Fill(time.Now(), &p)
		return p.EphemeralStorage
	}
}

// Files that containers write to /dev/termination-log count for the disk, and for no limit.
func TestTerminationMessagesCount(t *testing.T) {
	root, index := hosttest.WithAPod(t)
	_, look := loopOn(t, root, index, hosttest.OneStore(root))
	before := look()
	hosttest.Write(t, 4<<20, root, "var/lib/kubelet/pods/uid-1/containers/app/0a1b2c3d")
	now := look()
	if now.Files.V.UsedBytes < before.Files.V.UsedBytes+4<<20 || !before.Files.OK || before.Files.V.InodesUsed != 1 || now.Files.V.InodesUsed != 4 {
		t.Errorf("files with a message of 4 MiB = %+v, before %+v", now.Files, before.Files)
	}
	if now.UsedBytes != before.UsedBytes || !now.UsedBytes.OK {
		t.Errorf("usage that limits count = %+v, before %+v", now.UsedBytes, before.UsedBytes)
	}
}

// The writable layer of an exited container counts by the runtime's figure; without one, by at
// least its figure while running.
func TestWritableLayersOfExitedContainersCount(t *testing.T) {
	big, few := uint64(32<<20), uint64(3)
	for _, c := range []struct {
		name  string
		told  []cri.ContainerStats
		lived bool
		want  stats.FsUsage
	}{
		{"told", []cri.ContainerStats{{ID: "c-app", WritableLayer: &cri.FilesystemUsage{UsedBytes: &big, InodesUsed: &few, Time: time.Now()}}}, false,
			stats.FsUsage{UsedBytes: big, InodesUsed: few}},
		{"not told", nil, false, stats.FsUsage{Partial: true}},
		{"told in half", []cri.ContainerStats{{ID: "c-app", WritableLayer: &cri.FilesystemUsage{UsedBytes: &big}}}, false, stats.FsUsage{Partial: true}},
		{"not told, but walked while it lived", nil, true, stats.FsUsage{UsedBytes: 1, InodesUsed: 2, Partial: true}},
	} {
		root, index := hosttest.WithAPod(t)
		r := hosttest.OneStore(root)
		r.Stats = func(context.Context) ([]cri.ContainerStats, error) { return c.told, nil }
		l, look := loopOn(t, root, index, r)
		if c.lived {
			alive := look()
			if alive.ExitedLayers.OK {
				t.Errorf("%s: exited layers %+v while the container runs", c.name, alive.ExitedLayers)
			}
			c.want.UsedBytes = l.pods["uid-1"].layers["c-app"].UsedBytes
		}
		hosttest.Mounts(t, root, "")
		l.walker.mounted = time.Time{}
		exited := *index["uid-1"]
		exited.Exited, exited.Containers = exited.Containers, nil
		l.SetPods(podindex.Index{"uid-1": &exited})
		got := look()
		u := got.ExitedLayers.V
		u.Time = time.Time{}
		if u.UsedBytes != c.want.UsedBytes || u.InodesUsed != c.want.InodesUsed || u.Partial != c.want.Partial || !got.ExitedLayers.OK || c.lived && u.UsedBytes < 200000 {
			t.Errorf("%s: layer of the exited container = %+v, want %+v", c.name, u, c.want)
		}
		if !got.UsedBytes.OK || got.UsedBytes.V >= big || got.Partial {
			t.Errorf("%s: usage that limits count = %+v", c.name, got)
		}
	}
}
