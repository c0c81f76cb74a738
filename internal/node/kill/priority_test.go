package kill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A kubelet from 1.36 on reports cpu.weight of a pod's cgroup as the pod's CPU request, and rejects
// new pods as OutOfcpu if the sum is too large. So a kill changes no CPU setting.
func TestKillChangesNoCPUSettings(t *testing.T) {
	f := newTree(t)
	settings := map[string]string{"cpu.max": "200 1000", "cpu.weight": "17", "cpu.idle": "0"}
	p := f.pod("pod", settings)
	v, err := newKiller(t, f.fs, "").Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	step(t, v, "cpu")
	for name, want := range settings {
		if got, err := os.ReadFile(f.file("pod", name)); err != nil || string(got) != want {
			t.Errorf("%s after the kill = %q, %v, want %q", name, got, err, want)
		}
	}
}

// procStat returns the text of /proc/PID/task/TID/stat with flags and pending signals.
func procStat(name string, flags, pending uint64) string {
	return fmt.Sprintf("7 (%s) R 1 7 7 0 -1 %d 1 2 3 4 5 6 7 8 20 0 1 0 99 4096 2 18446744073709551615 1 1 0 0 0 %d 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
		name, flags, pending)
}

func TestIsDying(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"runs":              {procStat("a", 0x400000, 0), false},
		"SIGKILL pending":   {procStat("a", 0x400000, 1<<8), true},
		"SIGTERM pending":   {procStat("a", 0x400000, 1<<14), false},
		"killed by it":      {procStat("a", 0x400400, 0), true},
		"exiting":           {procStat("a", 0x400004, 0), true},
		"name with numbers": {procStat("a) R 1 7 7 0 -1 4 1", 0x400000, 0), false},
		"cut off":           {"7 (a) R 1 7 7 0 -1 4 1", false},
		"empty":             {"", false},
		"not a number":      {strings.ReplaceAll(procStat("a", 0, 0), " 0 ", " x "), false},
	} {
		proc := t.TempDir()
		dir := filepath.Join(proc, "7", "task", "7")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "stat"), []byte(c.text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := isDying(proc, 7); got != c.want {
			t.Errorf("%s: isDying = %v, want %v", name, got, c.want)
		}
	}
	if isDying(t.TempDir(), 7) {
		t.Error("isDying of a missing thread = true, want false")
	}
	if isDying("/proc", os.Getpid()) {
		t.Error("isDying of this process = true, want false")
	}
}

// Only dying threads get real-time priority: among the listed threads may be a monitor, and a kill may be held up.
func TestOnlyDyingThreadsAreRaised(t *testing.T) {
	f := newTree(t)
	proc := t.TempDir()
	var lines string
	sleeper := func(pending uint64) int {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		id := strconv.Itoa(cmd.Process.Pid)
		dir := filepath.Join(proc, id, "task", id)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "stat"), []byte(procStat("sleep", 0, pending)), 0o600)); err != nil {
			t.Fatal(err)
		}
		lines += id + "\n"
		return cmd.Process.Pid
	}
	dying, lives := sleeper(1<<8), sleeper(0)
	k := New(Options{FS: f.fs, Ladder: CgroupKill | CPU, Proc: proc})
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	v, err := k.Pin(f.pod("pod", map[string]string{"cgroup.threads": lines}))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	s := step(t, v, "cpu")
	if errors.Is(s.Err, unix.EPERM) {
		t.Skip("no right to set real-time priority: ", s.Err)
	}
	if s.N != 1 || s.Err != nil {
		t.Errorf("step cpu = %+v, want N = 1 and no error", s)
	}
	for pid, want := range map[int]uint32{dying: unix.SCHED_RR, lives: unix.SCHED_NORMAL} {
		if attr, err := unix.SchedGetAttr(pid, 0); err != nil || attr.Policy != want {
			t.Errorf("policy of process %d = %+v, %v, want %d", pid, attr, err, want)
		}
	}
}

// The raise may wait for a lock of the kernel (5.15 and 6.1: sched_setattr, kernel/sched/core.c cpuset_read_lock) or for the lock of
// a directory. The memory of the pinned processes is freed before.
func TestRaiseDoesNotDelayFreeing(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "cgroup.kill,cpu,mrelease")
	pid, _ := sleeper(t)
	p := f.pod("pod", map[string]string{"cgroup.procs": pid})
	f.block("pod", "cgroup.threads", "")
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	for end := time.Now().Add(waitLimit); v.processes.count() == 0 && time.Now().Before(end); { // Pin waits for 1 ms only
		time.Sleep(time.Millisecond)
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(waitLimit); v.freeing.next.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no pinned process freed within %v while the raise waits", waitLimit)
		}
	}
}
