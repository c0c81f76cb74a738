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

// The locked directories of some victims hold up both of their tasks, but not the look at the CPU time of another one: without it,
// WaitEmpty ends too early.
func TestBlockedVictimsLeaveWorkers(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "cgroup.kill,cpu")
	pin := func(name string, files map[string]string) *Victim {
		v, err := k.Pin(f.pod(name, files))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		return v
	}
	for _, name := range []string{"a", "b", "c"} {
		v := pin(name, nil)
		for _, file := range []string{"cpu.stat", "cgroup.threads"} {
			f.block(name, file, "")
		}
		v.inBackground(readCPUTime)
		v.inBackground(raisePriority)
	}
	v := pin("next", map[string]string{"cpu.stat": "usage_usec 1000\n"})
	v.inBackground(readCPUTime)
	for end := time.Now().Add(waitLimit); v.background.cpuTime.Load() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no CPU time read within %v", waitLimit)
		}
	}
}
