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

// tree is a hierarchy of plain files with pods that live: what the kernel holds up is a pipe there, which nobody reads or writes.
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

// pod makes one with these files beside what every pod has.
func (f *tree) pod(name string, files map[string]string) *stats.PodStats {
	f.t.Helper()
	if err := os.Mkdir(f.file(name, ""), 0o755); err != nil {
		f.t.Fatal(err)
	}
	for _, set := range []map[string]string{{"cgroup.events": "populated 1\nfrozen 0\n", "cgroup.procs": "", "cgroup.kill": ""}, files} {
		for file, text := range set {
			if err := os.WriteFile(f.file(name, file), []byte(text), 0o600); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	return &stats.PodStats{PodRef: stats.PodReference{UID: name}, Cgroup: name}
}

func (f *tree) file(pod, name string) string { return filepath.Join(f.fs.Mount(), pod, name) }

// fifo puts a pipe in the place of a file.
func (f *tree) fifo(pod, name string) string {
	f.t.Helper()
	path := f.file(pod, name)
	_ = os.Remove(path)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// full has a write to a file of a pod wait until it is let go.
func (f *tree) full(pod, name string) (letGo func()) {
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

// sleeper is a process that is not in any cgroup of the test; told is its end.
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

// within fails the test if something does not happen.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Errorf("not within 10 s: %s", what)
	}
}

// The write of cgroup.kill waits for a lock of the kernel: the caller goes on, and the processes are killed one by one. The next victim's
// too, though the thread that writes is still held up.
func TestAKillThatIsHeldUp(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "")
	var letGo func()
	for _, name := range []string{"held-up", "next"} {
		pid, ended := sleeper(t)
		p := f.pod(name, map[string]string{"cgroup.procs": pid})
		if name == "held-up" {
			letGo = f.full(name, "cgroup.kill")
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
				t.Error(name, err)
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
			t.Errorf("%s: %d of 1 pinned processes signalled", name, s.N)
		}
	}
	letGo()
}

// What frees the memory of one victim is held by the kernel: others stand in for it, and the next victim's memory is freed.
func TestAReaperThatIsStuckIsReplaced(t *testing.T) {
	f := newTree(t)
	k := newKiller(t, f.fs, "cgroup.kill,cpu,mrelease")
	stuck := f.pod("stuck", map[string]string{"cpu.weight": "100\n"})
	fifo := f.fifo("stuck", "cpu.max") // opening it waits for who writes
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
			t.Error(err)
		}
	}()
	v, err := k.Pin(f.pod("next", map[string]string{"cpu.max": "max 100000\n", "cpu.weight": "100\n"}))
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
	go func() { // lets each of them go
		for range 3 * maxThreads {
			if w, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				_, _ = w.WriteString("max 100000\n")
				w.Close()
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
}

// An error of waiting is no word on the victim: it is asked again, and the error is a step.
func TestAWaitThatFailsIsRepeated(t *testing.T) {
	f := newTree(t)
	p := f.pod("pod", nil)
	v, err := newKiller(t, f.fs, "cgroup.kill").Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	if err := errors.Join(v.Kill(), os.Rename(f.file("pod", "cgroup.events"), f.file("pod", "away"))); err != nil {
		t.Fatal(err)
	}
	if err := v.WaitEmpty(t.Context(), 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nobody tells: %v", err)
	}
	if s := step(t, v, "wait"); s.Err == nil {
		t.Errorf("%+v", s)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		_ = os.WriteFile(f.file("pod", "away"), []byte("populated 0\nfrozen 0\n"), 0o600)
		_ = os.Rename(f.file("pod", "away"), f.file("pod", "cgroup.events"))
	})
	if err := v.WaitEmpty(t.Context(), waitLimit); err != nil {
		t.Errorf("told again: %v", err)
	}
}

// moveIn starts a process and then moves it into a cgroup: one that is started in a cgroup which was killed once dies by itself (since
// v6.14, kernel/cgroup/cgroup.c cgroup_css_set_fork takes the kill_seq of its parent's).
func moveIn(t *testing.T, dir string) {
	t.Helper()
	pid, _ := sleeper(t)
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(pid), 0); err != nil {
		t.Fatal(err)
	}
}

// A process that comes into the cgroup after the kill is killed too, as long as that was not empty.
func TestWhoComesAfterTheKillDies(t *testing.T) {
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
		v.killAgain(nil)
		if err := v.group.wait.WaitEmpty(t.Context(), 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("what came after the victim's end: %v", err)
		}
		v.Close()
	}
}

// A kill that waits its turn while the kernel holds another's write up comes too late for its victim, which dies by its pidfds. A kubelet makes
// the pod's next sandbox in the same cgroup: that one is not killed.
func TestAQueuedKillSparesTheNextSandbox(t *testing.T) {
	const gone = "populated 0\nfrozen 0\n"
	for name, c := range map[string]struct {
		seen   bool   // that it was empty
		events string // of its cgroup by the time the write's turn comes
	}{
		"seen empty, another lives":   {true, "populated 1\nfrozen 0\n"},
		"not seen, but empty now":     {false, gone},
		"given up alive, and closed":  {false, "populated 1\nfrozen 0\n"},
		"seen empty, and still empty": {true, gone},
	} {
		f := newTree(t)
		k := newKiller(t, f.fs, "")
		kill := func(name string, full bool) (v *Victim, letGo func()) {
			pid, ended := sleeper(t)
			p := f.pod(name, map[string]string{"cgroup.procs": pid})
			if full {
				letGo = f.full(name, "cgroup.kill")
			}
			v, err := k.Pin(p)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(v.Close)
			if err := v.Kill(); err != nil {
				t.Fatal(err)
			}
			if name != "last" { // no write is held up by then, and these are no cgroups
				within(t, name+" dies", ended)
			}
			return v, letGo
		}
		put := func(file, text string) {
			if err := os.WriteFile(f.file("b", file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, letGo := kill("a", true)
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
		letGo()
		// Once a kill that was asked for later is written, that of b had its turn.
		kill("last", false)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if got, _ := os.ReadFile(f.file("last", "cgroup.kill")); len(got) > 0 {
				break
			}
		}
		if got, err := os.ReadFile(f.file("b", "cgroup.kill")); err != nil || len(got) > 0 {
			t.Errorf("%s: %q is written to b's cgroup.kill, %v", name, got, err)
		}
	}
}

// Whoever asks for a kill of a victim that was seen empty kills nobody: not through cgroup.kill, not one by one, and with no threads of a Killer.
func TestAVictimThatWasSeenEmptyIsNotKilledAgain(t *testing.T) {
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
				t.Errorf("%v, threads %v: %v", rungs, threads, err)
			}
			select {
			case <-ended:
				t.Errorf("%v, threads %v: the next sandbox is dead", rungs, threads)
			case <-time.After(50 * time.Millisecond):
			}
			if got, _ := os.ReadFile(f.file("a", "cgroup.kill")); len(got) > 0 {
				t.Errorf("%v, threads %v: %q is written to cgroup.kill", rungs, threads, got)
			}
		}
	}
}
