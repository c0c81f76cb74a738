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
