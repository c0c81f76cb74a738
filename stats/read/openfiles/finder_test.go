package openfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/mounts"
	"jettison/stats/read/podindex"
	"jettison/stats/read/walk"
)

// holder is a node on which all pods' processes are this test, and the disk is that of the
// test's directory.
type holder struct {
	*Finder
	t    testing.TB
	dir  string
	tree string // of cgroups
	disk uint64
}

func newHolder(t testing.TB, uids ...string) *holder {
	t.Helper()
	root, dir := t.TempDir(), t.TempDir()
	for _, uid := range uids {
		hosttest.Write(t, 0, root, "cgroup/kubepods/burstable/pod"+uid, "c", "cgroup.procs")
		procs := filepath.Join(root, "cgroup/kubepods/burstable/pod"+uid, "c", "cgroup.procs")
		if err := os.WriteFile(procs, []byte(fmt.Sprintln(os.Getpid())), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := cgroup.OpenTree(filepath.Join(root, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	h := &holder{t: t, dir: dir, tree: filepath.Join(root, "cgroup"), disk: st.Dev}
	h.Finder = New(fs, podindex.PodRoots(""), "/proc", nil, func() map[uint64]bool { return map[uint64]bool{st.Dev: true} })
	h.pace, h.Belongs = hosttest.NoPause, func(int, string) bool { return true }
	t.Cleanup(func() { h.guard.close() })
	return h
}

// of returns the result of a look at a pod, given the previous one.
func (h *holder) of(uid string, before Kept) Kept {
	h.t.Helper()
	return h.Look(h.t.Context(), uid, "", nil, &before)
}

// file creates a file of the given size with allocated blocks.
func (h *holder) file(name string, size int64) *os.File {
	h.t.Helper()
	f, err := os.Create(filepath.Join(h.dir, name))
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { f.Close() })
	return f
}

func (h *holder) unlink(name string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.dir, name)); err != nil {
		h.t.Fatal(err)
	}
}

// A live process with files that the kernel reports as absent, without memory for their inodes,
// may keep more than was found; one that has ended keeps no file.
func TestProcessWithAbsentFilesIsNotGone(t *testing.T) {
	h := newHolder(t, "a")
	h.proc = t.TempDir()
	h.file("open", 8<<20)
	h.unlink("open")
	before := Kept{byDevice: map[uint64]walk.Usage{h.disk: {Bytes: 8 << 20, Inodes: 1}}, Time: time.Now()}
	if got := h.of("a", before); !got.cut || got.byDevice[h.disk].Bytes != 8<<20 {
		t.Errorf("result for a live process = %+v", got)
	}
	h.Belongs = nil
	for pid, cut := range map[int]bool{os.Getpid(): true, endedProcess(t): false} {
		h.out, h.pid = new(Kept), pid
		h.isMember()
		if h.out.cut != cut {
			t.Errorf("process %d: result is cut: %v", pid, h.out.cut)
		}
	}
	procs := filepath.Join(h.tree, "kubepods/burstable/poda/c/cgroup.procs")
	if err := os.WriteFile(procs, []byte(fmt.Sprintln(endedProcess(t))), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := h.of("a", Kept{}); got.cut {
		t.Errorf("result for an ended process = %+v", got)
	}
}

// endedProcess returns the ID of a process that has ended.
func endedProcess(t testing.TB) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// Files without a name count for the pod with processes that have them open or mapped, by their
// blocks, and once each.
func TestFilesWithoutANameCount(t *testing.T) {
	h := newHolder(t, "a", "b")
	want := h.of("a", Kept{}).byDevice[h.disk] // files of other tests in this process
	counts := func(what string, bytes, inodes uint64) {
		t.Helper()
		want.Bytes, want.Inodes = want.Bytes+bytes, want.Inodes+inodes
		if got := h.of("a", Kept{}); got.byDevice[h.disk] != want || got.cut {
			t.Errorf("usage with a file kept by %s = %+v, want %+v", what, got, want)
		}
	}
	f := h.file("open", 8<<20)
	counts("with a name", 0, 0)
	h.unlink("open")
	counts("unlinked", 8<<20, 1)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	counts("by two descriptors", 0, 0)
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	counts("with a hole", 0, 0)
	m := h.file("mapped", 4<<20)
	area, err := unix.Mmap(int(m.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	h.unlink("mapped")
	counts("mapped and open", 4<<20, 1)
	m.Close()
	counts("mapped only", 0, 0)
	if err := unix.Munmap(area); err != nil {
		t.Fatal(err)
	}
	want.Bytes, want.Inodes = want.Bytes-4<<20, want.Inodes-1
	counts("not any more", 0, 0)
	if tmp, err := unix.Open(h.dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err == nil {
		defer unix.Close(tmp)
		if err := unix.Fallocate(tmp, 0, 0, 1<<20); err != nil {
			t.Fatal(err)
		}
		counts("never named", 1<<20, 1)
	}
	memory, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memory)
	if err := unix.Fallocate(memory, 0, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	counts("in memory", 0, 0)
	if b := h.of("b", Kept{}); b.byDevice[h.disk].Inodes != 0 {
		t.Errorf("another pod that shares the files: %+v, want them once", b)
	}
	h.Forget(map[string]bool{"b": true})
	if b := h.of("b", Kept{}); b.byDevice[h.disk] != want {
		t.Errorf("usage of the remaining pod = %+v, want %+v", b, want)
	}
	if none := h.of("c", Kept{}); len(none.byDevice) != 0 {
		t.Errorf("usage of a pod without a cgroup = %+v", none)
	}
}

// A thread may have its own descriptor table.
func TestAThreadHidesNothing(t *testing.T) {
	h := newHolder(t, "a")
	before := h.of("a", Kept{}).byDevice[h.disk]
	ready, end := make(chan error), make(chan struct{})
	defer close(end)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FILES)
		if err == nil {
			var fd int
			if fd, err = unix.Open(filepath.Join(h.dir, "own"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600); err == nil {
				err = errors.Join(unix.Fallocate(fd, 0, 0, 2<<20), os.Remove(filepath.Join(h.dir, "own")))
			}
		}
		ready <- err
		<-end
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	if got := h.of("a", Kept{}).byDevice[h.disk]; got.Bytes-before.Bytes != 2<<20 || got.Inodes-before.Inodes != 1 {
		t.Errorf("usage with the thread's descriptor = %+v, before %+v", got, before)
	}
}

// A tenant with many descriptors uses up only its own turn: then the result is a lower bound,
// the larger figure stays, and the next turn is longer.
func TestManyDescriptorsCostOneTurn(t *testing.T) {
	h := newHolder(t, "a")
	var first []*os.File
	for range maxFirst + 200 {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		first = append(first, f)
	}
	h.file("late", 8<<20)
	h.unlink("late")
	all := h.of("a", Kept{})
	if all.cut || all.byDevice[h.disk].Bytes < 8<<20 {
		t.Fatalf("usage with a file behind %d others = %+v", len(first), all)
	}
	paces := 0
	h.pace = func(context.Context) error {
		if paces++; paces > 2 {
			return context.DeadlineExceeded
		}
		return nil
	}
	cut := h.of("a", all)
	if u := cut.byDevice[h.disk]; !cut.cut || !u.Partial || u.Bytes != all.byDevice[h.disk].Bytes || u.Inodes != all.byDevice[h.disk].Inodes || paces != 3 {
		t.Errorf("usage cut off after %d paces = %+v, before %+v", paces, cut, all)
	}
	on := cut.On(stats.Some(stats.FsStats{Device: h.disk}))
	if !on.OK || !on.V.Partial || on.V.UsedBytes != all.byDevice[h.disk].Bytes {
		t.Errorf("usage on the pod's disk = %+v", on)
	}
	for want := 2 * unnamedTurn; ; want *= 2 {
		paces = 2
		if cut = h.of("a", cut); cut.turn != min(want, longestUnnamedTurn) {
			t.Fatalf("turn after a cut off one = %v, want %v", cut.turn, min(want, longestUnnamedTurn))
		}
		if want > longestUnnamedTurn {
			break
		}
	}
	h.pace = hosttest.NoPause
	if again := h.of("a", cut); again.cut || again.byDevice[h.disk] != all.byDevice[h.disk] || again.turn != longestUnnamedTurn {
		t.Errorf("usage of a complete look = %+v", again)
	}
}

// A process with an ID that another process has by now does not count, and neither does one
// that is gone.
func TestReusedProcessID(t *testing.T) {
	h := newHolder(t, "a")
	h.file("x", 1<<20)
	h.unlink("x")
	h.Belongs = func(pid int, group string) bool { return pid != os.Getpid() || group != "poda" }
	if got := h.of("a", Kept{}); len(got.byDevice) != 0 {
		t.Errorf("usage with a reused process ID = %+v", got)
	}
	h.Belongs, h.proc = func(int, string) bool { return true }, t.TempDir()
	if got := h.of("a", Kept{}); len(got.byDevice) != 0 {
		t.Errorf("usage with an ended process = %+v", got)
	}
}

// A file in a container's writable layer has the overlay's device but the disk's blocks: it
// counts for the disk of the upper directory.
func TestFilesWithoutANameInAWritableLayer(t *testing.T) {
	h := newHolder(t, "a")
	root := t.TempDir()
	for _, dir := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(root, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", root)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Skip("cannot mount an overlay here: ", err)
	}
	defer func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	var err error
	if h.host, err = hostroot.Open(""); err != nil {
		t.Fatal(err)
	}
	defer h.host.Close()
	before := h.of("a", Kept{}).byDevice[h.disk]
	if h.overlays, err = mounts.Overlays("/proc/self/mountinfo"); err != nil {
		t.Fatal(err)
	}
	h.mounted = time.Now().Add(time.Hour)
	f, err := os.Create(filepath.Join(merged, "x"))
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, 6<<20), os.Remove(f.Name()))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counts := func(how string) {
		t.Helper()
		if got := h.of("a", Kept{}).byDevice[h.disk]; got.Bytes-before.Bytes != 6<<20 || got.Inodes-before.Inodes != 1 {
			t.Errorf("file in a layer kept by %s: usage %+v, before %+v", how, got, before)
		}
	}
	counts("open")
	area, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	counts("mapped")
	if err := unix.Munmap(area); err != nil {
		t.Error(err)
	}
}

// BenchmarkUnnamed measures the cost of a look by the number of descriptors.
func BenchmarkUnnamed(b *testing.B) {
	h := newHolder(b, "a")
	for range 1000 {
		f, err := os.Open("/dev/null")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
	}
	h.file("x", 1<<20)
	h.unlink("x")
	for b.Loop() {
		if got := h.Look(b.Context(), "a", "", nil, &Kept{}); got.cut {
			b.Fatal("look did not find the file: ", got)
		}
	}
}
