// Package seqtest makes what tests of long lines in /proc need: a directory whose path is very
// long, who has it mounted, and a memory cgroup for the process that reads. Memory that the kernel
// takes for a reader is in no figure of the process itself, but in its cgroup's.
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

// levels of names of 255 line ends, each of which is four characters in a line, make one of 33 MB:
// its buffer is of 64 MiB.
const levels = 33_000

var name = strings.Repeat("\n", 255)

// Deep goes down so far in memory that the path of what it leads to is 33 MB as the kernel writes
// it. It is all gone when the test is.
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

// Mounted has a thread mount what is so far down in a namespace of its own, in which it stays as
// long as the test lasts. It returns the thread's folder: /proc/PID/task/TID.
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
			t.Error("a deep directory stays mounted")
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

// onThread runs f on a thread that ends with it. The first one is none: what it has of its own it
// would keep, and be seen as the process'.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked, but for the first one
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		onThread(f)
		runtime.UnlockOSThread()
	}()
}

// mount mounts what is furthest down on a directory. It is opened here, for no other namespace's
// can be mounted.
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

// The process in the cgroup knows by these what it is.
const (
	groupVariable    = "JETTISON_TEST_GROUP"
	argumentVariable = "JETTISON_TEST_ARGUMENT"
)

// Inside reports whether this process is the one that Within began, and with which argument. From
// then on its memory counts.
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

// Within runs the calling test once more, as a process in a memory cgroup of its own with a limit
// in bytes. It returns what that printed, the most memory that its cgroup had, what the kernel took
// for it included, and how it ended: nil, or as signal: killed.
func Within(t testing.TB, limit int, argument string) (out string, peak int, err error) {
	t.Helper()
	group, most := newGroup(t, limit)
	return within(t, group, most, argument)
}

// WithinSpared is Within for what keeps the kernel from killing it (package seqfile). That takes
// CAP_SYS_RESOURCE: where it is missing, the cgroup is one that kills nobody, if it is of version
// 1. Then charges fail as they do where there is nobody to kill (v6.12 mm/memcontrol-v1.c
// memcg1_oom_prepare), but that the process is spared by its own doing is not tested.
func WithinSpared(t testing.TB, limit int, argument string) (out string, peak int, err error) {
	t.Helper()
	// Where nobody is killed the kernel refuses, too, what Go asks of it for itself, at which Go ends:
	// that says nothing of who read.
	for try := 0; ; try++ {
		out, peak, err = withinSpared(t, limit, argument)
		if err == nil || try == mostTries || !endedByGo(out, err) {
			return out, peak, err
		}
	}
}

// endedByGo tells that a process ended for Go itself got no memory: it says so, or a page that it
// has asked for was not there, or it had none to say so.
func endedByGo(out string, err error) bool {
	for _, text := range []string{"fatal error: runtime: out of memory",
		"\nSIGSEGV: segmentation violation\nPC=", "\nfatal error: fault\n"} {
		if strings.Contains(out, text) {
			return true
		}
	}
	return err.Error() == "signal: segmentation fault" || err.Error() == "signal: bus error"
}

// mostTries is how often a process is run again that Go has ended, as it does one of ten times.
const mostTries = 4

func withinSpared(t testing.TB, limit int, argument string) (out string, peak int, err error) {
	t.Helper()
	if race.Enabled {
		t.Skip("NOT TESTED: the race detector ends where it gets no memory for itself")
	}
	group, most := newGroup(t, limit)
	if maySpare(t) {
		return within(t, group, most, argument)
	}
	// none in version 2
	if err := os.WriteFile(filepath.Join(group, "memory.oom_control"), []byte("1"), 0); err != nil {
		t.Skip("NOT TESTED: CAP_SYS_RESOURCE is missing, and there is no cgroup that kills nobody: ", err)
	}
	t.Log("NOT TESTED: that this process is not killed by its oom_score_adj. CAP_SYS_RESOURCE is " +
		"missing; its cgroup kills nobody instead")
	// A page fault sleeps in such a cgroup until its limit is raised: that a buffer is given back
	// wakes nobody. There is room to raise it.
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
				if set(limit) == nil { // back to it, if that much is free
					more = 0
				}
				more += 4096
				_ = set(limit + more) // the next may
			}
		}
	}()
	defer func() {
		close(end)
		<-ended
	}()
	return within(t, group, most, argument)
}

// maySpare reports whether this process may make itself one that is never killed for memory.
func maySpare(t testing.TB) bool {
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

func within(t testing.TB, group, most, argument string) (out string, peak int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), groupVariable+"="+group, argumentVariable+"="+argument)
	b, err := child.CombinedOutput()
	text, again := os.ReadFile(filepath.Join(group, most))
	if again != nil {
		t.Fatal(again)
	}
	if peak, again = strconv.Atoi(string(bytes.TrimSpace(text))); again != nil {
		t.Fatal(again)
	}
	return string(b), peak, err
}

// newGroup makes a memory cgroup, of version 1 or 2. most is the file that says how much it had.
func newGroup(t testing.TB, limit int) (dir, most string) {
	t.Helper()
	root, max, most := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"
	if _, err := os.Stat(filepath.Join(root, max)); err != nil {
		root, max, most = "/sys/fs/cgroup", "memory.max", "memory.peak"
	}
	dir, err := os.MkdirTemp(root, "jettison-test-")
	if err != nil {
		t.Skip("NOT TESTED: what the kernel takes for a reader shows in a memory cgroup only, and none "+
			"can be made here: ", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	err = os.WriteFile(filepath.Join(dir, max), []byte(strconv.Itoa(limit)), 0)
	if _, again := os.Stat(filepath.Join(dir, most)); err != nil || again != nil {
		t.Skip("NOT TESTED: what the kernel takes for a reader shows in a memory cgroup only, and "+
			"there is no controller here: ",
			errors.Join(err, again))
	}
	return dir, most
}
