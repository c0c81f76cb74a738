package podfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ref = stats.PodReference{Namespace: "shop", Name: "web-0", UID: "u-1"}

// box is a node in a directory: a pod with logs and an emptyDir, another pod, and files outside.
type box struct {
	*Remover
	t                  testing.TB
	root               string
	pod, volume, log   string // of the pod: its directory, one of its emptyDirs, its logs
	outside, neighbour string
	before             map[string]string
}

func newBox(t testing.TB, root string) *box {
	t.Helper()
	host, err := read.OpenHostRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	pods := filepath.Join(root, "kubelet/pods")
	b := &box{Remover: &Remover{Host: host, RootDir: "/kubelet", PodLogsDir: "/log/pods"}, t: t, root: root,
		pod: filepath.Join(pods, ref.UID), log: filepath.Join(root, "log/pods/shop_web-0_u-1"),
		outside: filepath.Join(root, "outside"), neighbour: filepath.Join(pods, "u-2/volumes/kubernetes.io~empty-dir/data"),
	}
	b.volume = filepath.Join(b.pod, "volumes/kubernetes.io~empty-dir/data")
	for _, file := range []string{
		b.volume + "/sub/file", b.volume + "/file", b.pod + "/etc-hosts", b.pod + "/containers/app/1234",
		b.pod + "/plugins/kubernetes.io~empty-dir/wrapped_data/ready", b.log + "/app/0.log", b.log + "/app/0.log.20260101-000000.gz",
		b.outside + "/precious", b.outside + "/dir/precious", b.neighbour + "/precious", root + "/log/pods/shop_web-1_u-2/app/0.log",
	} {
		write(t, file)
	}
	b.before = b.others()
	return b
}

func write(t testing.TB, file string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, make([]byte, 5000), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// others returns the path, mode and size of every file that does not belong to the pod.
func (b *box) others() map[string]string {
	out := map[string]string{}
	must(b.t, filepath.WalkDir(b.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == b.pod || path == b.log {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err == nil && d.IsDir() {
			out[path] = info.Mode().String()
		} else if err == nil {
			out[path] = fmt.Sprint(info.Mode(), info.Size())
		}
		return err
	}))
	return out
}

// check compares the files outside the pod's directories with their initial state.
func (b *box) check(context string) {
	b.t.Helper()
	if now := b.others(); !maps.Equal(now, b.before) {
		for path, what := range b.before {
			if now[path] != what {
				b.t.Errorf("%s: %s = %q, want %s unchanged", context, path, now[path], what)
			}
		}
		for path := range now {
			if _, ok := b.before[path]; !ok {
				b.t.Errorf("%s: file %s is new, want no new file", context, path)
			}
		}
	}
}

func gone(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("stat of removed %s = %v, want not exist", path, err)
		}
	}
}

func TestAPodsFiles(t *testing.T) {
	b := newBox(t, t.TempDir())
	got, err := b.Volumes(t.Context(), ref.UID, nil)
	// data, sub, 2 files; the plugin's 4 (kubernetes.io~empty-dir twice), ready; containers, app, 1234; etc-hosts; volumes,
	// plugins and the pod's own.
	if err != nil || got.Entries != 15 || got.Bytes < 4*5000 || got.Bytes > 100000 || got.Left != nil {
		t.Errorf("Volumes = %+v, %v, want 15 entries and nothing left", got, err)
	}
	gone(t, b.pod)
	got, err = b.Logs(t.Context(), ref)
	if err != nil || got.Entries != 4 || got.Bytes < 2*5000 {
		t.Errorf("Logs = %+v, %v, want 4 entries", got, err)
	}
	gone(t, b.log)
	b.check("after both")
	for range 2 {
		got, err = b.Volumes(t.Context(), ref.UID, nil)
		again, err2 := b.Logs(t.Context(), ref)
		if err != nil || err2 != nil || got.Entries+again.Entries != 0 {
			t.Errorf("second removal = %+v, %v and %+v, %v, want no entries", got, err, again, err2)
		}
		b.RootDir, b.PodLogsDir = "/no/such", "/no/such" // a node that never had a kubelet
	}
}

// Links of the administrator in the configured paths are followed, as the kubelet does.
func TestTheConfiguredDirectoriesMayBeLinks(t *testing.T) {
	b := newBox(t, t.TempDir())
	must(t, os.Symlink("/kubelet", filepath.Join(b.root, "var-lib-kubelet")), os.Symlink("/log", filepath.Join(b.root, "var-log")))
	b.before = b.others()
	b.RootDir, b.PodLogsDir = "/var-lib-kubelet/", "/var-log/pods"
	_, err := b.Volumes(t.Context(), ref.UID, nil)
	_, err2 := b.Logs(t.Context(), ref)
	must(t, err, err2)
	gone(t, b.pod, b.log)
	b.check("through links")
}

// The pod may be restarted at any time: its new files stay, and files of its former life are
// removed if they can be distinguished.
func TestAPodThatIsBack(t *testing.T) {
	back := errors.New("it is back")
	for n, want := range map[int]string{1: "old", 2: "old", 3: "new"} {
		b := newBox(t, t.TempDir())
		calls := 0
		_, err := b.Volumes(t.Context(), ref.UID, func() error {
			if calls++; calls < n {
				return nil
			}
			if n == 3 {
				gone(t, b.volume) // moved aside and removed
				must(t, os.MkdirAll(b.volume, 0o755))
				must(t, os.WriteFile(b.volume+"/new", nil, 0o600))
			}
			return back
		})
		if !errors.Is(err, back) || calls != n {
			t.Errorf("restart before call %d: error = %v after %d calls, want the error of back", n, err, calls)
		}
		file := b.volume + "/new"
		if want == "old" {
			file = b.volume + "/file"
		}
		if _, err := os.Lstat(file); err != nil {
			t.Errorf("restart before call %d: stat of the file = %v, want it kept", n, err)
		}
		gone(t, filepath.Join(b.pod, "volumes", aside))
	}
}

// An interrupted removal is continued, even if the pod was restarted: the volumes moved aside belong to its former life.
func TestWhatWasPutAsideGoes(t *testing.T) {
	b := newBox(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := b.Volumes(ctx, ref.UID, func() error {
		if calls++; calls == 2 {
			cancel()
		}
		return nil
	})
	left := filepath.Join(b.pod, "volumes", aside)
	if _, there := os.Lstat(left); !errors.Is(err, context.Canceled) || there != nil {
		t.Fatalf("canceled removal = %v, stat of the moved file = %v, want canceled and the file kept", err, there)
	}
	write(t, b.volume+"/new")
	back := errors.New("it is back")
	if _, err := b.Volumes(t.Context(), ref.UID, func() error { return back }); !errors.Is(err, back) {
		t.Error(err)
	}
	gone(t, left)
	if _, err := os.Lstat(b.volume + "/new"); err != nil {
		t.Error(err)
	}
}

func TestNamesThatAreNoPods(t *testing.T) {
	b := newBox(t, t.TempDir())
	b.pod, b.log = "", "" // everything must stay
	b.before = b.others()
	for _, bad := range []string{"", ".", "..", "../..", "u-1/..", "/", "u-1/volumes", "u\x00", strings.Repeat("u", 256), "../../outside"} {
		if got, err := b.Volumes(t.Context(), bad, nil); err == nil || got.Entries != 0 {
			t.Errorf("Volumes of UID %q = %+v, %v, want an error without removals", bad, got, err)
		}
		for _, pod := range []stats.PodReference{{Namespace: bad, Name: "n", UID: "u"}, {Namespace: "n", Name: bad, UID: "u"}, {Namespace: "n", Name: "n", UID: bad}} {
			if got, err := b.Logs(t.Context(), pod); err == nil || got.Entries != 0 || len(err.Error()) > 300 {
				t.Errorf("Logs of pod %+q = %+v, %v, want a short error without removals", pod, got, err)
			}
		}
	}
	// Its log directory would be that of shop/web-1, UID u-2.
	if _, err := b.Logs(t.Context(), stats.PodReference{Namespace: "shop", Name: "web-1", UID: "_u-2"}); err == nil {
		t.Error("a name with another pod's in it")
	}
	b.check("bad names")
}

// attack is a set of hostile leftovers. wantError is a part of the expected error; empty: no error.
type attack struct {
	name      string
	attack    func(b *box)
	wantError string
	left      []string
	stays     []string // below the pod's directory
}

func attacks() []attack {
	link := func(b *box, to, at string) {
		must(b.t, os.RemoveAll(at), os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(to, at))
	}
	return []attack{
		{name: "links inside", attack: func(b *box) {
			for i, to := range []string{b.outside, b.outside + "/precious", "..", "/", ".", b.neighbour, "/proc/self/root", "../../../../u-2"} {
				link(b, to, fmt.Sprintf("%s/sub/link%d", b.volume, i))
			}
		}},
		{name: "a volume is a link", attack: func(b *box) { link(b, b.outside, b.volume) }},
		{name: "the volumes are a link", attack: func(b *box) { link(b, b.outside, filepath.Dir(b.volume)) },
			wantError: "volumes/kubernetes.io~empty-dir\": not a directory", stays: []string{"volumes"}},
		{name: "all volumes are a link", attack: func(b *box) { link(b, "../u-2/volumes", b.pod+"/volumes") },
			wantError: "u-1/volumes\": not a directory", stays: []string{"volumes"}},
		{name: "the pod is a link", attack: func(b *box) { link(b, "u-2", b.pod) }, wantError: "pods/u-1\": not a directory", stays: []string{"."}},
		{name: "containers is a link", attack: func(b *box) { link(b, b.outside, b.pod+"/containers") }, wantError: "/containers\": not a directory", stays: []string{"containers"}},
		{name: "plugins is a link", attack: func(b *box) { link(b, b.outside, b.pod+"/plugins") }, wantError: "/plugins\": not a directory", stays: []string{"plugins"}},
		{name: "etc-hosts is a directory", attack: func(b *box) {
			must(b.t, os.Remove(b.pod+"/etc-hosts"))
			write(b.t, b.pod+"/etc-hosts/x")
		}, wantError: "/etc-hosts\": not a regular file", left: []string{"etc-hosts"}, stays: []string{"etc-hosts/x"}},
		{name: "hard links", attack: func(b *box) { must(b.t, os.Link(b.outside+"/precious", b.volume+"/mine")) }},
		{name: "other plugins", attack: func(b *box) {
			write(b.t, b.pod+"/volumes/kubernetes.io~csi/pvc-1/mount/precious")
			write(b.t, b.pod+"/volumes/kubernetes.io~nfs/share/precious")
			write(b.t, b.pod+"/plugins/kubernetes.io~csi/precious")
			write(b.t, b.pod+"/strange/precious")
			must(b.t, os.Mkdir(b.pod+"/volumes/kubernetes.io~secret", 0o755), os.Mkdir(b.pod+"/volume-subpaths", 0o755))
		}, left: []string{"plugins/kubernetes.io~csi", "strange", "volumes/kubernetes.io~csi", "volumes/kubernetes.io~nfs"},
			stays: []string{"volumes/kubernetes.io~csi/pvc-1/mount/precious", "volumes/kubernetes.io~nfs/share/precious", "plugins/kubernetes.io~csi/precious", "strange/precious"}},
		{name: "odd entries", attack: func(b *box) {
			must(b.t, unix.Mkfifo(b.volume+"/fifo", 0o600), os.Chmod(b.volume, forRoot(0)), unix.Mknod(b.volume+"/socket", unix.S_IFSOCK|0o600, 0))
			for _, name := range []string{"\n", "-rf", "...", strings.Repeat("ä", 127), "\xff\xfe", ".jettison-removes-1"} {
				must(b.t, os.WriteFile(filepath.Join(b.volume, name), nil, 0))
			}
			must(b.t, os.WriteFile(filepath.Dir(b.volume)+"/no directory", nil, 0))
		}},
	}
}

func TestAttacksByWhatAPodLeft(t *testing.T) {
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			b := newBox(t, t.TempDir())
			a.attack(b)
			got, err := b.Volumes(t.Context(), ref.UID, nil)
			a.verify(b, got, err)
			b.check("volumes")
		})
	}
}

func (a attack) verify(b *box, got Result, err error) {
	b.t.Helper()
	slices.Sort(got.Left)
	if (err == nil) != (a.wantError == "") || err != nil && (!strings.Contains(err.Error(), a.wantError) || strings.Contains(err.Error(), "\n")) || !slices.Equal(got.Left, a.left) {
		b.t.Errorf("left %v, %v; want %v, %q", got.Left, err, a.left, a.wantError)
	}
	for _, path := range a.stays {
		_, err := os.Lstat(filepath.Join(b.pod, path))
		if _, aside := os.Lstat(filepath.Join(b.pod, movedPath(path))); err != nil && aside != nil {
			b.t.Error(err, aside)
		}
	}
	if a.stays == nil {
		gone(b.t, b.pod)
	} else if !slices.Contains(a.stays, "volumes") && !slices.Contains(a.stays, ".") {
		for _, stays := range a.stays {
			if strings.HasPrefix(filepath.Join(b.pod, stays), b.volume) {
				return
			}
		}
		gone(b.t, b.volume)
	}
}

func TestALogDirectoryThatIsNone(t *testing.T) {
	for name, attack := range map[string]func(b *box) error{
		"a link": func(b *box) error { return os.Symlink(b.outside, b.log) },
		"a file": func(b *box) error { return os.WriteFile(b.log, nil, 0o600) },
	} {
		b := newBox(t, t.TempDir())
		must(t, os.RemoveAll(b.log), attack(b))
		if got, err := b.Logs(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "log/pods/shop_web-0_u-1\": not a directory") || got.Entries != 0 {
			t.Errorf("%s: Logs = %+v, %v, want an error about the entry without removals", name, got, err)
		}
		b.check(name)
	}
}

// A file counts when its last link is removed.
func TestBytesOfHardLinks(t *testing.T) {
	removed := func(link func(b *box) error) uint64 {
		b := newBox(t, t.TempDir())
		must(t, link(b))
		got, err := b.Volumes(t.Context(), ref.UID, nil)
		must(t, err)
		return got.Bytes
	}
	none := removed(func(*box) error { return nil })
	outside := removed(func(b *box) error { return os.Link(b.outside+"/precious", b.volume+"/mine") })
	inside := removed(func(b *box) error { return os.Link(b.volume+"/file", b.volume+"/sub/again") })
	if none == 0 || outside != none || inside != none {
		t.Errorf("%d bytes; %d with a name of a file outside, %d with a second one inside", none, outside, inside)
	}
}

// A tenant controls the depth and the number of its directories.
func TestADeepTreeGoes(t *testing.T) {
	const depth = 3000
	b := newBox(t, t.TempDir())
	fd, err := unix.Open(b.volume, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range depth {
		name := strings.Repeat("d", 200)
		must(t, unix.Mkdirat(fd, name, 0o755), unix.Mkdirat(fd, "side", 0o755))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		must(t, err)
		fd = next
	}
	unix.Close(fd)
	before := descriptors(t)
	got, err := b.Volumes(t.Context(), ref.UID, nil)
	if err != nil || got.Entries != 15+2*depth {
		t.Errorf("removal of a deep tree = %+v, %v, want %d entries", got, err, 15+2*depth)
	}
	gone(t, b.pod)
	b.check("deep")
	if after := descriptors(t); after != before {
		t.Errorf("open descriptors after the removal = %d, want %d as before", after, before)
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}

func TestManyEntriesTakeNoMemory(t *testing.T) {
	const many = 6000
	b := newBox(t, t.TempDir())
	pad := strings.Repeat("x", 200)
	for i := range many {
		must(t, os.Mkdir(fmt.Sprintf("%s/%s%d", b.volume, pad, i), 0o755), os.WriteFile(fmt.Sprintf("%s/f%d", b.volume, i), nil, 0o600))
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most, seen := heap(), int64(0), 0
	tr := newTree("")
	tr.each = func(int, string) {
		if seen++; seen%1500 == 0 {
			most = max(most, heap())
		}
	}
	dir, err := b.Host.Dir("/kubelet/pods/u-1/volumes")
	must(t, err)
	defer unix.Close(dir)
	err = tr.remove(t.Context(), dir, emptyDirPlugin)
	if err = tr.error(err); err != nil || tr.result.Entries != 2*many+5 {
		t.Errorf("removal of a wide tree = %+v, %v, want %d entries", tr.result, err, 2*many+5)
	}
	if most-before > 1<<20 {
		t.Errorf("the heap grew by %d bytes", most-before)
	}
	if tr.names != 0 || len(tr.levels) != 0 {
		t.Errorf("%d names of %d levels left", tr.names, len(tr.levels))
	}
}

// hooked runs a removal of the pod's emptyDirs with a hook at each entry.
func (b *box) hooked(ctx context.Context, each func(dir int, name string)) (Result, error) {
	t := newTree(b.RootDir)
	t.each = each
	dir, err := b.Host.Dir("/kubelet/pods/u-1/volumes")
	must(b.t, err)
	defer unix.Close(dir)
	err = t.remove(ctx, dir, emptyDirPlugin)
	return t.result, t.error(err)
}

func TestARemovalEnds(t *testing.T) {
	b := newBox(t, t.TempDir())
	for i := range 100 {
		write(t, fmt.Sprintf("%s/sub/%d", b.volume, i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	got, err := b.hooked(ctx, func(int, string) {
		if seen++; seen == 10 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || seen != 10 || got.Entries == 0 || got.Entries > 10 {
		t.Errorf("canceled removal: %d entries seen, %+v, %v, want the end after 10", seen, got, err)
	}
	if _, err := b.Volumes(t.Context(), ref.UID, nil); err != nil {
		t.Error(err)
	}
	gone(t, b.pod)
	b.check("interrupted")
}

// Between the stat of an entry and its removal another program replaces it with a link to another place, or moves directories of the walk:
// only their content is removed.
func TestATreeThatChanges(t *testing.T) {
	b := newBox(t, t.TempDir())
	for i := range 20 {
		write(t, fmt.Sprintf("%s/d%d/e/f/file", b.volume, i))
	}
	n := 0
	if _, err := b.hooked(t.Context(), func(dir int, name string) {
		n++
		away := fmt.Sprintf("%s/moved%d", b.pod, n)
		switch {
		case name == "e": // its parent directory is moved away and replaced by a link
			path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
			must(t, err, os.Rename(path, away), os.Symlink(b.outside, path))
		case name == "file": // the file is replaced by a directory
			if err := unix.Unlinkat(dir, name, 0); err == nil {
				must(t, unix.Mkdirat(dir, name, 0o700))
			}
		case strings.HasPrefix(name, "d") && name != "data":
			if st, _, err := stat(dir, name); err == nil && isDir(&st) && n%2 == 0 {
				must(t, unix.Renameat(dir, name, unix.AT_FDCWD, away), unix.Symlinkat(b.outside, dir, name))
			}
		}
	}); err != nil {
		t.Error(err)
	}
	gone(t, filepath.Dir(b.volume))
	b.check("changing")
}

// Another program still writes: the removal ends with an error.
func TestADirectoryThatFillsUp(t *testing.T) {
	b := newBox(t, t.TempDir())
	n := 0
	b.before = b.others()
	got, err := b.hooked(t.Context(), func(dir int, _ string) {
		if n++; n%2 == 0 {
			_ = unix.Mknodat(dir, fmt.Sprint("new", n), unix.S_IFREG|0o600, 0)
		} else {
			must(t, os.WriteFile(fmt.Sprintf("%s/new%d", filepath.Dir(b.volume), n), nil, 0o600))
		}
	})
	if err == nil || !strings.Contains(err.Error(), errStillWritten.Error()) || got.Entries < maxPasses {
		t.Errorf("removal = %+v, %v, want an error about the writer after %d entries", got, err, maxPasses)
	}
	b.check("full")
}

// An entry that cannot be removed is named in the error, and does not block the others.
func TestImmutableFiles(t *testing.T) {
	b := newBox(t, t.TempDir())
	for i := range 10 {
		write(t, fmt.Sprintf("%s/locked/d%d/fixed", b.volume, i))
		write(t, fmt.Sprintf("%s/locked/d%d/free", b.volume, i))
		path := fmt.Sprintf("%s/locked/d%d/fixed", b.volume, i)
		if err := setFlags(path, unix.STATX_ATTR_IMMUTABLE); err != nil {
			t.Skipf("this file system has no immutable files: %v", err)
		}
		t.Cleanup(func() { must(t, setFlags(movedPath(path), 0)) })
	}
	got, err := b.Volumes(t.Context(), ref.UID, nil)
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "/fixed\": operation not permitted (and 9 more)") {
		t.Errorf("removal with immutable files = %+v, %v, want EPERM and 9 more errors", got, err)
	}
	gone(t, b.volume+"/locked/d3/free", b.volume+"/file", b.pod+"/etc-hosts")
	b.check("immutable")
}

// setFlags sets a file's attributes (include/uapi/linux/fs.h FS_IOC_SETFLAGS; FS_IMMUTABLE_FL is STATX_ATTR_IMMUTABLE).
func setFlags(path string, flags int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// Volumes moved aside are listed and removed regardless of the pod's state; its volumes under the plain name stay.
func TestSetAside(t *testing.T) {
	b := newBox(t, t.TempDir())
	back := errors.New("it is back")
	for n := range 2 { // restarted before the first call of back, or before the second
		calls := 0
		err := b.MoveVolumesAside(ref.UID, func() error {
			if calls++; calls > n {
				return back
			}
			return nil
		})
		if _, there := os.Lstat(b.volume + "/file"); !errors.Is(err, back) || there != nil {
			t.Errorf("restart before call %d: error %v, stat of the volume %v, want the error of back and the volume kept", n+1, err, there)
		}
	}
	if uids, err := b.PodsWithMovedVolumes(); err != nil || uids != nil {
		t.Errorf("PutAside after a restart = %v, %v, want none", uids, err)
	}
	here := func() error { return nil }
	must(t, b.MoveVolumesAside(ref.UID, here), b.MoveVolumesAside("none", here))
	gone(t, b.volume)
	write(t, b.volume+"/new")
	must(t, b.MoveVolumesAside(ref.UID, here)) // again: the volumes of the next life
	gone(t, b.volume)
	write(t, b.volume+"/new")
	if uids, err := b.PodsWithMovedVolumes(); err != nil || !slices.Equal(uids, []string{ref.UID}) {
		t.Errorf("PutAside = %v, %v, want the pod", uids, err)
	}
	got, err := b.RemoveMovedVolumes(t.Context(), ref.UID, neverGone)
	if err != nil || got.Entries < 4 || got.Bytes < 2*5000 {
		t.Errorf("Aside = %+v, %v, want at least 4 entries", got, err)
	}
	if _, err := os.Lstat(b.volume + "/new"); err != nil {
		t.Error(err)
	}
	if uids, err := b.PodsWithMovedVolumes(); err != nil || uids != nil {
		t.Errorf("PutAside after the removal = %v, %v, want none", uids, err)
	}
	if got, err := b.RemoveMovedVolumes(t.Context(), ref.UID, neverGone); err != nil || got.Entries != 0 {
		t.Errorf("second Aside = %+v, %v, want no entries", got, err)
	}
	for _, bad := range []string{"", "..", "u-1/.."} {
		if _, err := b.RemoveMovedVolumes(t.Context(), bad, neverGone); err == nil || b.MoveVolumesAside(bad, here) == nil {
			t.Errorf("UID %q accepted, want an error", bad)
		}
	}
	b.check("set aside")
}
