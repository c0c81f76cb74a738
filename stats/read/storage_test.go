package read

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats"
)

func write(t testing.TB, size int, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fakeRuntime answers what Background asks.
type fakeRuntime struct {
	info  func(context.Context) (cri.FsInfo, error)
	stats func(context.Context) ([]cri.ContainerStats, error)
}

func (f fakeRuntime) ImageFsInfo(ctx context.Context) (cri.FsInfo, error) { return f.info(ctx) }
func (f fakeRuntime) ListContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	return f.stats(ctx)
}

const overlay = "600 500 0:50 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/c-app/rootfs rw,relatime - overlay overlay rw,lowerdir=/a:/b,upperdir=/store/snapshots/7/fs\\040x,workdir=/store/snapshots/7/work\n"

// mounts says what is mounted on the host.
func mounts(t testing.TB, root, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, "proc/1/mountinfo"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A host with one pod: logs of two containers, a volume, a file of the kubelet's, and a writable layer.
func hostWithAPod(t testing.TB) (root string, index Index) {
	root = t.TempDir()
	pod := filepath.Join(root, "var/lib/kubelet/pods/uid-1")
	write(t, 100000, pod, "volumes/kubernetes.io~empty-dir/data/file")
	write(t, 10000, pod, "volumes/kubernetes.io~configmap/settings/..data/key")
	write(t, 50000, pod, "volumes/kubernetes.io~secret/token/key") // the kubelet's own
	write(t, 300, pod, "etc-hosts")
	write(t, 70000, root, "var/log/pods/default_web_uid-1/app/0.log")
	write(t, 7000, root, "var/log/pods/default_web_uid-1/side/0.log")
	write(t, 7000, root, "var/log/pods/foreign/0.log")
	write(t, 200000, root, "store/snapshots/7/fs x/written")
	write(t, 0, root, "proc/1/mountinfo")
	mounts(t, root, "500 400 8:1 / / rw - ext4 /dev/vda rw\n"+overlay)
	return root, NewIndex(cri.Listing{
		Sandboxes:  []cri.PodSandbox{{ID: "s", UID: "uid-1", Name: "web", Namespace: "default", Ready: true}},
		Containers: []cri.Container{{ID: "c-app", SandboxID: "s", Name: "app", State: cri.Running, Running: true, PID: 41}},
	})
}

func backgroundOn(t *testing.T, root string, index Index, r FsRuntime) *Background {
	t.Helper()
	host, err := OpenHostRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	b := StartBackground(BackgroundOptions{Host: host, Runtime: r, Proc: filepath.Join(root, "proc"), Pods: index, OneRound: true})
	t.Cleanup(b.Close)
	return b
}

func oneStore(root string) fakeRuntime {
	return fakeRuntime{
		info: func(context.Context) (cri.FsInfo, error) {
			used, inodes := uint64(4096), uint64(7)
			return cri.FsInfo{Images: []cri.FilesystemUsage{{Mountpoint: "/store", UsedBytes: &used, InodesUsed: &inodes}}}, nil
		},
		stats: func(context.Context) ([]cri.ContainerStats, error) { return nil, errors.New("not to be asked") },
	}
}

// What a pod takes of the disks is found by the kubelet's folders and the host's mounts.
func TestStorageOfAPod(t *testing.T) {
	root, index := hostWithAPod(t)
	b := backgroundOn(t, root, index, oneStore(root))
	b.WaitFirst(t.Context())
	s := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "uid-1"}, Containers: []stats.ContainerStats{{ID: "c-app", Name: "app"}, {ID: "c-side", Name: "side"}}}, {PodRef: stats.PodReference{UID: "other"}}}}
	b.Fill(time.Now(), &s)
	p := s.Pods[0]
	size := func(path ...string) uint64 { return naive(t, filepath.Join(append([]string{root}, path...)...)).bytes }
	data, settings := size("var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~empty-dir/data"), size("var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~configmap/settings")
	logs, layer, hosts := size("var/log/pods/default_web_uid-1"), size("store/snapshots/7/fs x"), size("var/lib/kubelet/pods/uid-1/etc-hosts")
	e := p.EphemeralStorage
	if want := data + settings + logs + layer + hosts; e.UsedBytes != stats.Some(want) || e.InodesUsed.V != 2+3+5+2+1 {
		t.Errorf("used %+v, %+v inodes; want %d (volume %d, settings %d, logs %d, layer %d, hosts %d)", e.UsedBytes, e.InodesUsed, want, data, settings, logs, layer, hosts)
	}
	if len(e.Volumes) != 2 || e.Volumes[0].Name != "data" || e.Volumes[0].UsedBytes != data || e.Volumes[0].Memory || e.Volumes[0].Quota {
		t.Errorf("volumes %+v", e.Volumes)
	}
	if c := p.Containers[0]; c.Rootfs.V.UsedBytes != layer || c.Logs.V.UsedBytes != size("var/log/pods/default_web_uid-1/app") {
		t.Errorf("container app: %+v, %+v", c.Rootfs, c.Logs)
	}
	if c := p.Containers[1]; c.Rootfs.OK || !c.Logs.OK {
		t.Errorf("container side, of which no process is known: %+v, %+v", c.Rootfs, c.Logs)
	}
	if o := s.Pods[1].EphemeralStorage; o.UsedBytes.OK {
		t.Errorf("a pod without folders that nobody knows: %+v, want it absent", o)
	}
	if fs := s.Node.ImageFs; !fs.OK || fs.V.UsedBytes != stats.Some[uint64](4096) || fs.V.InodesUsed != stats.Some[uint64](7) || s.Node.ContainerFs != fs {
		t.Errorf("image file system %+v, containers' %+v", fs, s.Node.ContainerFs)
	}
	if l := s.Node.Layout; !l.OK || l.V != (stats.Layout{}) {
		t.Errorf("one file system: %+v", l)
	}
	if err := s.Err(); err != nil && !strings.Contains(err.Error(), "network namespace") { // this proc has no process 1
		t.Error(err)
	}
}

// A sum with a part missing is absent; the parts that were measured are there.
func TestAPartThatIsMissingMakesTheSumAbsent(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(root string, index Index) Index
		err   string
		parts bool
	}{
		{"no root among the host's mounts", func(root string, index Index) Index {
			mounts(t, root, "")
			return index
		}, "container c-app: the host has no overlay", true},
		{"no process known", func(root string, index Index) Index {
			mounts(t, root, "")
			index["uid-1"].Containers[0].PID = 0
			return index
		}, "container c-app: its process is not known yet", true},
		{"the host's mounts cannot be read", func(root string, index Index) Index {
			if err := os.Remove(filepath.Join(root, "proc/1/mountinfo")); err != nil {
				t.Fatal(err)
			}
			return index
		}, "read the host's mounts", true},
		{"the runtime has not told of the pod", func(string, Index) Index { return nil }, "has not told of its containers", true},
		{"a relative upper directory", func(root string, index Index) Index {
			mounts(t, root, strings.ReplaceAll(overlay, "upperdir=/", "upperdir="))
			return index
		}, "the host has no overlay", true},
		{"an upper directory that is not there", func(root string, index Index) Index {
			mounts(t, root, strings.ReplaceAll(overlay, "snapshots/7", "snapshots/8"))
			return index
		}, "no such file", true},
		{"logs that cannot be listed", func(root string, index Index) Index {
			dir := filepath.Join(root, "var/log/pods")
			if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			return index
		}, "not a directory", false},
	} {
		root, index := hostWithAPod(t)
		b := backgroundOn(t, root, c.spoil(root, index), oneStore(root))
		b.WaitFirst(t.Context())
		s := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "uid-1"}}}}
		b.Fill(time.Now(), &s)
		if e := s.Pods[0].EphemeralStorage; e.UsedBytes.OK || e.Logs.OK != c.parts || c.parts != (len(e.Volumes) == 2) {
			t.Errorf("%s: %+v: want no sum, and the parts: %v", c.name, e, c.parts)
		}
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

// A container that was made and does not run yet has written nothing; a pod is measured anew once the runtime tells of it.
func TestAPodThatStarts(t *testing.T) {
	root, index := hostWithAPod(t)
	mounts(t, root, "")
	index["uid-1"].Containers[0].State = cri.Created
	host, err := OpenHostRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	l := newStorageLoop(&storageWalker{host: host, proc: filepath.Join(root, "proc"), rootDir: "/var/lib/kubelet", logsDir: "/var/log/pods", runtime: oneStore(root), w: newWalker(noPause)}, time.Minute)
	l.run(t.Context(), true)
	if s := l.pods["uid-1"]; s == nil || !errors.Is(s.err, errUnannounced) {
		t.Fatalf("unannounced: %+v", s)
	}
	l.setPods(index)
	l.run(t.Context(), true)
	if s := l.pods["uid-1"]; s.err != nil {
		t.Errorf("announced: %v", s.err)
	}
}

// Where a root is no overlay the runtime's word is taken.
func TestARootThatIsNoOverlay(t *testing.T) {
	root, index := hostWithAPod(t)
	mounts(t, root, "1 0 253:3 / /run/k8s.io/c-app/rootfs rw - ext4 /dev/dm-3 rw\n")
	bytes, inodes := uint64(12345), uint64(6)
	r := oneStore(root)
	r.stats = func(context.Context) ([]cri.ContainerStats, error) {
		return []cri.ContainerStats{{ID: "c-app", WritableLayer: &cri.FilesystemUsage{UsedBytes: &bytes, InodesUsed: &inodes, Time: time.Now()}}}, nil
	}
	b := backgroundOn(t, root, index, r)
	b.WaitFirst(t.Context())
	s := stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "uid-1"}, Containers: []stats.ContainerStats{{ID: "c-app"}}}}}
	b.Fill(time.Now(), &s)
	if c := s.Pods[0].Containers[0]; c.Rootfs.V.UsedBytes != bytes || c.Rootfs.V.InodesUsed != inodes {
		t.Errorf("%+v", c.Rootfs)
	}
}

func TestParseUpperDirs(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"overlay", overlay, "/store/snapshots/7/fs x"},
		{"optional fields", "1 0 0:50 / /run/c-app/rootfs rw shared:1 master:2 - overlay overlay rw,upperdir=/u,workdir=/w\n", "/u"},
		{"special characters", `1 0 0:50 / /run/c-app/rootfs rw - overlay overlay rw,upperdir=/a\040b\054c\134040\043` + "\n", `/a b,c\040#`},
		{"not overlay", "1 0 253:3 / /run/c-app/rootfs rw - ext4 /dev/dm-3 rw,upperdir=/u\n", ""},
		{"read-only overlay", "1 0 0:50 / /run/c-app/rootfs ro - overlay overlay ro,lowerdir=/a:/b\n", ""},
		{"relative", "1 0 0:50 / /run/c-app/rootfs ro - overlay overlay rw,upperdir=l/diff\n", ""},
		{"at the root", "1 0 0:50 / / rw - overlay overlay rw,upperdir=/u\n", ""},
		{"of another container", "1 0 0:50 / /run/x-c-app/rootfs rw - overlay overlay rw,upperdir=/u\n", ""},
		{"inside a container's root", "1 0 0:50 / /run/c-app/rootfs/x rw - overlay overlay rw,upperdir=/u\n", ""},
		{"seen twice", overlay + overlay, "/store/snapshots/7/fs x"},
		{"disputed", overlay + "1 0 0:50 / /run/c-app/rootfs rw - overlay overlay rw,upperdir=/u\n" + overlay, ""},
		{"cut off", "1 0 0:50 / /run/c-app/rootfs rw -", ""},
		{"empty", "", ""},
	} {
		got, err := parseUpperDirs(strings.NewReader(c.text))
		if got["c-app"] != c.want || (err != nil) != (c.name == "cut off") {
			t.Errorf("%s: %q, want %q, %v", c.name, got["c-app"], c.want, err)
		}
	}
}

// unmangle undoes what the kernel does to a path (fs/proc_namespace.c mangle), and to any other byte.
func unmangle(path string) string {
	return regexp.MustCompile(`\\[0-7]{3}`).ReplaceAllStringFunc(path, func(octal string) string {
		n, _ := strconv.ParseUint(octal[1:], 8, 16)
		return string([]byte{byte(n)})
	})
}

func FuzzParseUpperDirs(f *testing.F) {
	f.Add([]byte(overlay))
	f.Add([]byte(overlay + "1 0 0:50 / /run/c-app/rootfs rw - overlay overlay rw,upperdir=/u\n"))
	f.Add([]byte("1 0 253:3 / /x/rootfs rw - ext4 /dev/dm-3 rw\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := parseUpperDirs(bytes.NewReader(b))
		if err != nil && found != nil {
			t.Error("mounts beside an error")
		}
		for id, dir := range found {
			if id == "" || strings.Contains(id, "/") || !strings.HasPrefix(dir, "/") {
				t.Errorf("%q: %q", id, dir)
			}
			told := false
			for line := range strings.Lines(string(b)) {
				fields := strings.Split(line, " ")
				told = told || len(fields) > 7 && strings.HasSuffix(unmangle(fields[4]), "/"+id+"/rootfs") && strings.Contains(line, "overlay") && strings.Contains(line, "upperdir=/")
			}
			if !told {
				t.Errorf("%q of container %q comes from no overlay at its root", dir, id)
			}
		}
	})
}

// The root of the host is the host's: absolute links start there again, and nothing leads out.
func TestTheHostsRootIsNotLeft(t *testing.T) {
	root := t.TempDir()
	write(t, 10, root, "data/kubelet/pods/u/etc-hosts")
	write(t, 10, root, "var/x")
	for link, to := range map[string]string{"var/lib": "/data", "up": "../../../../../../../..", "out": "/etc"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := OpenHostRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	w := &storageWalker{host: host, rootDir: "/var/lib/kubelet", logsDir: "/out"}
	found, err := w.find()
	if err != nil || len(found) != 1 || found["u"].pod == "" {
		t.Errorf("through a link: %+v, %v", found, err)
	}
	for _, path := range []string{"/out/passwd", "/up/etc/passwd", "/../../../etc/passwd"} {
		if _, err := host.statFs(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it not there", path, err)
		}
	}
	if fs, err := host.statNearest("/var/none/at/all"); err != nil || fs.Path != "/var" && fs.Path != "/" {
		t.Errorf("a directory that is not there: %+v, %v", fs, err)
	}
	if fs, err := host.statFs("/up"); err != nil || fs.CapacityBytes.V == 0 {
		t.Errorf("the root itself: %+v, %v", fs, err)
	}
}

// The pod whose figures are oldest is next; one that was never measured comes first; a gone one is forgotten.
func TestTheOldestIsMeasuredNext(t *testing.T) {
	l := newStorageLoop(&storageWalker{uppers: map[string]string{}}, time.Minute)
	now := time.Now()
	found := map[string]storageDirs{}
	for i, age := range []time.Duration{2 * time.Minute, 3 * time.Minute, 30 * time.Second} {
		uid := strconv.Itoa(i)
		found[uid], l.pods[uid] = storageDirs{}, &storage{time: now.Add(-age)}
	}
	if uid, due := l.oldest(found); uid != "1" || !due {
		t.Errorf("next is %q, %v", uid, due)
	}
	found["new"] = storageDirs{}
	if uid, due := l.oldest(found); uid != "new" || !due {
		t.Errorf("next is %q, %v", uid, due)
	}
	delete(found, "1")
	delete(found, "new")
	l.keep(found, nil)
	if _, kept := l.pods["1"]; kept || len(l.pods) != 2 {
		t.Errorf("kept %v", l.pods)
	}
	l.pods["0"].time = now
	if uid, due := l.oldest(found); due {
		t.Errorf("%q is due", uid)
	}
	l.keep(nil, errors.New("cannot list"))
	if len(l.pods) != 2 {
		t.Error("what was known is lost because a directory could not be listed")
	}
}

// volumesOf makes pods with one volume each on the file system of a directory, and a walker for them.
func volumesOf(t *testing.T, root string, volumes ...string) (*storageWalker, map[string]storageDirs) {
	t.Helper()
	for _, v := range volumes {
		uid, name, _ := strings.Cut(v, "/")
		write(t, 50000, root, "pods", uid, "volumes", emptyDirPlugin, name, "file")
	}
	host, err := OpenHostRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	s := &storageWalker{host: host, rootDir: "/", logsDir: "/logs", w: newWalker(noPause)}
	found, err := s.find()
	if err != nil {
		t.Fatal(err)
	}
	return s, found
}

// A project counts once in a pod, and for one pod only: another with the same is walked.
func TestAProjectCountsOnce(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/one", "a/two", "b/one")
	s.project = func(int) (project, usage, bool) { return project{1, 7}, usage{bytes: 1 << 30, inodes: 9}, true }
	for range 2 { // its own project is a pod's in the next round too
		a, b := s.measure(t.Context(), "a", found["a"], &Pod{}), s.measure(t.Context(), "b", found["b"], &Pod{})
		if total, _ := a.sum(); a.err != nil || !a.volumes[0].Quota || !a.volumes[1].Quota || total.UsedBytes != 1<<30 || total.InodesUsed != 9 {
			t.Errorf("two volumes of one project: %+v", a)
		}
		if v := b.volumes[0]; b.err != nil || v.Quota || v.InodesUsed != 2 {
			t.Errorf("another pod with that project: %+v", b)
		}
	}
}

// A volume in memory takes no disk.
func TestAVolumeInMemory(t *testing.T) {
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
	l := newStorageLoop(s, time.Minute)
	l.pods["a"] = s.measure(t.Context(), "a", found["a"], &Pod{})
	p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}}
	l.fill(time.Now(), &p)
	e := p.EphemeralStorage
	if len(e.Volumes) != 1 || !e.Volumes[0].Memory || e.UsedBytes != stats.Some[uint64](0) || e.MemoryVolumesBytes.V < 50000 {
		t.Errorf("%+v", e)
	}
}

// A figure that is too old is not shown, though never sooner than a pod's next turn may be.
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
		if l.fill(now, &p); p.EphemeralStorage.UsedBytes.OK != c.shown || (l.status().Err == nil) != c.shown {
			t.Errorf("round of %v, %v old: %+v, %v", c.round, c.age, p.EphemeralStorage, l.status().Err)
		}
	}
}

// A pod whose turn ended is walked again after all others that were not measured since, for longer.
func TestAPodWithManyFiles(t *testing.T) {
	s, found := volumesOf(t, t.TempDir(), "a/one", "b/one", "c/one")
	synctest.Test(t, func(t *testing.T) {
		l := newStorageLoop(s, time.Minute)
		s.w.pace = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		for _, want := range []time.Duration{turn, 2 * turn, 4 * turn, 8 * turn, longestTurn, longestTurn} {
			began := time.Now()
			s.w.entries = 64
			l.measure(t.Context(), "a", found["a"])
			if took := time.Since(began); took != want || !l.pods["a"].cut || !strings.Contains(l.pods["a"].err.Error(), "not measured to its end") {
				t.Fatalf("a turn of %v, want %v: %+v", took, want, l.pods["a"])
			}
		}
		time.Sleep(time.Hour)
		l.pods["b"] = &storage{time: time.Now().Add(-2 * time.Hour)}
		l.pods["c"] = &storage{time: time.Now()}
		if next, due := l.oldest(found); next != "b" || !due {
			t.Errorf("next is %q", next)
		}
		l.pods["b"].time = time.Now()
		if next, due := l.oldest(found); next != "a" || !due {
			t.Errorf("next is %q", next)
		}
	})
}

// The status counts, names the first error by UID, and calls out a pod whose walk hangs.
func TestTheStatusOfStorage(t *testing.T) { synctest.Test(t, statusOfStorage) }

func statusOfStorage(t *testing.T) {
	now := time.Now()
	l := newStorageLoop(&storageWalker{}, time.Minute)
	l.listed, l.known = now, map[string]bool{"a": true, "b": true, "c": true}
	says := func(want string) {
		t.Helper()
		if err := l.status().Err; (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%v, want %q", err, want)
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
	l.doing, l.since, l.until = "b", now.Add(-2*time.Minute), now.Add(-walkPatience/2)
	says("")
	l.until = now.Add(-2 * walkPatience)
	says("pod b has been walked for 2m0s: a file system that hangs")
}
