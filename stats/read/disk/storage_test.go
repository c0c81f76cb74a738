package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/podindex"
	"jettison/stats/read/quota"
	"jettison/stats/read/walk"
)

// A created container that does not run yet has written nothing; a pod is measured again once
// the runtime reports it.
func TestStartingPod(t *testing.T) {
	root, index := hosttest.WithAPod(t)
	hosttest.Mounts(t, root, "")
	index["uid-1"].Containers[0].State = cri.Created
	host, err := hostroot.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	l := newStorageLoop(&storageWalker{host: host, proc: filepath.Join(root, "proc"), rootDir: "/var/lib/kubelet", logsDir: "/var/log/pods", runtime: hosttest.OneStore(root), w: walk.New(hosttest.NoPause)}, time.Minute)
	l.run(t.Context(), true)
	if s := l.pods["uid-1"]; s == nil || !errors.Is(s.err, errUnannounced) {
		t.Fatalf("measurement of an unannounced pod = %+v", s)
	}
	l.SetPods(index)
	l.run(t.Context(), true)
	if s := l.pods["uid-1"]; s.err != nil {
		t.Errorf("measurement of an announced pod: error %v", s.err)
	}
}

// The pod with the oldest figures is next; one that was never measured comes first; a removed
// one is forgotten.
func TestTheOldestIsMeasuredNext(t *testing.T) {
	l := newStorageLoop(&storageWalker{uppers: map[string]string{}}, time.Minute)
	now := time.Now()
	found := map[string]storageDirs{}
	for i, age := range []time.Duration{2 * time.Minute, 3 * time.Minute, 30 * time.Second} {
		uid := strconv.Itoa(i)
		found[uid], l.pods[uid] = storageDirs{}, &storage{time: now.Add(-age)}
	}
	if uid, due := l.oldest(found); uid != "1" || !due {
		t.Errorf("next pod = %q, due %v, want an unmeasured one", uid, due)
	}
	found["new"] = storageDirs{}
	if uid, due := l.oldest(found); uid != "new" || !due {
		t.Errorf("next pod = %q, due %v, want the oldest one", uid, due)
	}
	delete(found, "1")
	delete(found, "new")
	l.keep(found, nil)
	if _, kept := l.pods["1"]; kept || len(l.pods) != 2 {
		t.Errorf("figures kept after the removal = %v", l.pods)
	}
	l.pods["0"].time = now
	if uid, due := l.oldest(found); due {
		t.Errorf("pod %q is due, want none", uid)
	}
	l.keep(nil, errors.New("cannot list"))
	if len(l.pods) != 2 {
		t.Error("figures were dropped after a failed listing")
	}
}

// volumesOf creates pods with one volume each on the file system of a directory, and a walker
// for them.
func volumesOf(t *testing.T, root string, volumes ...string) (*storageWalker, map[string]storageDirs) {
	t.Helper()
	for _, v := range volumes {
		uid, name, _ := strings.Cut(v, "/")
		hosttest.Write(t, 50000, root, "pods", uid, "volumes", emptyDirPlugin, name, "file")
	}
	host, err := hostroot.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	s := &storageWalker{host: host, rootDir: "/", logsDir: "/logs", w: walk.New(hosttest.NoPause)}
	found, err := s.find()
	if err != nil {
		t.Fatal(err)
	}
	return s, found
}

// A project counts once in a pod, and for one pod only: another pod with the same project is
// walked.
func TestAProjectCountsOnce(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/one", "a/two", "b/one")
	s.project = func(int) (quota.Project, walk.Usage, bool) {
		return quota.Project{Device: 1, ID: 7}, walk.Usage{Bytes: 1 << 30, Inodes: 9}, true
	}
	for range 2 { // the pod keeps its own project in the next round
		a, b := s.measure(t.Context(), "a", found["a"], &podindex.Pod{}), s.measure(t.Context(), "b", found["b"], &podindex.Pod{})
		if total, _ := a.sum(); a.err != nil || !a.volumes[0].Quota || !a.volumes[1].Quota || total.UsedBytes != 1<<30 || total.InodesUsed != 9 {
			t.Errorf("two volumes of one project = %+v", a)
		}
		if v := b.volumes[0]; b.err != nil || v.Quota || v.InodesUsed != 2 {
			t.Errorf("another pod with that project = %+v", b)
		}
	}
}

// fillVolume measures the volume of pod a, and returns what Fill makes of it.
func fillVolume(t *testing.T, s *storageWalker, found map[string]storageDirs) stats.PodStats {
	t.Helper()
	l := newStorageLoop(s, time.Minute)
	l.pods["a"] = s.measure(t.Context(), "a", found["a"], &podindex.Pod{})
	p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}}
	p.Memory.FreedBytes = stats.Some(stats.Range{Max: 1 << 30})
	l.Fill(time.Now(), &p)
	if len(p.EphemeralStorage.Volumes) != 1 {
		t.Fatalf("volumes = %+v, want one; error %v", p.EphemeralStorage.Volumes, l.pods["a"].err)
	}
	return p
}

// inOwnMounts runs a function on a thread with its own mounts, which end with it.
func inOwnMounts(t *testing.T, run func()) {
	t.Helper()
	denied := false
	var wait sync.WaitGroup
	wait.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if denied = errors.Is(err, os.ErrPermission); denied {
			return
		}
		if err != nil {
			t.Errorf("unshare the mount namespace: %v, want own mounts", err)
			return
		}
		run()
	})
	if wait.Wait(); denied {
		t.Skip("this user may not make mounts")
	}
}

// A volume in memory uses no disk. Its file system counts it, whatever its files' names are.
func TestAVolumeInMemory(t *testing.T) {
	inOwnMounts(t, func() {
		root := t.TempDir()
		s, found := volumesOf(t, root, "a/one")
		at := filepath.Join(root, "pods", "a", "volumes", emptyDirPlugin, "one")
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
			t.Errorf("mount a file system on the volume: %v, want it mounted", err)
			return
		}
		hosttest.Write(t, 50000, at, "file")
		file, err := os.Open(at + "/file")
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		if err := os.Remove(file.Name()); err != nil {
			t.Error(err)
		}
		p := fillVolume(t, s, found)
		const used = 13 * 4096
		e := p.EphemeralStorage
		if v := e.Volumes[0]; !v.Memory || v.UsedBytes != used || e.UsedBytes != stats.Some[uint64](0) || e.MemoryVolumesBytes.V != used || p.Memory.FreedBytes.V.Max != 1<<30-used {
			t.Errorf("usage with a volume in memory = %+v, freed %+v, want %d bytes in memory", e, p.Memory.FreedBytes, used)
		}
	})
}

// A tmpfs without a size counts nothing, so its files are counted.
func TestAVolumeInMemoryWithoutASize(t *testing.T) {
	inOwnMounts(t, func() {
		root := t.TempDir()
		s, found := volumesOf(t, root, "a/one")
		at := filepath.Join(root, "pods", "a", "volumes", emptyDirPlugin, "one")
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=0"); err != nil {
			t.Errorf("mount a file system on the volume: %v, want it mounted", err)
			return
		}
		hosttest.Write(t, 50000, at, "file")
		p := fillVolume(t, s, found)
		const used = 13 * 4096
		e := p.EphemeralStorage
		if v := e.Volumes[0]; !v.Memory || v.UsedBytes != used || e.UsedBytes.V != 0 || e.MemoryVolumesBytes.V != used || p.Memory.FreedBytes.V.Max != 1<<30-used {
			t.Errorf("usage with a volume in memory = %+v, freed %+v, want %d bytes in memory", e, p.Memory.FreedBytes, used)
		}
	})
}

// A volume that is a bind mount of a directory of a tmpfs counts its own files, not those of the whole tmpfs.
func TestAVolumeThatIsAPartOfATmpfs(t *testing.T) {
	inOwnMounts(t, func() {
		root, memory := t.TempDir(), t.TempDir()
		s, found := volumesOf(t, root, "a/one")
		hosttest.Write(t, 50000, root, "pods/a/volumes", emptyDirPlugin, "one/under the mount")
		err := unix.Mount("tmpfs", memory, "tmpfs", 0, "size=8m")
		hosttest.Write(t, 1<<20, memory, "another", "file")
		hosttest.Write(t, 50000, memory, "part", "file")
		at := filepath.Join(root, "pods", "a", "volumes", emptyDirPlugin, "one")
		if err = errors.Join(err, unix.Mount(filepath.Join(memory, "part"), at, "", unix.MS_BIND, "")); err != nil {
			t.Errorf("mount a part of a tmpfs: %v, want it mounted", err)
			return
		}
		const used = 13 * 4096
		e := fillVolume(t, s, found).EphemeralStorage
		if v := e.Volumes[0]; !v.Memory || v.UsedBytes != used || e.UsedBytes.V != 0 || e.MemoryVolumesBytes.V != used {
			t.Errorf("usage with a part of a tmpfs = %+v, want %d bytes in memory", e, used)
		}
	})
}

// A volume of huge pages uses no disk, and a pod's memory figures do not count it.
func TestAVolumeOfHugePages(t *testing.T) {
	inOwnMounts(t, func() {
		root := t.TempDir()
		s, found := volumesOf(t, root, "a/one")
		at := filepath.Join(root, "pods", "a", "volumes", emptyDirPlugin, "one")
		if err := unix.Mount("hugetlbfs", at, "hugetlbfs", 0, ""); errors.Is(err, unix.ENODEV) {
			return // a kernel without huge pages
		} else if err != nil {
			t.Errorf("mount a file system on the volume: %v, want it mounted", err)
			return
		}
		if v := fillVolume(t, s, found).EphemeralStorage.Volumes[0]; !v.Memory || !v.HugePages {
			t.Errorf("volume of huge pages = %+v, want it in memory", v)
		}
	})
	used := func(bytes uint64) stats.FsUsage { return stats.FsUsage{Time: time.Now(), UsedBytes: bytes} }
	s := storage{volumes: []stats.VolumeStats{{Memory: true, HugePages: true, FsUsage: used(4)}, {Memory: true, FsUsage: used(2)}, {FsUsage: used(1)}}}
	if total, inMemory := s.sum(); total.UsedBytes != 1 || inMemory.UsedBytes != 2 {
		t.Errorf("sum = %d bytes on disk and %d on tmpfs, want 1 and 2", total.UsedBytes, inMemory.UsedBytes)
	}
}

// On a node whose root is a tmpfs, a volume on disk is a directory of that tmpfs. It counts as disk
// usage, and with its own files only.
func TestAVolumeOnARootInMemory(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "stats")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	var fs unix.Statfs_t
	if unix.Statfs(root, &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Fatal("/dev/shm is no tmpfs")
	}
	s, found := volumesOf(t, root, "a/one")
	hosttest.Write(t, 1<<20, root, "another", "file")
	e := fillVolume(t, s, found).EphemeralStorage
	if v := e.Volumes[0]; v.Memory || v.UsedBytes != 13*4096 || e.UsedBytes.V != v.UsedBytes || e.MemoryVolumesBytes.V != 0 {
		t.Errorf("usage of a volume on a root in memory = %+v, want %d bytes on disk", e, 13*4096)
	}
}

// A figure that is too old is not shown, but the limit is never shorter than the interval of a
// pod's turns.
func TestTheAgeOfStorage(t *testing.T) {
	l, now := newStorageLoop(&storageWalker{}, time.Minute), time.Now()
	for _, c := range []struct {
		round, age time.Duration
		shown      bool
	}{
		{0, 4 * time.Minute, true},
		{0, 6 * time.Minute, false},
		{10 * time.Minute, 19 * time.Minute, true},
		{10 * time.Minute, 21 * time.Minute, false},
		{5 * time.Hour, 59 * time.Minute, true},
		{5 * time.Hour, 61 * time.Minute, false},
	} {
		l.round, l.settled, l.listed = c.round, true, now
		l.pods["a"], l.known = &storage{time: now.Add(-c.age)}, map[string]bool{"a": true}
		p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}}
		if l.Fill(now, &p); p.EphemeralStorage.UsedBytes.OK != c.shown || (l.Status().Err == nil) != c.shown {
			t.Errorf("figure with a round of %v and an age of %v = %+v, error %v", c.round, c.age, p.EphemeralStorage, l.Status().Err)
		}
	}
}

// A pod with a walk that was cut off is walked again after all others that were not measured
// since, for longer.
func TestAPodWithManyFiles(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/one", "b/one", "c/one")
	synctest.Test(t, func(t *testing.T) {
		l := newStorageLoop(s, time.Minute)
		s.w = paced(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		for _, want := range []time.Duration{turn, 2 * turn, 4 * turn, 8 * turn, longestTurn, longestTurn} {
			began := time.Now()
			l.measure(t.Context(), "a", found["a"])
			if took := time.Since(began); took != want || !l.pods["a"].cut || !strings.Contains(l.pods["a"].err.Error(), "walk cut off after") {
				t.Fatalf("turn lasted %v, want %v: %+v", took, want, l.pods["a"])
			}
		}
		time.Sleep(time.Hour)
		l.pods["b"] = &storage{time: time.Now().Add(-2 * time.Hour)}
		l.pods["c"] = &storage{time: time.Now()}
		if next, due := l.oldest(found); next != "b" || !due {
			t.Errorf("next pod after the cut off walk = %q", next)
		}
		l.pods["b"].time = time.Now()
		if next, due := l.oldest(found); next != "a" || !due {
			t.Errorf("next pod after all others = %q", next)
		}
	})
}

// The status counts pods, contains the first error by UID, and reports a pod with a hanging
// walk.
func TestTheStatusOfStorage(t *testing.T) { synctest.Test(t, statusOfStorage) }

func statusOfStorage(t *testing.T) {
	now := time.Now()
	l := newStorageLoop(&storageWalker{}, time.Minute)
	l.listed, l.known = now, map[string]bool{"a": true, "b": true, "c": true}
	says := func(want string) {
		t.Helper()
		if err := l.Status().Err; (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("status error of the loop = %v, want %q", err, want)
		}
	}
	says("0 of 3 pods measured so far")
	l.pods["a"] = &storage{time: now}
	says("1 of 3 pods measured so far")
	l.settled = true
	says("")
	l.pods["c"], l.pods["b"] = &storage{time: now, err: errors.New("of c")}, &storage{time: now, err: errors.New("of b")}
	for range 20 {
		says("1 of 3 pods measured, 2 with errors: of b")
	}
	l.pods["b"].err, l.pods["c"].err = nil, nil
	l.walking, l.walkStart, l.turnEnd = "b", now.Add(-2*time.Minute), now.Add(-walkHangAfter/2)
	says("")
	l.turnEnd = now.Add(-2 * walkHangAfter)
	says("walk of pod b has taken 2m0s: its file system hangs")
}

// paced returns a walker that calls pace for each entry.
func paced(pace func(context.Context) error) *walk.Walker {
	bounds := walk.DefaultBounds()
	bounds.Steps = 1
	return walk.NewWithin(pace, bounds)
}

// The kubelet's directories may be behind a symbolic link of the host.
func TestPodsAreFoundThroughALink(t *testing.T) {
	root := t.TempDir()
	hosttest.Write(t, 10, root, "data/kubelet/pods/u/etc-hosts")
	hosttest.Write(t, 10, root, "var/x")
	for link, to := range map[string]string{"var/lib": "/data", "out": "/etc"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := hostroot.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	w := &storageWalker{host: host, rootDir: "/var/lib/kubelet", logsDir: "/out"}
	found, err := w.find()
	if err != nil || len(found) != 1 || found["u"].pod == "" {
		t.Errorf("pods found through a link = %+v, error %v", found, err)
	}
}
