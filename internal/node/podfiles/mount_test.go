package podfiles

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"jettison/cri/critest"
	"jettison/stats/read"

	"golang.org/x/sys/unix"
)

// Environment of the test's child processes: their task and directory.
const (
	childRole = "JETTISON_REMOVE_TEST"
	childRoot = "JETTISON_REMOVE_TEST_ROOT"
)

const mayNotMount = "this user may not make mounts: the virtual machine's run of this test covers it (make e2e RUN=LiveTests)"

// TestLiveMounts runs mountAttacks in a process with its own mounts, which end with it.
func TestLiveMounts(t *testing.T) {
	switch os.Getenv(childRole) {
	case "attacked":
		for _, a := range mountAttacks() {
			t.Run(a.name, func(t *testing.T) {
				b := newBox(t, t.TempDir())
				a.attack(b)
				b.before = b.others()
				got, err := b.Volumes(t.Context(), ref.UID, nil)
				a.verify(b, got, err)
				b.check("volumes")
			})
		}
		t.Run("logs", logsBesideMounts)
		t.Run("shared memory", sharedMemory)
		return
	case "node":
		holdMounts(t)
		return
	}
	out, err := child(t, "attacked", "").CombinedOutput()
	if errors.Is(err, os.ErrPermission) || strings.Contains(string(out), mayNotMount) {
		t.Skip(mayNotMount)
	}
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("test process = %v, want PASS; output:\n%s", err, out)
	}
}

// child runs TestLiveMounts again in its own mount namespace, isolated from this one. The kernel
// sends Pdeathsig when the thread that started the child ends, and unmount ends its thread, so the
// test locks this thread.
func child(t *testing.T, role, root string) *exec.Cmd {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestLiveMounts$", "-test.v")
	cmd.Env = append(os.Environ(), childRole+"="+role, childRoot+"="+root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (b *box) mount(source, at, kind string, flags uintptr) {
	b.t.Helper()
	err := unix.Mount(source, at, kind, flags, "")
	if errors.Is(err, os.ErrPermission) { // a container may create a mount namespace without the permission to mount in it
		fmt.Println(mayNotMount)
		b.t.FailNow()
	}
	if err != nil {
		b.t.Fatalf("mount the file system %s on %s: %v", source, at, err)
	}
	b.t.Cleanup(func() {
		if unix.Unmount(at, unix.MNT_DETACH) != nil {
			_ = unix.Unmount(movedPath(at), unix.MNT_DETACH)
		}
	})
}

// memory mounts a memory-backed emptyDir.
func (b *box) memory(at string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(at, 0o755))
	b.mount("tmpfs", at, "tmpfs", 0)
	write(b.t, at+"/d/file")
}

func (b *box) bind(from, at string) {
	b.t.Helper()
	must(b.t, os.MkdirAll(at, 0o755))
	b.mount(from, at, "", unix.MS_BIND)
}

// sharedMemory unmounts a sandbox's /dev/shm, and no mount with a similar path.
func sharedMemory(t *testing.T) {
	b := newBox(t, t.TempDir())
	host, err := read.OpenHostRoot("/") // mountinfo is relative to this process's root
	must(t, err)
	t.Cleanup(func() { host.Close() })
	b.Host = host
	id, other := strings.Repeat("0123456789abcdef", 4), strings.Repeat("f", 64)
	const containerd, crio = "/run/containerd/sandboxes/", "/run/containers/overlay-containers/"
	gone := []string{b.root + containerd + id + "/shm", b.root + crio + id + "/userdata/shm"}
	stay := []string{
		b.root + containerd + other + "/shm", b.root + containerd + id + "/secret", b.root + containerd + id + "0/shm",
		b.root + containerd + "s/shm", b.root + containerd + id + "/bound/shm",
	}
	for _, at := range slices.Concat(gone, stay[:4]) {
		b.memory(at)
	}
	b.memory(b.root + "/elsewhere")
	b.bind(b.root+"/elsewhere/d", stay[4])
	bytes, err := b.SharedMemory(id)
	if err != nil || bytes == 0 {
		t.Errorf("unmounted memory = %d bytes, %v, want some", bytes, err)
	}
	for _, at := range gone {
		if _, err := os.Stat(at + "/d"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("stat below %s after the unmount = %v, want not exist", at, err)
		}
	}
	for _, at := range stay {
		if entries, err := os.ReadDir(at); err != nil || len(entries) == 0 {
			t.Errorf("entries of %s = %v, want the mount untouched", at, err)
		}
	}
	for _, id := range []string{id, "s", "", ".."} {
		if bytes, err := b.SharedMemory(id); err != nil || bytes != 0 {
			t.Errorf("SharedMemory(%q) = %d bytes, %v, want none", id, bytes, err)
		}
	}
	b.memory(gone[0])
	b.bind(gone[0], b.root+"/kept")
	if _, err := b.SharedMemory(id); err == nil || !strings.Contains(err.Error(), id) {
		t.Errorf("one that is mounted elsewhere, too: %v", err)
	}
}

func mountAttacks() []attack {
	const empty = "volumes/kubernetes.io~empty-dir/"
	return []attack{
		{name: "memory", attack: func(b *box) {
			b.memory(b.pod + "/" + empty + "cache")
			b.memory(b.pod + "/" + empty + "twice")
			b.memory(b.pod + "/" + empty + "twice")
		}},
		{name: "inside memory", attack: func(b *box) {
			b.memory(b.pod + "/" + empty + "cache")
			b.bind(b.outside, b.pod+"/"+empty+"cache/d/in side")
		}, wantError: `in side" is mounted inside`, stays: []string{empty + "cache/d/file", empty + "cache/d/in side/precious"}},
		{name: "inside", attack: func(b *box) { b.bind(b.outside, b.volume+"/sub/in") },
			wantError: "data/sub/in\": " + errMounted.Error(), stays: []string{empty + "data/sub/in/precious"}},
		{name: "a file inside", attack: func(b *box) { b.mount(b.outside+"/precious", b.volume+"/file", "", unix.MS_BIND) },
			wantError: "data/file\": " + errMounted.Error(), stays: []string{empty + "data/file"}},
		{name: "of its own file system inside", attack: func(b *box) { b.bind(b.volume, b.volume+"/sub") },
			wantError: "data/sub\": " + errMounted.Error(), stays: []string{empty + "data/sub"}},
		{name: "memory inside", attack: func(b *box) { b.memory(b.volume + "/sub") },
			wantError: "data/sub\": " + errMounted.Error(), stays: []string{empty + "data/sub/d/file"}},
		{name: "a bind of a disk", attack: func(b *box) { b.bind(b.outside, b.volume) },
			wantError: "is not an emptyDir", stays: []string{empty + "data/precious"}},
		{name: "a part of another memory", attack: func(b *box) {
			b.memory(b.root + "/elsewhere")
			b.bind(b.root+"/elsewhere/d", b.volume)
		}, wantError: "is not an emptyDir", stays: []string{empty + "data/file"}},
		{name: "all of another memory", attack: func(b *box) {
			b.memory(b.root + "/elsewhere")
			b.bind(b.root+"/elsewhere", b.volume)
		}, wantError: "/elsewhere\" is a mount of the same file system", stays: []string{empty + "data/d/file"}},
		{name: "the volumes", attack: func(b *box) { b.bind(b.outside, filepath.Dir(b.volume)) },
			wantError: "empty-dir\": " + errMounted.Error(), stays: []string{empty + "precious"}},
		{name: "the pod", attack: func(b *box) { b.bind(b.outside, b.pod) },
			wantError: "pods/u-1\": " + errMounted.Error(), stays: []string{"precious"}},
		{name: "etc-hosts", attack: func(b *box) { b.mount(b.outside+"/precious", b.pod+"/etc-hosts", "", unix.MS_BIND) },
			wantError: "etc-hosts\": " + errMounted.Error(), left: []string{"etc-hosts"}, stays: []string{"etc-hosts"}},
		{name: "containers", attack: func(b *box) { b.bind(b.outside, b.pod+"/containers") },
			wantError: "containers\": " + errMounted.Error(), stays: []string{"containers/precious"}},
		{name: "another plugin", attack: func(b *box) {
			b.memory(b.pod + "/volumes/kubernetes.io~secret")
			b.bind(b.outside, b.pod+"/volumes/kubernetes.io~csi/pvc/mount")
			b.bind(b.outside, b.pod+"/volume-subpaths")
		}, wantError: errMounted.Error(), left: []string{"volume-subpaths", "volumes/kubernetes.io~csi", "volumes/kubernetes.io~secret"},
			stays: []string{"volumes/kubernetes.io~csi/pvc/mount/precious", "volumes/kubernetes.io~secret/d/file", "volume-subpaths/precious"}},
		{name: "an empty one", attack: func(b *box) { // only the check before rmdir protects an empty mount point
			must(b.t, os.Mkdir(b.outside+"/empty", 0o755))
			b.bind(b.outside+"/empty", b.volume+"/sub/in")
		}, wantError: "sub/in\": " + errMounted.Error(), stays: []string{empty + "data/sub/in"}},
	}
}

func logsBesideMounts(t *testing.T) {
	b := newBox(t, t.TempDir())
	b.bind(b.outside, b.log+"/app/in")
	if _, err := b.Logs(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "app/in\": "+errMounted.Error()) {
		t.Error(err)
	}
	gone(t, b.log+"/app/0.log")
	b.check("inside")
	b.bind(b.outside, b.log)
	if _, err := b.Logs(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "u-1\": "+errMounted.Error()) {
		t.Error(err)
	}
	b.check("on it")
	// The log directory may be on its own disk.
	b = newBox(t, t.TempDir())
	b.memory(b.root + "/log/pods")
	write(t, b.log+"/app/0.log")
	b.before = b.others()
	if got, err := b.Logs(t.Context(), ref); err != nil || got.Entries != 3 {
		t.Errorf("Logs on its own disk = %+v, %v, want 3 entries removed", got, err)
	}
	gone(t, b.log)
	b.check("a disk of its own")
}

// In the agent's container the mount namespace is not the node's. There rmdir and unlink of a mount
// point of the node do not fail with EBUSY, but detach the mount (v6.12 fs/namei.c vfs_rmdir,
// is_local_mountpoint and detach_mounts).
func TestLiveMountsOfAnotherNamespace(t *testing.T) {
	b := newBox(t, t.TempDir())
	node := child(t, "node", b.root)
	in, err := node.StdinPipe()
	must(t, err)
	out, err := node.StdoutPipe()
	must(t, err)
	if err := node.Start(); errors.Is(err, os.ErrPermission) {
		t.Skip(mayNotMount)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = node.Wait()
	}()
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			t.Fatal("the node's process ended")
		}
		if strings.Contains(lines.Text(), mayNotMount) {
			t.Skip(mayNotMount)
		}
		if strings.Contains(lines.Text(), "mounted") {
			break
		}
	}
	proc := fmt.Sprintf("/proc/%d", node.Process.Pid)
	seen := newBox(t, proc+"/root"+b.root) // sees the files of b
	seen.Proc = proc
	got, err := seen.Volumes(t.Context(), ref.UID, nil)
	if err == nil || !strings.Contains(err.Error(), errMounted.Error()) || !strings.Contains(err.Error(), "(and 1 more)") {
		t.Errorf("removal = %+v, %v, want two errors about mounts", got, err)
	}
	gone(t, seen.pod+"/volumes/kubernetes.io~empty-dir/cache", seen.volume+"/file")
	for _, stays := range []string{movedPath(seen.volume) + "/dir/precious", movedPath(seen.volume) + "/one file"} {
		if info, err := os.Stat(stays); err != nil || info.Size() != 5000 {
			t.Errorf("stat of the protected file %s = %v, want 5000 bytes", stays, err)
		}
	}
	seen.check("seen from the node")
	mounts, err := os.ReadFile(proc + "/mountinfo")
	if n := strings.Count(string(mounts), movedPath(b.volume+"/")); err != nil || n != 2 {
		t.Errorf("%d mounts left below the volume, %v", n, err)
	}
	if strings.Contains(string(mounts), "/cache ") {
		t.Error("the memory-backed emptyDir is still mounted")
	}
}

// holdMounts creates the node's mounts and keeps them until its input ends.
func holdMounts(t *testing.T) {
	root := os.Getenv(childRoot)
	b := &box{t: t, root: root, pod: filepath.Join(root, "kubelet/pods", ref.UID), outside: filepath.Join(root, "outside")}
	b.volume = b.pod + "/volumes/kubernetes.io~empty-dir/data"
	b.memory(b.pod + "/volumes/kubernetes.io~empty-dir/cache")
	b.bind(b.outside, b.volume+"/dir")
	must(t, os.WriteFile(b.volume+"/one file", nil, 0o600))
	b.mount(b.outside+"/precious", b.volume+"/one file", "", unix.MS_BIND)
	fmt.Println("mounted")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// On a node whose root is a tmpfs, a volume on disk is a directory of that tmpfs: no mount to remove.
func TestAVolumeOnARootInMemory(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "volumes")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	var fs unix.Statfs_t
	if must(t, unix.Statfs(root, &fs)); fs.Type != unix.TMPFS_MAGIC {
		t.Fatal("/dev/shm is no tmpfs")
	}
	if bytes, err := newBox(t, root).MemoryVolumes(t.Context(), ref.UID); bytes != 0 || err != nil {
		t.Errorf("unmount of a volume on disk = %d bytes, %v, want no unmount", bytes, err)
	}
}

// A mountinfo with a malformed line is an error as a whole.
func TestAMountinfoThatIsNone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "mountinfo")
	const fine = "36 35 98:0 / /a\\040b rw,noatime master:1 - tmpfs tmpfs rw\n"
	for text, want := range map[string]int{fine: 1, "": 0, fine + "36 35\n": -1, fine + "1 1 0:1 / / rw\n": -1, fine + fine[:30]: -1} {
		must(t, os.WriteFile(name, []byte(text), 0o600))
		mounts, err := readMounts(name)
		switch {
		case want < 0 && (err == nil || mounts != nil), want >= 0 && (err != nil || len(mounts) != want):
			t.Errorf("mountinfo %q: %d mounts, %v, want %d", text, len(mounts), err, want)
		case want == 1 && (mounts[0].Mountpoint != "/a b" || mounts[0].FSType != "tmpfs" || mounts[0].Root != "/" || mounts[0].Parent != 35):
			t.Errorf("mount = %+v, want the unescaped point and its parent", mounts[0])
		}
	}
}

func FuzzDirent(f *testing.F) {
	f.Add([]byte("12345678\x00\x00\x00\x00\x00\x00\x00\x00\x18\x00\x08name\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			name, _, rest, err := dirent(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) || strings.ContainsRune(name, 0) {
				t.Fatalf("dirent = %q with %d of %d bytes left, want progress and no NUL", name, len(rest), len(b))
			}
			b = rest
		}
	})
}

// A user who may write to a mounted directory can make a mountinfo line of any length. Such a line
// of another mount does not prevent freeing a killed pod's memory, and the other mounts are still
// read.
func TestALongLineOfMountsKeepsNothing(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	point := "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/" + id + "/shm"
	long := "700 500 0:60 /" + strings.Repeat("d", 100<<10) + " /m rw - tmpfs tmpfs rw\n"
	proc := t.TempDir()
	text := long + "600 500 0:50 / " + point + " rw - tmpfs shm rw\n" + long
	if err := os.WriteFile(filepath.Join(proc, "mountinfo"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r := Remover{Proc: proc}
	if got, err := r.sharedMemoryPoints(id); err != nil || len(got) != 1 || got[0] != point {
		t.Errorf("mount points = %q, %v, want [%s]", got, err, point)
	}
	mounts, err := readMounts(filepath.Join(proc, "mountinfo"))
	if err != nil || len(mounts) != 3 || mounts[0].Parent != 500 || mounts[0].Mountpoint != "/m" || mounts[0].Root == "/" {
		t.Errorf("%d mounts read, %v, want 3 with the long root cut", len(mounts), err)
	}
}

// Each sandbox of a real CRI-O that is not stopped has its /dev/shm among the node's mounts.
func TestSharedMemoryOfARecordedCRIO(t *testing.T) {
	for _, name := range []string{critest.CRIOSystemd, critest.CRIOCgroupfs} {
		files := critest.Recorded(t, name)
		proc := t.TempDir()
		if err := os.WriteFile(proc+"/mountinfo", []byte(files["mountinfo"]), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &Remover{Proc: proc}
		for call := range files {
			id, ok := strings.CutPrefix(call, "PodSandboxStatus/")
			if !ok {
				continue
			}
			want := []string{"/run/containers/storage/overlay-containers/" + id + "/userdata/shm"}
			if strings.Contains(files[call], "SANDBOX_NOTREADY") {
				want = nil
			}
			if points, err := r.sharedMemoryPoints(id); !slices.Equal(points, want) || err != nil {
				t.Errorf("%s: /dev/shm of sandbox %s = %q, error %v, want %q", name, id, points, err, want)
			}
		}
	}
}
