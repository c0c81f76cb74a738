package kill

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// tree is a hierarchy of plain files with live pods. A pipe without a reader or writer stands for a call that blocks in the kernel.
type tree struct {
	t  *testing.T
	fs *cgroup.FS
}

func newTree(t *testing.T) *tree {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/cgroup.procs", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	return &tree{t, fs}
}

// pod creates a pod with these files in addition to those that every pod has.
func (f *tree) pod(name string, files map[string]string) *stats.PodStats {
	f.t.Helper()
	if err := os.Mkdir(f.file(name, ""), 0o755); err != nil {
		f.t.Fatal(err)
	}
	for _, set := range []map[string]string{{"cgroup.events": "populated 1\nfrozen 0\n", "cgroup.procs": "", "cgroup.threads": "", "cgroup.kill": ""}, files} {
		for file, text := range set {
			if err := os.WriteFile(f.file(name, file), []byte(text), 0o600); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	return &stats.PodStats{PodRef: stats.PodReference{UID: name}, Cgroup: name}
}

func (f *tree) file(pod, name string) string { return filepath.Join(f.fs.Mount(), pod, name) }

// fifo replaces a file with a pipe.
func (f *tree) fifo(pod, name string) string {
	f.t.Helper()
	path := f.file(pod, name)
	_ = os.Remove(path)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// full replaces a file of a pod with a full pipe, so that a write blocks until unblock.
func (f *tree) full(pod, name string) (unblock func()) {
	f.t.Helper()
	r, err := os.OpenFile(f.fifo(pod, name), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, size := range []int{4096, 1} {
		for err == nil {
			_, err = unix.Write(int(r.Fd()), make([]byte, size))
		}
		if err != unix.EAGAIN {
			f.t.Fatal(err)
		}
		err = nil
	}
	return func() {
		_, _ = unix.Read(int(r.Fd()), make([]byte, 1<<16))
		f.t.Cleanup(func() { r.Close() })
	}
}

// sleeper starts a process outside the cgroups of the test; ended is closed at its end.
func sleeper(t *testing.T) (pid string, ended <-chan struct{}) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
	return strconv.Itoa(cmd.Process.Pid) + "\n", done
}

// within fails the test if done is not closed within 10 s.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Errorf("did not happen within 10 s: %s", what)
	}
}

// The write of cgroup.kill blocks on a kernel lock: Kill returns, and the processes are killed one by one. So are those of the next victim,
// although the thread that writes is still blocked.
func TestKillThatIsHeldUp(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "")
	var unblock func()
	for _, name := range []string{"held-up", "next"} {
		pid, ended := sleeper(t)
		p := f.pod(name, map[string]string{"cgroup.procs": pid})
		if name == "held-up" {
			unblock = f.full(name, "cgroup.kill")
		}
		v, err := k.Pin(p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		killed := make(chan struct{})
		start := time.Now()
		go func() {
			if err := v.Kill(); err != nil || !v.Killed() {
				t.Errorf("%s: Kill = %v, Killed = %v, want nil, true", name, err, v.Killed())
			}
			t.Logf("%s: Kill took %v", name, time.Since(start))
			close(killed)
		}()
		within(t, name+": Kill returns", killed)
		within(t, name+": its process dies", ended)
		if t.Failed() {
			break
		}
		if s := step(t, v, "cgroup.kill is held up"); s.N != 1 {
			t.Errorf("%s: pinned processes signalled = %d, want 1", name, s.N)
		}
	}
	unblock()
}

// A kill has the time of its write, whenever the caller gets CPU time again. A pending kill has none yet.
func TestKilledAtIsTheTimeOfTheWrite(t *testing.T) {
	f := newTree(t)
	v, err := newKiller(t, f.fs, "").Pin(f.pod("u", nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	if before, at := monotonic(), v.KilledAt(); at.Monotonic < before {
		t.Errorf("before the kill, KilledAt = %v, want the current time, after %v", at.Monotonic, before)
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := Now()
	first, later := v.KilledAt(), v.KilledAt()
	if write := step(t, v, "cgroup.kill").At; first.Monotonic < write || first.Monotonic > ended.Monotonic || later.Monotonic != first.Monotonic {
		t.Errorf("KilledAt = %v, then %v, want one time from the write (%v) to the end of Kill (%v)", first.Monotonic, later.Monotonic, write, ended.Monotonic)
	}
	if off := ended.Time.Sub(first.Time) - (ended.Monotonic - first.Monotonic); off.Abs() > 10*time.Millisecond {
		t.Errorf("the clocks of KilledAt differ by %v", off)
	}
}

// The threads that free the memory of one victim are blocked in the kernel: replacements free the next victim's memory.
func TestStuckReaperIsReplaced(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "cgroup.kill,cpu,mrelease")
	stuck := f.pod("stuck", nil)
	f.block("stuck", "cgroup.threads", "")
	var victims []*Victim
	for i := range maxReapers { // each of the threads
		v, err := k.Pin(stuck)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		victims = append(victims, v)
		if err := v.Kill(); err != nil {
			t.Fatal(i, err)
		}
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		if err := victims[0].WaitEmpty(t.Context(), 5*time.Second); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("WaitEmpty of the stuck victim = %v, want deadline exceeded", err)
		}
	}()
	v, err := k.Pin(f.pod("next", nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	freed := make(chan struct{})
	go func() {
		for time.Since(start) < 9*time.Second {
			for _, s := range v.Steps() {
				if s.Name == "mrelease" {
					close(freed)
					return
				}
			}
			time.Sleep(time.Millisecond)
		}
	}()
	within(t, "the next victim's memory is freed", freed)
	t.Logf("after %v", time.Since(start))
	<-waited
}

// WaitEmpty records an error of the wait as a step, and retries.
func TestFailedWaitIsRepeated(t *testing.T) {
	f := newTree(t)
	p := f.pod("pod", nil)
	v, err := newKiller(t, f.fs, "cgroup.kill").Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	if err := errors.Join(v.Kill(), os.Rename(f.file("pod", "cgroup.events"), f.file("pod", "moved"))); err != nil {
		t.Fatal(err)
	}
	if err := v.WaitEmpty(t.Context(), 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("WaitEmpty without cgroup.events = %v, want deadline exceeded and not exist", err)
	}
	if s := step(t, v, "wait"); s.Err == nil {
		t.Errorf("step wait = %+v, want an error", s)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		_ = os.WriteFile(f.file("pod", "moved"), []byte("populated 0\nfrozen 0\n"), 0o600)
		_ = os.Rename(f.file("pod", "moved"), f.file("pod", "cgroup.events"))
	})
	if err := v.WaitEmpty(t.Context(), waitLimit); err != nil {
		t.Errorf("WaitEmpty with cgroup.events restored = %v, want nil", err)
	}
}

// moveIn starts a process and then moves it into a cgroup. A process started in a cgroup that was killed before dies by itself (since
// v6.14, kernel/cgroup/cgroup.c cgroup_css_set_fork uses the kill_seq of its parent's cgroup).
func moveIn(t *testing.T, dir string) {
	t.Helper()
	pid, _ := sleeper(t)
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(pid), 0); err != nil {
		t.Fatal(err)
	}
}

// A process that enters the cgroup after the kill is killed too, unless the cgroup was empty before.
func TestLateProcessDies(t *testing.T) {
	fs, p := pod(t)
	dir := filepath.Join(fs.Mount(), p.Cgroup, "container")
	for _, pin := range []func(*stats.PodStats) (*Victim, error){
		newKiller(t, fs, "cgroup.kill").Pin, func(p *stats.PodStats) (*Victim, error) { return Pin(fs, p) },
	} {
		moveIn(t, dir)
		v, err := pin(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Kill(); err != nil {
			t.Fatal(err)
		}
		moveIn(t, dir)
		if err := v.WaitEmpty(t.Context(), 10*time.Second); err != nil {
			t.Error(err)
		}
		moveIn(t, dir) // the pod's next sandbox
		v.repeatKill()
		if err := v.group.wait.WaitEmpty(t.Context(), 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wait for the next sandbox = %v, want it alive", err)
		}
		v.Close()
	}
}

// A write of cgroup.kill that is queued behind a blocked one comes too late: its victim dies through its pidfds. A kubelet creates the
// pod's next sandbox in the same cgroup, which the queued write must not kill.
func TestQueuedKillSparesTheNextSandbox(t *testing.T) {
	const gone = "populated 0\nfrozen 0\n"
	for name, c := range map[string]struct {
		seen   bool   // the agent has seen it empty
		events string // cgroup.events when the queued write runs
	}{
		"seen empty, another lives":   {true, "populated 1\nfrozen 0\n"},
		"not seen, but empty now":     {false, gone},
		"closed alive":                {false, "populated 1\nfrozen 0\n"},
		"seen empty, and still empty": {true, gone},
	} {
		f := newTree(t)
		k := newKiller(t, f.fs, "")
		kill := func(name string, full bool) (v *Victim, unblock func()) {
			pid, ended := sleeper(t)
			p := f.pod(name, map[string]string{"cgroup.procs": pid})
			if full {
				unblock = f.full(name, "cgroup.kill")
			}
			v, err := k.Pin(p)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(v.Close)
			if err := v.Kill(); err != nil {
				t.Fatal(err)
			}
			if name != "last" { // its write is not blocked, and a plain file kills no process
				within(t, name+" dies", ended)
			}
			return v, unblock
		}
		put := func(file, text string) {
			if err := os.WriteFile(f.file("b", file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, unblock := kill("a", true)
		b, _ := kill("b", false)
		put("cgroup.procs", "")
		put("cgroup.events", gone)
		if c.seen {
			if err := b.WaitEmpty(t.Context(), 5*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if c.seen || c.events != gone {
			b.Close()
		}
		put("cgroup.events", c.events)
		unblock()
		// Once a later kill is written, the queued write of b has run.
		kill("last", false)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if got, _ := os.ReadFile(f.file("last", "cgroup.kill")); len(got) > 0 {
				break
			}
		}
		if got, err := os.ReadFile(f.file("b", "cgroup.kill")); err != nil || len(got) > 0 {
			t.Errorf("%s: b's cgroup.kill = %q, %v, want empty", name, got, err)
		}
	}
}

// Kill of a victim that was seen empty kills no process: neither through cgroup.kill nor one by one, with and without a Killer.
func TestEmptyVictimIsNotKilledAgain(t *testing.T) {
	for _, rungs := range []Ladder{CgroupKill, Pidfd, All} {
		for _, threads := range []bool{true, false} {
			f := newTree(t)
			p := f.pod("a", map[string]string{"cgroup.events": "populated 0\nfrozen 0\n"})
			v, err := Pin(f.fs, p)
			if threads {
				v.Close()
				v, err = newKiller(t, f.fs, "").Pin(p)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(v.Close)
			v.ladder = rungs
			if err := v.WaitEmpty(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
			pid, ended := sleeper(t)
			for file, text := range map[string]string{"cgroup.events": "populated 1\nfrozen 0\n", "cgroup.procs": pid} {
				if err := os.WriteFile(f.file("a", file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := v.Kill(); err != nil {
				t.Errorf("%v, threads %v: Kill = %v, want nil", rungs, threads, err)
			}
			select {
			case <-ended:
				t.Errorf("%v, threads %v: the next sandbox is dead, want it alive", rungs, threads)
			case <-time.After(50 * time.Millisecond):
			}
			if got, _ := os.ReadFile(f.file("a", "cgroup.kill")); len(got) > 0 {
				t.Errorf("%v, threads %v: cgroup.kill = %q, want empty", rungs, threads, got)
			}
		}
	}
}
