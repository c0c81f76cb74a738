package openfiles

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats/read/mounts"
)

// processes gives the holder's pods these processes, with links as their directories in /proc:
// process 1 is the host's first.
func (h *holder) processes(of map[string]int, links map[string]string) {
	h.t.Helper()
	h.proc = h.t.TempDir()
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(h.proc, name)); err != nil {
			h.t.Fatal(err)
		}
	}
	for uid, pid := range of {
		text := ""
		if pid != 0 {
			text = fmt.Sprintln(pid)
		}
		procs := filepath.Join(h.tree, "kubepods/burstable/pod"+uid, "c/cgroup.procs")
		if err := os.WriteFile(procs, []byte(text), 0o644); err != nil {
			h.t.Fatal(err)
		}
	}
}

// Too many host mounts, caused by one tenant, make all figures lower bounds, but keep no old
// figure in them.
func TestWhatTheHostsMountsLackKeepsNoOldFigure(t *testing.T) {
	for _, long := range []int{0, 9} {
		h := newHolder(t, "a")
		self := fmt.Sprint(os.Getpid())
		h.processes(map[string]int{"a": os.Getpid()}, map[string]string{self: "/proc/self"})
		if err := os.Mkdir(filepath.Join(h.proc, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		line := "700 500 254:0 /" + strings.Repeat("d", 2<<20) + " /var/lib/kubelet/pods/x/volume-subpaths/v/c/0 rw - ext4 /dev/vda rw\n"
		mounts := strings.Repeat(line, long) + "600 500 254:0 / / rw - ext4 /dev/vda rw\n"
		if err := os.WriteFile(filepath.Join(h.proc, "1/mountinfo"), []byte(mounts), 0o644); err != nil {
			t.Fatal(err)
		}
		base := h.of("a", Kept{}).byDevice[h.disk].Bytes
		f := h.file("spill", 64<<20)
		h.unlink("spill")
		open := h.of("a", Kept{})
		f.Close()
		closed := h.of("a", open)
		if open.byDevice[h.disk].Bytes-base != 64<<20 || closed.byDevice[h.disk].Bytes != base || closed.cut {
			t.Errorf("%d lines of 2 MiB: while it was open %d MiB, then %d MiB, before %d MiB, cut %v",
				long, open.byDevice[h.disk].Bytes>>20, closed.byDevice[h.disk].Bytes>>20, base>>20, closed.cut)
		}
		if whole := long == 0; open.byDevice[h.disk].Partial == whole {
			t.Errorf("%d lines of 2 MiB: a lower bound: %v", long, open.byDevice[h.disk].Partial)
		}
	}
}

// A file that lost its name after the host's mounts were read still belongs to the pod with it
// as a volume, and not to the pod that sees the host's mounts.
func TestFileUnlinkedAfterTheMountsWereReadBelongsToItsPod(t *testing.T) {
	h := newHolder(t, "owner", "exporter")
	h.file("x", 64<<20).Close()
	target := filepath.Join(t.TempDir(), "pods/owner/volume-subpaths/volume/app/0")
	if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `mount --make-rprivate / && mount --bind "$0" "$1" && echo && exec sleep 60 >&-`, filepath.Join(h.dir, "x"), target)
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Skip("cannot mount here: ", err)
	}
	defer func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the error reports the kill
	}()
	if n, _ := out.Read(make([]byte, 1)); n != 1 {
		t.Skip("cannot mount here")
	}
	pid := cmd.Process.Pid
	proc := fmt.Sprint("/proc/", pid)
	h.processes(map[string]int{"owner": 0, "exporter": pid}, map[string]string{"1": proc, fmt.Sprint(pid): proc})
	h.of("owner", Kept{}) // reads the host's mounts
	h.unlink("x")
	exporter, owner := h.of("exporter", Kept{}), h.of("owner", Kept{})
	if e, o := exporter.byDevice[h.disk].Bytes, owner.byDevice[h.disk].Bytes; e != 0 || o != 64<<20 || exporter.cut || owner.cut {
		t.Errorf("pod that sees the host's mounts: %d MiB, cut %v; pod with the volume: %d MiB, cut %v", e>>20, exporter.cut, o>>20, owner.cut)
	}
	if time.Since(h.mounted) > mounts.Every {
		t.Skip("this machine is too slow: the mounts would be read again anyway")
	}
}

// A thread may have its own working directory.
func TestAThreadsOwnDirectoryWithoutANameCounts(t *testing.T) {
	h := newHolder(t, "a")
	before := h.of("a", Kept{}).byDevice[h.disk].Inodes
	stop, last := make(chan struct{}), 0
	defer close(stop)
	for _, in := range []string{"cwd", "root"} {
		gone := filepath.Join(h.dir, in)
		onThread(t, &last, stop, func() {
			err := errors.Join(os.Mkdir(gone, 0o755), unix.Unshare(unix.CLONE_FS), unix.Chdir(gone))
			if err == nil && in == "root" {
				err = errors.Join(unix.Chroot("."), unix.Chdir(".."))
			}
			if err != nil {
				t.Error(in, err)
			}
		})
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
		before++
		if got := h.of("a", Kept{}); got.byDevice[h.disk].Inodes != before || got.cut {
			t.Errorf("unnamed directory as %s: %d inodes, want %d, cut %v", in, got.byDevice[h.disk].Inodes, before, got.cut)
		}
	}
}

// A thread with a root of the same path as another's, under another mount, does not hide that
// thread's mounts.
func TestARootOfTheSamePathHidesNoMount(t *testing.T) {
	h := newHolder(t, "a")
	base := t.TempDir()
	root, other := filepath.Join(base, "root"), filepath.Join(base, "other")
	h.file("x", 128<<20).Close() // more than required: files of other tests may vanish meanwhile
	if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(other, 0o755), os.WriteFile(filepath.Join(root, "m"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	before := h.of("a", Kept{})
	stop, last := make(chan struct{}), 0
	defer close(stop)
	space, under := -1, -1
	var err error
	onThread(t, &last, stop, func() { // the decoy comes first
		if err = unix.Unshare(unix.CLONE_NEWNS); err == nil {
			err = errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
				unix.Mount(filepath.Join(h.dir, "x"), filepath.Join(root, "m"), "", unix.MS_BIND, ""))
		}
		if err != nil {
			return
		}
		space, err = unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			under, err = unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		if err == nil {
			err = errors.Join(unix.Mount(other, root, "", unix.MS_BIND, ""), unix.Chroot(root), unix.Chdir("/"))
		}
	})
	if err != nil {
		t.Skip("cannot mount here: ", err)
	}
	pass := func(fd int) int { // descriptors of this thread are not shared
		t.Helper()
		at, err := unix.Open(fmt.Sprintf("/proc/%d/task/%d/fd/%d", os.Getpid(), last, fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	space = pass(space)
	defer unix.Close(space)
	under = pass(under)
	defer unix.Close(under)
	onThread(t, &last, stop, func() {
		err = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(space, unix.CLONE_NEWNS), unix.Fchdir(under), unix.Chroot("."), unix.Chdir("/"))
	})
	if err != nil {
		t.Fatal(err)
	}
	h.unlink("x")
	h.hides("by a mount below a root", before)
}
