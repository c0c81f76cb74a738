package openfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// without removes all processes from a pod, while looks at it are still cut off.
func (h *holder) without(uid string) {
	h.t.Helper()
	procs := filepath.Join(h.tree, "kubepods/burstable/pod"+uid, "c", "cgroup.procs")
	if err := os.WriteFile(procs, []byte("0\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// A file of one pod, or a reused inode number, stays with that pod only for two cut off looks
// that did not find it: then it counts for its current holder.
func TestInodeMovesToItsCurrentHolder(t *testing.T) {
	h := newHolder(t, "a", "b")
	base := h.of("a", Kept{})
	h.file("x", 8<<20)
	h.unlink("x")
	a := h.of("a", base)
	if a.byDevice[h.disk].Bytes-base.byDevice[h.disk].Bytes != 8<<20 {
		t.Fatal("pod a does not hold the file: ", a)
	}
	whole := a.byDevice[h.disk].Bytes
	h.without("a")
	for i, want := range []uint64{0, whole, whole} {
		a = h.of("a", a)
		if b := h.of("b", Kept{}); !a.cut || b.byDevice[h.disk].Bytes != want {
			t.Errorf("after %d looks at a that were cut off (%v) b counts %d, want %d", i+1, a.cut, b.byDevice[h.disk].Bytes, want)
		}
	}
}

// A file that a cut off look did not find keeps counting for a limited time.
func TestFilesWithoutANameThatAreKeptExpire(t *testing.T) {
	h := newHolder(t, "a")
	h.file("x", 8<<20)
	h.unlink("x")
	a := h.of("a", Kept{})
	h.without("a")
	earlier := func(u Kept, by time.Duration) Kept {
		u.Time = u.Time.Add(-by)
		if !u.keptTime.IsZero() {
			u.keptTime = u.keptTime.Add(-by)
		}
		return u
	}
	for i := range 4 {
		a = h.of("a", earlier(a, KeepFor/2-time.Minute))
		if kept, want := a.byDevice[h.disk].Bytes >= 8<<20, i < 2; kept != want || !a.cut {
			t.Errorf("kept usage after look %d = %+v", i, a)
		}
	}
}

// A descriptor of a file on an unresponsive file system, such as a network file system with an
// unreachable server, blocks no look: files that other processes of that pod keep on a disk are
// found, however many processes wait there.
func TestUnresponsiveFileSystemDelaysNoLook(t *testing.T) {
	h := newHolder(t, "a")
	h.guard.timeout = 50 * time.Millisecond
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no FUSE here: ", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("x", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)); err != nil {
		unix.Close(fuse)
		t.Skip("cannot mount one: ", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	h.file("open", 8<<20)
	h.unlink("open")
	h.proc = t.TempDir()
	first, pids, links := map[int]uint64{}, "", map[string]string{filepath.Join(h.proc, fmt.Sprint(os.Getpid())): "/proc/self"}
	for pid := range maxStuckOfPod + 1 {
		pid += 1<<22 + 1
		fds := filepath.Join(h.proc, fmt.Sprint(pid), "task", fmt.Sprint(pid), "fd")
		if err := os.MkdirAll(fds, 0o755); err != nil {
			t.Fatal(err)
		}
		first[pid], pids, links[filepath.Join(fds, "3")] = 1, pids+fmt.Sprintln(pid), filepath.Join(dir, "x (deleted)")
	}
	for link, target := range links {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	procs := filepath.Join(h.tree, "kubepods/burstable/poda/c/cgroup.procs")
	if err := os.WriteFile(procs, []byte(pids+fmt.Sprintln(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	looked := make(chan Kept, 1)
	go func() { looked <- h.Look(t.Context(), "a", "", nil, &Kept{holders: first}) }()
	select {
	case a := <-looked:
		if !a.cut || a.byDevice[h.disk].Bytes < 8<<20 {
			t.Errorf("usage with an unresponsive file system = %+v", a)
		}
		unix.Close(fuse) // waiting calls return an error
	case <-time.After(20 * time.Second):
		unix.Close(fuse)
		<-looked
		t.Error("the look does not end")
	}
}
