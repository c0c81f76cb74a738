package kill

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats"
)

// An error of process_mrelease is recorded in the step.
func TestMreleaseErrorIsRecorded(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "cgroup.kill,mrelease")
	absent := os.NewSyscallError("process_mrelease", unix.ENOSYS)
	k.absent.Store(&absent)
	pid, _ := sleeper(t)
	v, err := k.Pin(f.pod("a", map[string]string{"cgroup.procs": pid}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	step(t, v, stepPidfds)
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	if s := step(t, v, Mrelease.String()); !errors.Is(s.Err, unix.ENOSYS) {
		t.Errorf("error of step %s = %v, want %v", s.Name, s.Err, absent)
	}
}

// A thread that is done with one victim takes the next, while another thread still works on the first. An
// error with the next victim must not change the error of the first.
func TestMreleaseErrorStaysWithItsVictim(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "cgroup.kill,mrelease")
	r := newReaper(k)
	reap := func(name string, cause error) *Victim {
		pid, _ := sleeper(t)
		v := pinWithProcess(t, k, f.pod(name, map[string]string{"cgroup.procs": pid}))
		v.freeing.begin() // this thread comes second
		v.freeing.join()  // and another one is still working
		k.absent.Store(&cause)
		r.reap(v)
		return v
	}
	first := reap("first", unix.ENOSYS)
	reap("next", unix.EPERM)
	if !first.freeing.leave() {
		t.Fatal("leave of the other thread = false, want true")
	}
	if _, err := first.freeing.result(); err != unix.ENOSYS {
		t.Errorf("error of the first victim = %v, want %v", err, unix.ENOSYS)
	}
}

// pinWithProcess pins a pod until the pin has its process: a busy machine may need longer than
// pidfdLimit.
func pinWithProcess(t *testing.T, k *Killer, pod *stats.PodStats) *Victim {
	t.Helper()
	for end := time.Now().Add(waitLimit); ; {
		v, err := k.Pin(pod)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		step(t, v, stepPidfds)
		if v.processes.count() > 0 {
			return v
		}
		if time.Now().After(end) {
			t.Fatalf("no pin has the process after %v", waitLimit)
		}
	}
}
