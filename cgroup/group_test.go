package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree creates a recorded tree: path to content.
func tree(t *testing.T, files map[string]string) *FS {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := OpenTree(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	return fs
}

func group(t *testing.T, fs *FS, path string) *Group {
	t.Helper()
	g, err := fs.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// A number, "max", a missing file and a vanished cgroup give four different results.
func TestAbsentIsNotZero(t *testing.T) {
	fs := tree(t, map[string]string{
		"a/cgroup.procs": "", "a/memory.max": "max\n", "a/memory.current": "0\n",
		"b/cgroup.procs": "", "b/memory.max": "4096\n",
	})
	var buf [256]byte
	a, b := group(t, fs, "a"), group(t, fs, "/b/")
	if v, err := a.MemoryCurrent(buf[:]); v != 0 || err != nil {
		t.Errorf("file with 0: value %d, error %v, want 0", v, err)
	}
	if l, err := a.MemoryMax(buf[:]); !l.Unlimited || err != nil {
		t.Errorf("file with max: limit %+v, error %v, want unlimited", l, err)
	}
	if l, err := b.MemoryMax(buf[:]); l != (Limit{Bytes: 4096}) || err != nil {
		t.Errorf("file with a number: limit %+v, error %v", l, err)
	}
	if _, err := b.MemoryCurrent(buf[:]); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrVanished) {
		t.Errorf("missing file: got %v, want os.ErrNotExist", err)
	}
	if err := os.RemoveAll(filepath.Join(fs.Mount(), "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.MemoryMin(buf[:]); !errors.Is(err, ErrVanished) {
		t.Errorf("removed: got %v, want ErrVanished", err)
	}
	if _, err := fs.Group("b"); !errors.Is(err, ErrVanished) {
		t.Errorf("open removed: got %v, want ErrVanished", err)
	}
}

// A Group stays the cgroup that was opened, even if a new one has its path.
func TestAGroupIsNotItsPath(t *testing.T) {
	fs := tree(t, map[string]string{"pod/cgroup.procs": "", "pod/memory.current": "1\n"})
	old := group(t, fs, "pod")
	if err := os.Rename(filepath.Join(fs.Mount(), "pod"), filepath.Join(fs.Mount(), "gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(fs.Mount(), "pod"), 0o755); err != nil {
		t.Fatal(err)
	}
	now := group(t, fs, "pod")
	if old.ID() == now.ID() {
		t.Error("two groups with one identity")
	}
	var buf [64]byte
	if v, err := old.MemoryCurrent(buf[:]); v != 1 || err != nil {
		t.Errorf("the old group reads %d, %v", v, err)
	}
}

func TestNothingOutsideTheRootIsOpened(t *testing.T) {
	fs := tree(t, map[string]string{"a/cgroup.procs": ""})
	if err := os.Symlink("/etc", filepath.Join(fs.Mount(), "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"..", "../..", "a/../..", "link", "a/../../etc"} {
		if g, err := fs.Group(path); err == nil {
			g.Close()
			t.Errorf("opened %q outside the root", path)
		}
	}
}

func TestAFileLongerThanTheBufferIsAnError(t *testing.T) {
	fs := tree(t, map[string]string{"a/cgroup.procs": "", "a/memory.current": "123456789\n"})
	var small [4]byte
	if v, err := group(t, fs, "a").MemoryCurrent(small[:]); err == nil {
		t.Errorf("got %d: a truncated number", v)
	}
}

func TestChildren(t *testing.T) {
	fs := tree(t, map[string]string{"kubepods/podA/x": "", "kubepods/podB/x": "", "kubepods/file": "", "kubepods/burstable/podC/x": ""})
	var got []string
	if err := fs.Children("kubepods", make([]byte, 4096), func(name string) { got = append(got, name) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if want := []string{"burstable", "podA", "podB"}; !slices.Equal(got, want) {
		t.Errorf("children of the group = %v, want %v", got, want)
	}
	if err := fs.Children("none", make([]byte, 4096), func(string) { t.Error("a child of nothing") }); err != nil {
		t.Errorf("listing a path that does not exist: error %v", err)
	}
}

// A directory with more entries than fit the buffer is read in several calls.
func TestChildrenOfALargeDirectory(t *testing.T) {
	files := map[string]string{}
	for i := range 500 {
		files["kubepods/pod"+strconv.Itoa(i)+"/x"] = ""
	}
	fs, n := tree(t, files), 0
	if err := fs.Children("kubepods", make([]byte, 1024), func(string) { n++ }); err != nil || n != 500 {
		t.Errorf("large directory has %d children, error %v", n, err)
	}
}

func TestOpenRefusesWhatIsNotCgroup2(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotV2) {
		t.Errorf("Open of another file system: error %v, want ErrNotV2", err)
	}
	if _, err := Open("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of a missing directory: error %v, want os.ErrNotExist", err)
	}
	v1 := t.TempDir()
	if err := os.MkdirAll(filepath.Join(v1, "memory"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v1, "memory/memory.usage_in_bytes"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(v1); err == nil || !strings.Contains(err.Error(), "cgroup v1") {
		t.Errorf("Open of a v1 hierarchy: error %v, want one that names cgroup v1", err)
	}
}

// live creates a cgroup for the test in this machine's cgroup v2 hierarchy, at any mount point;
// it needs no controllers.
func live(t *testing.T) (*FS, *Group) {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		fs, err := Open(mount)
		if err != nil {
			continue
		}
		t.Cleanup(func() { fs.Close() })
		name := "jettison-test-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(t.Name())
		if err := os.Mkdir(filepath.Join(mount, name), 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { _ = unix.Rmdir(filepath.Join(mount, name)) })
		return fs, group(t, fs, name)
	}
	t.Skip("no cgroup v2 hierarchy that this user may write to: the virtual machine's scenarios cover this")
	return nil, nil
}

// sleeper starts a process in a group; the test waits for it.
func sleeper(t *testing.T, fs *FS, g *Group) *exec.Cmd {
	t.Helper()
	dir, err := os.Open(filepath.Join(fs.Mount(), g.path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestKillThenWaitEmpty(t *testing.T) {
	fs, g := live(t)
	cmd := sleeper(t, fs, g)
	var pids []int
	if err := g.Procs(make([]byte, 4096), func(pid int) { pids = append(pids, pid) }); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Fatalf("processes of the group = %v, error %v, want one", pids, err)
	}
	if err := g.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a group with a process: got %v, want os.ErrDeadlineExceeded", err)
	}
	empty := make(chan error)
	go func() { empty <- g.WaitEmpty(t.Context(), time.Minute) }()
	other := group(t, fs, g.path) // use a Group from one goroutine at a time
	if err := kill(other); err != nil {
		t.Fatal(err)
	}
	if err := <-empty; err != nil {
		t.Fatal(err)
	}
	if e, err := other.Events(make([]byte, 256)); e.Populated || err != nil {
		t.Errorf("events after the kill = %+v, error %v", e, err)
	}
}

func TestWaitEmptyEndsWithItsContext(t *testing.T) {
	fs, g := live(t)
	sleeper(t, fs, g)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- g.WaitEmpty(ctx, time.Hour) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("WaitEmpty with an ended context: error %v", err)
	}
	other := group(t, fs, g.path)
	if err := kill(other); err != nil {
		t.Fatal(err)
	}
	if err := other.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// Reading a kept file of a removed cgroup returns ErrVanished, and waiting for it to be empty
// ends.
func TestAVanishedGroup(t *testing.T) {
	fs, g := live(t)
	if _, err := g.Events(make([]byte, 256)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Rmdir(filepath.Join(fs.Mount(), g.path)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Events(make([]byte, 256)); !errors.Is(err, ErrVanished) {
		t.Errorf("events: got %v, want ErrVanished", err)
	}
	if err := g.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Errorf("WaitEmpty on a vanished group: error %v", err)
	}
	if err := kill(g); !errors.Is(err, ErrVanished) {
		t.Errorf("kill: got %v, want ErrVanished", err)
	}
}

// kill kills all processes of a group, as the agent does.
func kill(g *Group) error {
	fd, err := g.OpenKill()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return g.WriteKill(fd)
}
