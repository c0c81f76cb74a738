// Package seqtest provides the setup for tests of long lines in /proc: a directory with a very long
// path, a thread that has it mounted, and a memory cgroup for the reading process. Memory that the
// kernel allocates for a reader is counted only in its cgroup, not in the process.
package seqtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/base/race"
)

// levels is the number of nested directories. Their names have 255 newlines, each of which is
// written as four characters in a line: together a line of 33 MB, which needs a buffer of 64 MiB.
const levels = 33_000

var name = strings.Repeat("\n", 255)

// Deep creates directories in memory, nested so deep that the kernel writes the path of the lowest
// with 33 MB. It removes them when the test ends.
func Deep(t testing.TB) (dir int) {
	t.Helper()
	dir, _ = deep(t)
	return dir
}

func deep(t testing.TB) (dir int, base string) {
	t.Helper()
	base, err := os.MkdirTemp("/dev/shm", "jettison-deep-")
	if err != nil {
		t.Skip("no file system in memory to make a deep directory on: ", err)
	}
	at, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	depth := 0
	t.Cleanup(func() {
		for ; depth > 0; depth-- {
			up, err := unix.Openat(dir, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			unix.Close(dir)
			if dir = up; unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) != nil {
				t.Errorf("level %d of %s is not empty", depth, base)
				return
			}
		}
		unix.Close(dir)
		if err := os.Remove(base); err != nil {
			t.Error(err)
		}
	})
	for dir = at; depth < levels; depth++ {
		err := unix.Mkdirat(dir, name, 0o755)
		if err == nil {
			at, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(dir)
		dir = at
	}
	return dir, base
}

// Mounted starts a thread in a separate mount namespace that mounts such a deep directory until
// the test ends. It returns the thread's directory: /proc/PID/task/TID.
func Mounted(t testing.TB) (thread string) {
	t.Helper()
	_, base := deep(t)
	target, ready, end, ended := t.TempDir(), make(chan error), make(chan struct{}),
		make(chan struct{})
	onThread(func() {
		defer close(ended)
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = mount(base, target)
		}
		thread = "/proc/" + strconv.Itoa(os.Getpid()) + "/task/" + strconv.Itoa(unix.Gettid())
		ready <- err
		<-end
		if err == nil && unix.Unmount(target, unix.MNT_DETACH) != nil {
			t.Error("unmount of the deep directory failed: it stays mounted")
		}
	})
	t.Cleanup(func() {
		close(end)
		<-ended
	})
	if err := <-ready; err != nil {
		t.Skip("cannot mount here: ", err)
	}
	return thread
}

// onThread runs f on a thread that ends with f. It avoids the main thread, because /proc/PID would
// show the main thread's namespace as that of the process.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked, except the main thread
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		onThread(f)
		runtime.UnlockOSThread()
	}()
}

// mount mounts the lowest directory on another directory. It opens the directory in this namespace,
// because a directory of another namespace cannot be mounted.
func mount(base, on string) error {
	dir, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range levels {
		next, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(dir)
		if err != nil {
			return err
		}
		dir = next
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Mount("/proc/thread-self/fd/"+strconv.Itoa(dir), on, "", unix.MS_BIND, "")
}

// Environment variables with the role of the process in the cgroup.
const (
	groupVariable    = "JETTISON_TEST_GROUP"
	argumentVariable = "JETTISON_TEST_ARGUMENT"
)

// Inside reports whether Within started this process, and returns the argument. It moves the
// process into the cgroup, so that its memory is counted from then on.
func Inside(t testing.TB) (argument string, ok bool) {
	t.Helper()
	group := os.Getenv(groupVariable)
	if group == "" {
		return "", false
	}
	if err := os.WriteFile(group+"/cgroup.procs", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	return os.Getenv(argumentVariable), true
}

// Within runs the calling test again, as a process in its own memory cgroup with a limit in
// bytes. It returns the output, the peak memory of the cgroup including kernel memory, and how
// the process ended: nil, or for example "signal: killed".
func Within(t testing.TB, limit int, argument string) (out string, peak int, err error) {
	t.Helper()
	group, peakFile := newGroup(t, limit)
	return within(t, group, peakFile, argument)
}

// WithinProtected does the same as Within for code that protects itself from OOM kills (package
// seqfile), which needs CAP_SYS_RESOURCE. Without it the test uses a version 1 cgroup with the OOM
// killer disabled, if possible. Charges then fail as in a cgroup without a process to kill (v6.12
// mm/memcontrol-v1.c memcg1_oom_prepare), but the protection itself is not tested.
func WithinProtected(t testing.TB, limit int, argument string) (out string, peak int, err error) {
	t.Helper()
	// Without OOM kills, allocations of the Go runtime fail too, and the runtime exits: that result
	// is no evidence about the reader.
	for try := 0; ; try++ {
		out, peak, err = withinProtected(t, limit, argument)
		if err == nil || try == maxTries || !endedByGo(out, err) {
			return out, peak, err
		}
	}
}

// endedByGo reports whether the process ended because the Go runtime itself got no memory: the
// runtime printed so, a page was missing, or no memory was left to print.
func endedByGo(out string, err error) bool {
	for _, text := range []string{"fatal error: runtime: out of memory",
		"\nSIGSEGV: segmentation violation\nPC=", "\nfatal error: fault\n"} {
		if strings.Contains(out, text) {
			return true
		}
	}
	return err.Error() == "signal: segmentation fault" || err.Error() == "signal: bus error"
}

// maxTries is the number of repetitions after an exit of the Go runtime, which happens once in
// ten runs.
const maxTries = 4

func withinProtected(t testing.TB, limit int, argument string) (out string, peak int, err error) {
	t.Helper()
	if race.Enabled {
		t.Skip("NOT TESTED: the race detector exits if it gets no memory for itself")
	}
	group, peakFile := newGroup(t, limit)
	if mayProtect(t) {
		return within(t, group, peakFile, argument)
	}
	// cgroup v2 has no such file
	if err := os.WriteFile(filepath.Join(group, "memory.oom_control"), []byte("1"), 0); err != nil {
		t.Skip("NOT TESTED: CAP_SYS_RESOURCE is missing, and no cgroup without an OOM killer is available: ", err)
	}
	t.Log("NOT TESTED: protection by oom_score_adj. CAP_SYS_RESOURCE is " +
		"missing; the OOM killer of the cgroup is disabled instead")
	// A page fault sleeps in such a cgroup until its limit is raised: freeing a buffer does not
	// wake it. Leave room for raising the limit.
	limit -= 8 << 20
	set := func(to int) error {
		return os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte(strconv.Itoa(to)), 0)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick, more := time.NewTicker(2*time.Millisecond), 0; ; {
			select {
			case <-end:
				tick.Stop()
				return
			case <-tick.C:
				if set(limit) == nil { // back to the limit, if the usage allows
					more = 0
				}
				more += 4096
				_ = set(limit + more) // the next attempt may succeed
			}
		}
	}()
	defer func() {
		close(end)
		<-ended
	}()
	return within(t, group, peakFile, argument)
}

// mayProtect reports whether this process may protect itself from OOM kills.
func mayProtect(t testing.TB) bool {
	t.Helper()
	const name = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if os.WriteFile(name, []byte("-1000"), 0) != nil {
		return false
	}
	if err := os.WriteFile(name, before, 0); err != nil {
		t.Fatal(err)
	}
	return true
}

func within(t testing.TB, group, peakFile, argument string) (out string, peak int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), groupVariable+"="+group, argumentVariable+"="+argument)
	b, err := child.CombinedOutput()
	text, again := os.ReadFile(filepath.Join(group, peakFile))
	if again != nil {
		t.Fatal(again)
	}
	if peak, again = strconv.Atoi(string(bytes.TrimSpace(text))); again != nil {
		t.Fatal(again)
	}
	return string(b), peak, err
}

// newGroup creates a memory cgroup, of version 1 or 2. peakFile is the file with its peak
// usage.
func newGroup(t testing.TB, limit int) (dir, peakFile string) {
	t.Helper()
	root, max, peakFile := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"
	if _, err := os.Stat(filepath.Join(root, max)); err != nil {
		root, max, peakFile = "/sys/fs/cgroup", "memory.max", "memory.peak"
	}
	dir, err := os.MkdirTemp(root, "jettison-test-")
	if err != nil {
		t.Skip("NOT TESTED: kernel memory of a reader shows only in a memory cgroup, and none "+
			"can be created here: ", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	err = os.WriteFile(filepath.Join(dir, max), []byte(strconv.Itoa(limit)), 0)
	if _, again := os.Stat(filepath.Join(dir, peakFile)); err != nil || again != nil {
		t.Skip("NOT TESTED: kernel memory of a reader shows only in a memory cgroup, and "+
			"the memory controller is off here: ",
			errors.Join(err, again))
	}
	return dir, peakFile
}
