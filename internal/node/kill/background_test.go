package kill

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// block replaces a file of a pod with a pipe, so that opening the file blocks until the test ends. Then a file with the text
// takes its place.
func (f *tree) block(pod, name, text string) {
	f.t.Helper()
	path := f.fifo(pod, name)
	f.t.Cleanup(func() {
		err := errors.Join(os.Rename(path, path+".pipe"), os.WriteFile(path, []byte(text), 0o600))
		if _, fifoErr := unix.Open(path+".pipe", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil || fifoErr != nil { // stays open
			f.t.Error(err, fifoErr)
		}
	})
}

// awaitUsers waits until a victim has n users.
func awaitUsers(t *testing.T, v *Victim, n int) {
	t.Helper()
	for limit := time.After(waitLimit); ; {
		v.life.mu.Lock()
		users := v.life.users
		v.life.mu.Unlock()
		if users == n {
			return
		}
		select {
		case <-limit:
			t.Fatalf("users of the victim after %v = %d, want %d", waitLimit, users, n)
		case <-time.After(time.Millisecond):
		}
	}
}

// raised pins a pod of a tree, kills it, and waits until its CPU limits are raised.
func raised(t *testing.T, f *tree, k *Killer, name string) *Victim {
	t.Helper()
	v, err := k.Pin(f.pod(name, map[string]string{"cpu.max": "200 1000\n", "cpu.weight": "10000\n"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	step(t, v, "cpu")
	return v
}

// A process that creates a cgroup in the victim's directory holds its lock, so opening a file there
// blocks. The victim is reported dead without delay, and its limits are restored later.
func TestDeathIsReportedBeforeTheRestore(t *testing.T) {
	f := newTree(t)
	v := raised(t, f, newKiller(t, f.fs, "cgroup.kill,cpu"), "a")
	f.block("a", "cpu.max", "max 1000\n")
	if err := os.WriteFile(f.file("a", "cgroup.events"), []byte("populated 0\nfrozen 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		if err := v.WaitEmpty(t.Context(), waitLimit); err != nil {
			t.Errorf("WaitEmpty = %v, want nil", err)
		}
	}()
	within(t, "WaitEmpty reports the death", reported)
	step(t, v, stepEmptied)
}

// While the directory of a victim is locked, WaitEmpty ends at its limit: neither the repeated kill nor the look at the CPU time
// delays it, so neither delays the report of the death.
func TestWaitEmptyIsNotBlocked(t *testing.T) {
	for file, ladder := range map[string]string{"cgroup.procs": "pidfd", "cpu.stat": "cgroup.kill"} {
		f := newTree(t)
		k := newKiller(t, f.fs, ladder)
		v, err := k.Pin(f.pod("a", nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		f.block("a", file, "")
		if err := v.Kill(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := v.WaitEmpty(t.Context(), 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: WaitEmpty = %v, want deadline exceeded", file, err)
			}
		}()
		within(t, fmt.Sprintf("WaitEmpty ends while %s is blocked", file), ended)
	}
}

// The thread that writes cgroup.kill may be the last user of a victim. It kills the next one while the
// directory of the first is locked.
func TestLastUserDoesNotRestore(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "cgroup.kill,cpu")
	p := f.pod("a", map[string]string{"cpu.max": "200 1000\n", "cpu.weight": "10000\n"})
	unblock := f.full("a", "cgroup.kill")
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	step(t, v, "cpu")
	awaitUsers(t, v, 2)
	v.Close() // the thread that writes cgroup.kill is left
	f.block("a", "cpu.max", "max 1000\n")
	unblock()
	step(t, raised(t, f, k, "b"), "cgroup.kill")
}
