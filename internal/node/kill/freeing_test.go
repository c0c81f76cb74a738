package kill

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Why memory was not freed is part of what was done to the victim.
func TestWhyMemoryIsNotFreedIsAStep(t *testing.T) {
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
		t.Errorf("the step says %v, want %v", s.Err, absent)
	}
}

// A thread that was done with a victim has the next one, while another is still at the first: what goes
// wrong with the next one is no matter of the first.
func TestWhyMemoryIsNotFreedStaysTheVictims(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "cgroup.kill,mrelease")
	r := newReaping(k)
	reap := func(name string, why error) *Victim {
		pid, _ := sleeper(t)
		v, err := k.Pin(f.pod(name, map[string]string{"cgroup.procs": pid}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		step(t, v, stepPidfds)
		v.freeing.begin() // this thread comes second
		v.freeing.join()  // and another one is at it still
		k.absent.Store(&why)
		r.reap(v)
		return v
	}
	first := reap("first", unix.ENOSYS)
	reap("next", unix.EPERM)
	if !first.freeing.leave() {
		t.Fatal("the other thread is not the last one")
	}
	if _, err := first.freeing.result(); err != unix.ENOSYS {
		t.Errorf("of the first victim it says %v, want %v", err, unix.ENOSYS)
	}
}
