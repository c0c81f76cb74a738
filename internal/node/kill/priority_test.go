package kill

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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

func TestStateOfThread(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want threadState
	}{
		"runs":              {procStat("a", 0x400000, 0), threadLives},
		"SIGKILL pending":   {procStat("a", 0x400000, 1<<8), threadDies},
		"SIGTERM pending":   {procStat("a", 0x400000, 1<<14), threadLives},
		"killed by it":      {procStat("a", 0x400400, 0), threadDies},
		"exiting":           {procStat("a", 0x400004, 0), threadDies},
		"name with numbers": {procStat("a) R 1 7 7 0 -1 4 1", 0x400000, 0), threadLives},
		"cut off":           {"7 (a) R 1 7 7 0 -1 4 1", threadUnknown},
		"empty":             {"", threadUnknown},
		"not a number":      {strings.ReplaceAll(procStat("a", 0, 0), " 0 ", " x "), threadUnknown},
	} {
		if got := parseState([]byte(c.text)); got != c.want {
			t.Errorf("%s: state = %d, want %d", name, got, c.want)
		}
	}
	if got := newRaiser(t.TempDir(), nil).state(7); got != threadUnknown {
		t.Errorf("state of a missing thread = %d, want %d", got, threadUnknown)
	}
	if got := newRaiser("/proc", nil).state(os.Getpid()); got != threadLives {
		t.Errorf("state of this process = %d, want %d", got, threadLives)
	}
}

// victimWith pins and kills a pod that lists threads, and returns the step cpu. Without the right to raise it skips the test.
func victimWith(t *testing.T, f *tree, proc string, pids ...int) Step {
	t.Helper()
	var lines string
	for _, pid := range pids {
		lines += strconv.Itoa(pid) + "\n"
	}
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
	t.Cleanup(v.Close)
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	s := step(t, v, "cpu")
	if errors.Is(s.Err, unix.EPERM) {
		t.Skip("no right to set real-time priority: ", s.Err)
	}
	return s
}

// fakeStat starts a process and writes its stat file below proc.
func fakeStat(t *testing.T, proc string, pending uint64) (pid int, stat string) {
	t.Helper()
	line, _ := sleeper(t)
	id := strings.TrimSpace(line)
	pid, err := strconv.Atoi(id)
	dir := filepath.Join(proc, id, "task", id)
	stat = filepath.Join(dir, "stat")
	if err := errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(stat, []byte(procStat("sleep", 0, pending)), 0o600)); err != nil {
		t.Fatal(err)
	}
	return pid, stat
}

// Only dying threads get real-time priority: among the listed threads may be a monitor, and a kill may be held up.
func TestOnlyDyingThreadsAreRaised(t *testing.T) {
	f := newTree(t)
	proc := t.TempDir()
	ends, _ := fakeStat(t, proc, killPending)
	lives, _ := fakeStat(t, proc, 0)
	if s := victimWith(t, f, proc, ends, lives); s.N != 1 || s.Err != nil {
		t.Errorf("step cpu = %+v, want N = 1 and no error", s)
	}
	for pid, want := range map[int]uint32{ends: unix.SCHED_RR, lives: unix.SCHED_NORMAL} {
		if attr, err := unix.SchedGetAttr(pid, 0); err != nil || attr.Policy != want {
			t.Errorf("policy of process %d = %+v, %v, want %d", pid, attr, err, want)
		}
	}
}

// The thread ends between the read of its state and sched_setattr, and a live thread gets its ID: another process, or a thread of
// the same process that calls execve (v6.12 fs/exec.c de_thread).
func TestReusedThreadIDIsNotRaised(t *testing.T) {
	f := newTree(t)
	proc := t.TempDir()
	pid, stat := fakeStat(t, proc, 0)
	lives := stat + ".lives"
	if err := errors.Join(os.Rename(stat, lives), unix.Mkfifo(stat, 0o600)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(stat, os.O_WRONLY, 0) // once the raiser reads it
		if err != nil {
			done <- err
			return
		}
		err = os.Rename(lives, stat) // for the next read
		_, writeErr := w.WriteString(procStat("sleep", 0, killPending))
		done <- errors.Join(err, writeErr, w.Close())
	}()
	s := victimWith(t, f, proc, pid)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL || s.N != 0 {
		t.Errorf("thread that lives: attributes %+v, %v, step %+v, want policy %d and N = 0", attr, err, s, unix.SCHED_NORMAL)
	}
}

// A container's own real-time threads keep their priority, and threads that are raised already cost no read of /proc.
func TestRealTimeThreadsAreSkipped(t *testing.T) {
	f := newTree(t)
	proc := t.TempDir()
	pid, _ := fakeStat(t, proc, killPending)
	if err := unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 5}, 0); err != nil {
		t.Skip("no right to set real-time priority: ", err)
	}
	s := victimWith(t, f, proc, pid)
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil || attr.Policy != unix.SCHED_FIFO || attr.Priority != 5 || s.N != 0 {
		t.Errorf("real-time thread: attributes %+v, %v, step %+v, want priority 5 and N = 0", attr, err, s)
	}
}

// A kernel may deny real-time priority for every thread of a pod (RT_GROUP_SCHED): the first refusal ends the attempt.
func TestRefusedRaiseEnds(t *testing.T) {
	f := newTree(t)
	proc := t.TempDir()
	first, _ := fakeStat(t, proc, killPending)
	second, stat := fakeStat(t, proc, killPending)
	if err := errors.Join(os.Remove(stat), unix.Mkfifo(stat, 0o600)); err != nil { // a read blocks
		t.Fatal(err)
	}
	v, err := newKiller(t, f.fs, "cgroup.kill").Pin(f.pod("pod", map[string]string{"cgroup.threads": fmt.Sprintf("%d\n%d\n", first, second)}))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends without the capability
		var data [2]unix.CapUserData
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capget(&header, &data[0]); err != nil {
			t.Error(err)
			return
		}
		data[0].Effective &^= 1 << unix.CAP_SYS_NICE
		if err := unix.Capset(&header, &data[0]); err != nil {
			t.Error(err)
			return
		}
		if n, err := newRaiser(proc, func() {}).raise(v, &v.group.reap); n != 0 || !errors.Is(err, unix.EPERM) {
			t.Errorf("raised %d threads, %v, want 0 and EPERM", n, err)
		}
	}()
	within(t, "raise returns", done)
	if w, err := os.OpenFile(stat, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil { // ends a read that blocks
		_ = w.Close()
	}
	<-done
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
