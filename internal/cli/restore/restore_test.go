package restore

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/internal/base/atomicfile"
	"jettison/internal/base/filetest"
)

// tree returns a hierarchy of files with support for notes (extended attributes).
func tree(t *testing.T, files map[string]string) (*cgroup.FS, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		filetest.Write(t, filepath.Join(dir, name), text)
		filetest.Write(t, filepath.Join(dir, filepath.Dir(name), "cgroup.procs"), "")
	}
	filetest.Write(t, filepath.Join(dir, "cgroup.procs"), "")
	if err := unix.Setxattr(dir, "trusted.jettison.try", nil, 0); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	if err := unix.Removexattr(dir, "trusted.jettison.try"); err != nil {
		t.Fatal(err)
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	return fs, dir
}

func note(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := unix.Setxattr(dir, name, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

func checkFile(t *testing.T, name, want string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if got := strings.TrimSpace(string(b)); err != nil || got != want {
		t.Errorf("content of %s = %q, want %q (error %v)", name, got, want, err)
	}
}

// notesIn returns the notes below a directory.
func notesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		buf := make([]byte, 4096)
		n, err := unix.Listxattr(path, buf)
		for name := range strings.SplitSeq(string(buf[:max(n, 0)]), "\x00") {
			if strings.Contains(name, "jettison") {
				names = append(names, strings.TrimPrefix(path, dir)+" "+name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// crashed returns the cgroups of a node where an agent was killed with all its settings in place.
func crashed(t *testing.T) (*cgroup.FS, string) {
	t.Helper()
	fs, dir := tree(t, map[string]string{
		"system.slice/memory.min": "51380224\n", "system.slice/jettison.service/memory.oom.group": "0\n", "system.slice/other.service/memory.min": "4096\n",
		"kubepods/memory.max": "1048576\n", "kubepods/memory.current": "4096\n", "kubepods/pids.max": "100\n", "kubepods/cpu.weight": "39\n",
		"kubepods/pod1/memory.min": "8192\n", "kubepods/pod1/memory.low": "0\n", "kubepods/pod1/memory.high": "max\n",
		"kubepods/pod1/cgroup.freeze": "1\n",
	})
	note(t, dir+"/system.slice", "user.jettison.memory.min", "1048576 51380224")
	note(t, dir+"/system.slice/jettison.service", "user.jettison.memory.oom.group", "1 0")
	note(t, dir+"/system.slice/other.service", "user.jettison.memory.min", "0 8192") // changed later by another program
	note(t, dir+"/kubepods", "trusted.jettison.before.memory.max", "max max 1048576")
	note(t, dir+"/kubepods", "trusted.jettison.before.pids.max", "max max 100")
	note(t, dir+"/kubepods/pod1", "trusted.jettison.before.memory.min", "0 0 8192")
	note(t, dir+"/kubepods/pod1", "user.jettison.cpu", "1000 100000 100 0")
	note(t, dir+"/kubepods/pod1", "trusted.jettison.cgroup.freeze", "0")
	note(t, dir+"/kubepods/pod1", "user.jettison.cgroup.freeze", "0") // an older agent's
	return fs, dir
}

func restoreAll(t *testing.T, fs *cgroup.FS, kubelet bool) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), options{fs: fs, kubelet: func() bool { return kubelet }}, &out)
	return out.String(), err
}

// All settings have their former values and no note is left. A setting that another program changed later is kept.
func TestRestore(t *testing.T) {
	fs, dir := crashed(t)
	for range 2 { // it may be run again
		out, err := restoreAll(t, fs, false)
		if err != nil {
			t.Fatalf("restore returned an error: %v\n%s", err, out)
		}
		if notes := notesIn(t, dir); len(notes) > 0 {
			t.Errorf("notes left after restore: %q\n%s", notes, out)
		}
		for name, want := range map[string]string{
			"system.slice/memory.min": "1048576", "system.slice/other.service/memory.min": "4096", "kubepods/memory.max": "max",
			"system.slice/jettison.service/memory.oom.group": "1",
			"kubepods/pids.max": "max", "kubepods/pod1/memory.min": "0", "kubepods/pod1/cgroup.freeze": "0",
		} {
			checkFile(t, filepath.Join(dir, name), want)
		}
	}
}

// A running kubelet owns the limits above pods: they are kept, and their notes are removed.
func TestRestoreAlongsideKubelet(t *testing.T) {
	fs, dir := crashed(t)
	out, err := restoreAll(t, fs, true)
	if err != nil {
		t.Fatal(err)
	}
	if notes := notesIn(t, dir); len(notes) > 0 {
		t.Errorf("notes left after restore: %q\n%s", notes, out)
	}
	checkFile(t, dir+"/kubepods/memory.max", "1048576")
	checkFile(t, dir+"/kubepods/pod1/memory.min", "0")
}

// A dry run names the settings and changes none, also while an agent runs. Afterwards restore does what it named.
func TestDryRun(t *testing.T) {
	fs, dir := crashed(t)
	filetest.Write(t, dir+"/user.slice/app/memory.min", "0\n")
	filetest.Write(t, dir+"/user.slice/app/cgroup.procs", "")
	note(t, dir+"/user.slice/app", "user.jettison.memory.min", "8192 0")
	if err := os.Chown(dir+"/user.slice/app", 1000, 1000); err != nil {
		t.Skip(err)
	}
	state := t.TempDir()
	lock, err := atomicfile.Lock(filepath.Join(state, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	before := notesIn(t, dir)
	for kubelet, limits := range map[bool]string{
		false: "would restore memory.max, pids.max",
		true:  "would leave memory.max, pids.max to the kubelet",
	} {
		var out bytes.Buffer
		o := options{fs: fs, stateDir: state, dryRun: true, kubelet: func() bool { return kubelet }}
		if err := run(t.Context(), o, &out); err != nil {
			t.Fatalf("dry run with a kubelet %v: %v", kubelet, err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		want := []string{
			"/kubepods/pod1: would thaw the processes; would restore memory.min; would remove the notes cgroup.freeze, cpu: " +
				"written by an older agent or the owner",
			"/kubepods: " + limits, "/system.slice/jettison.service: would restore memory.oom.group",
			"/system.slice/other.service: would restore memory.min", "/system.slice: would restore memory.min",
			"/user.slice/app: would remove the notes memory.min: written by an older agent or the owner",
			"settings of the agent in 6 of 8 cgroups, nothing changed",
		}
		slices.Sort(want)
		slices.Sort(lines)
		if !slices.Equal(lines, want) {
			t.Errorf("dry run with a kubelet %v prints\n%s\nwant\n%s", kubelet, strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	}
	if after := notesIn(t, dir); !slices.Equal(after, before) {
		t.Errorf("notes after a dry run = %q, want %q", after, before)
	}
	checkFile(t, dir+"/system.slice/memory.min", "51380224")
	checkFile(t, dir+"/kubepods/memory.max", "1048576")
	checkFile(t, dir+"/kubepods/pod1/cgroup.freeze", "1")
}

// A dry run names an unknown note in its error.
func TestDryRunWithUnknownNote(t *testing.T) {
	fs, dir := crashed(t)
	note(t, dir+"/kubepods", "user.jettison.of-a-later-version", "x")
	err := run(t.Context(), options{fs: fs, dryRun: true, kubelet: func() bool { return false }}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "/kubepods: unknown note of-a-later-version would be kept") {
		t.Errorf("error of a dry run = %v, want the unknown note", err)
	}
}

// The kernel hides most notes from a process without CAP_SYS_ADMIN. Such a process cannot report that
// a node has no settings.
func TestWithoutCapability(t *testing.T) {
	for _, dryRun := range []bool{true, false} {
		fs, dir := crashed(t)
		var out bytes.Buffer
		errs := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			header, caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
			err := unix.Capget(&header, &caps[0])
			caps[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
			if err = errors.Join(err, unix.Capset(&header, &caps[0])); err == nil {
				err = run(t.Context(), options{fs: fs, dryRun: dryRun, kubelet: func() bool { return false }}, &out)
			}
			errs <- err
		}()
		if err := <-errs; !errors.Is(err, errHidden) || out.Len() > 0 {
			t.Errorf("restore without CAP_SYS_ADMIN, dry run %v: error = %v, output %q, want errHidden and no output", dryRun, err, out.String())
		}
		checkFile(t, dir+"/system.slice/memory.min", "51380224")
	}
}

// treeVariable has the hierarchy of the process that TestInUserNamespace starts.
const treeVariable = "JETTISON_TEST_TREE"

// The kernel also hides the notes from root in a user namespace, such as a container's, which has all capabilities there.
func TestInUserNamespace(t *testing.T) {
	if dir := os.Getenv(treeVariable); dir != "" {
		fs, err := cgroup.OpenTree(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer fs.Close()
		var out bytes.Buffer
		if err := run(t.Context(), options{fs: fs, dryRun: true, kubelet: func() bool { return false }}, &out); !errors.Is(err, errHidden) || out.Len() > 0 {
			t.Errorf("dry run in a user namespace: error = %v, output %q, want errHidden and no output", err, out.String())
		}
		return
	}
	_, dir := crashed(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestInUserNamespace$")
	cmd.Env = append(os.Environ(), treeVariable+"="+dir)
	same := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: same, GidMappings: same}
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		t.Errorf("test in a user namespace failed:\n%s", out)
	case err != nil:
		t.Skip("no user namespaces here: ", err)
	}
}

func TestNodeWithoutSettings(t *testing.T) {
	fs, _ := tree(t, map[string]string{"kubepods/memory.max": "max\n"})
	if out, err := restoreAll(t, fs, false); err != nil || out != "0 limits of pods restored, 0 of 2 cgroups had other settings of the agent\n" {
		t.Errorf("restore prints %q with error %v, want zero counts", out, err)
	}
}

// While an agent runs, restore changes nothing.
func TestWhileAgentRuns(t *testing.T) {
	fs, dir := crashed(t)
	state := t.TempDir()
	lock, err := atomicfile.Lock(filepath.Join(state, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	o := options{fs: fs, stateDir: state, kubelet: func() bool { return false }}
	if err := run(t.Context(), o, os.Stderr); !errors.Is(err, errAgentRuns) || !strings.Contains(err.Error(), state) {
		t.Errorf("error = %v, want errAgentRuns with %s", err, state)
	}
	if len(notesIn(t, dir)) == 0 {
		t.Error("restore removed notes while an agent runs")
	}
	_ = lock.Close()
	if err := run(t.Context(), o, &bytes.Buffer{}); err != nil {
		t.Errorf("restore after the agent ended: %v", err)
	}
}

// An unknown note is kept and named in the error, and does not block the rest.
func TestUnknownNoteKept(t *testing.T) {
	fs, dir := crashed(t)
	note(t, dir+"/kubepods", "user.jettison.of-a-later-version", "x")
	out, err := restoreAll(t, fs, false)
	if err == nil || !strings.Contains(err.Error(), "restore cgroup /kubepods: unknown note of-a-later-version kept") {
		t.Errorf("error = %v, want the unknown note\n%s", err, out)
	}
	checkFile(t, dir+"/system.slice/memory.min", "1048576")
}

// Notes of a cgroup that a user other than root owns are removed, and their values are not written.
func TestNotesOfUntrustedOwner(t *testing.T) {
	const own = "user.slice/user-1000.slice/user@1000.service"
	fs, dir := tree(t, map[string]string{own + "/memory.min": "0\n"})
	note(t, filepath.Join(dir, own), "user.jettison.memory.min", "8589934592 0")
	note(t, filepath.Join(dir, own), "user.jettison.anything", "x")
	if err := os.Chown(filepath.Join(dir, own), 1000, 1000); err != nil {
		t.Skip(err)
	}
	out, err := restoreAll(t, fs, false)
	if err != nil {
		t.Errorf("restore returned an error: %v\n%s", err, out)
	}
	checkFile(t, filepath.Join(dir, own, "memory.min"), "0")
	if notes := notesIn(t, dir); len(notes) > 0 {
		t.Errorf("notes left after restore: %q\n%s", notes, out)
	}
}
