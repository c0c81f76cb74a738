package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/openfiles"
	"jettison/stats/read/podindex"
)

// The loop searches for files without a name only while a disk is short, and they count for the
// file systems that they are on.
func TestUnnamedFilesAreSearchedWhileADiskIsShort(t *testing.T) {
	finder, disk := finderOf(t, "uid-1", 8<<20)
	s, found := volumesOf(t, t.TempDir(), "uid-1/one")
	s.unnamed = finder
	l := newStorageLoop(s, time.Minute)
	l.SetPods(podindex.Index{"uid-1": &podindex.Pod{Sandboxes: []cri.PodSandbox{{}}}})
	node := stats.NodeStats{Fs: stats.Some(stats.FsStats{Device: disk}), ImageFs: stats.Some(stats.FsStats{Device: disk + 1})}
	look := func() stats.UnnamedStats {
		l.measure(t.Context(), "uid-1", found["uid-1"])
		p := stats.PodStats{PodRef: stats.PodReference{UID: "uid-1"}}
		l.Fill(time.Now(), &p)
		l.FillOpenFiles(time.Now(), &p, &node)
		if !p.EphemeralStorage.UsedBytes.OK || p.EphemeralStorage.UsedBytes.V >= 8<<20 {
			t.Errorf("pod's sum includes unnamed files: %+v", p.EphemeralStorage)
		}
		return p.EphemeralStorage.Unnamed
	}
	if u := look(); u != (stats.UnnamedStats{}) {
		t.Errorf("unnamed files while no disk is short = %+v", u)
	}
	l.Demand(time.Now())
	if u := look(); u.Node.V.UsedBytes < 8<<20 || u.Image != stats.Some(stats.FsUsage{Time: u.Node.V.Time}) || u.Container.OK {
		t.Errorf("unnamed files after a demand = %+v", u)
	}
	if before, u := l.pods["uid-1"].unnamed.Time, look(); u.Node.V.UsedBytes < 8<<20 || !u.Node.V.Time.Equal(before) {
		t.Errorf("unnamed files without a new search = %+v, want those of %v", u, before)
	}
	l.setHurry(true)
	if u := look(); u.Node.V.UsedBytes < 8<<20 {
		t.Errorf("unnamed files in a hurry = %+v", u)
	}
}

// A pod with its own limits is measured often: this keeps the result of the last search for
// files without a name, because a disk that is not short is compared with it. The result keeps
// its age, and is not shown when it is too old.
func TestMeasurementKeepsUnnamedFiles(t *testing.T) {
	finder, disk := finderOf(t, "uid-1", 8<<20)
	s, found := volumesOf(t, t.TempDir(), "uid-1/one")
	s.unnamed = finder
	l := newStorageLoop(s, time.Minute)
	l.SetPods(podindex.Index{"uid-1": &podindex.Pod{Sandboxes: []cri.PodSandbox{{}}}})
	node := stats.NodeStats{Fs: stats.Some(stats.FsStats{Device: disk})}
	unnamedAt := func(now time.Time) stats.Opt[stats.FsUsage] {
		p := stats.PodStats{PodRef: stats.PodReference{UID: "uid-1"}}
		l.FillOpenFiles(now, &p, &node)
		return p.EphemeralStorage.Unnamed.Node
	}
	l.Demand(time.Now())
	l.measure(t.Context(), "uid-1", found["uid-1"])
	first := unnamedAt(time.Now())
	for range 2 {
		l.measure(t.Context(), "uid-1", found["uid-1"])
	}
	if got := unnamedAt(time.Now()); got != first || got.V.UsedBytes < 8<<20 || !got.V.Time.Before(l.pods["uid-1"].time) {
		t.Errorf("unnamed files after two measurements = %+v, want %+v", got, first)
	}
	if got := unnamedAt(first.V.Time.Add(l.maxAge(time.Now()) + time.Second)); got.OK {
		t.Errorf("unnamed files beyond their age = %+v, want none", got)
	}
}

// finderOf returns a finder with this test as the pod's process, which keeps a file of the
// given size without a name on a disk.
func finderOf(t *testing.T, uid string, size int64) (finder *openfiles.Finder, disk uint64) {
	t.Helper()
	root := t.TempDir()
	hosttest.Write(t, 0, root, "kubepods/burstable/pod"+uid, "c", "cgroup.procs")
	procs := filepath.Join(root, "kubepods/burstable/pod"+uid, "c", "cgroup.procs")
	if err := os.WriteFile(procs, []byte(fmt.Sprintln(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroup.OpenTree(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	file, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	var st unix.Stat_t
	if err := errors.Join(unix.Fallocate(int(file.Fd()), 0, 0, size), os.Remove(file.Name()), unix.Fstat(int(file.Fd()), &st)); err != nil {
		t.Fatal(err)
	}
	finder = openfiles.New(tree, podindex.PodRoots(""), "/proc", nil, func() map[uint64]bool { return map[uint64]bool{st.Dev: true} })
	finder.SetPace(hosttest.NoPause)
	finder.Belongs = func(int, string) bool { return true }
	t.Cleanup(finder.Close)
	return finder, st.Dev
}
