package kill

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/internal/base/race"
	"jettison/stats"
)

func newKiller(t *testing.T, fs *cgroup.FS, rungs string) *Killer {
	t.Helper()
	l, err := ParseLadder(rungs)
	if err != nil {
		t.Fatal(err)
	}
	k := New(Options{FS: fs, Ladder: l})
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// waitLimit bounds waits for events that take milliseconds on an idle machine.
const waitLimit = 30 * time.Second

// pinWithoutLimit pins a victim and extends the limit of a kill process by process, because the machine may be busy.
func pinWithoutLimit(t *testing.T, k *Killer, p *stats.PodStats) *Victim {
	t.Helper()
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	v.singles.limit = time.Minute
	return v
}

// step waits for a step of that name.
func step(t *testing.T, v *Victim, name string) Step {
	t.Helper()
	for limit := time.After(waitLimit); ; {
		steps := v.Steps()
		if i := slices.IndexFunc(steps, func(s Step) bool { return s.Name == name }); i >= 0 {
			return steps[i]
		}
		select {
		case <-limit:
			t.Fatalf("step %q not recorded after %v, steps = %+v", name, waitLimit, steps)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestEachRungKills(t *testing.T) {
	for rungs, want := range map[string]string{
		"cgroup.kill": "cgroup.kill", "pidfd": "pidfd", "": "cgroup.kill", "pidfd,mrelease,cpu": "pidfd", "cgroup.kill,mrelease": "cgroup.kill",
	} {
		t.Run(rungs, func(t *testing.T) {
			fs, p := pod(t)
			v := pinWithoutLimit(t, newKiller(t, fs, rungs), p)
			if v.Killed() {
				t.Error("Killed before Kill = true, want false")
			}
			if err := v.Kill(); err != nil || !v.Killed() {
				t.Fatalf("Kill = %v, Killed = %v, want nil, true", err, v.Killed())
			}
			if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			if s := step(t, v, want); s.Err != nil || s.At <= 0 || want == "pidfd" && s.N != 1 {
				t.Errorf("step %s = %+v, want no error, a time and N = 1", want, s)
			}
			if strings.Contains(rungs, "mrelease") {
				if s := step(t, v, "mrelease"); s.Err != nil && !errors.Is(s.Err, unix.ENOSYS) {
					t.Errorf("step mrelease = %+v, want no error or ENOSYS", s)
				}
			}
			last := time.Duration(0)
			for _, s := range v.Steps() {
				if s.At < last {
					t.Errorf("steps go back in time: %+v", v.Steps())
				}
				last = s.At
			}
		})
	}
}

func TestOnlyRuntimeStepConfigured(t *testing.T) {
	fs, p := pod(t)
	v, err := newKiller(t, fs, "runtime").Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.Kill(); err == nil || v.Killed() {
		t.Errorf("Kill = %v, Killed = %v, want an error and false", err, v.Killed())
	}
	if err := v.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wait for a live victim: error = %v, want deadline exceeded", err)
	}
	r, c := fake(t)
	if err := v.Clean(t.Context(), c, func(error) {}); err != nil {
		t.Fatal(err)
	}
	if got := seconds(r); len(got) != 1 || got[0] != 0 {
		t.Errorf("StopContainer with grace periods %v, want one of 0", got)
	}
}

func TestRuntimeStepNotConfigured(t *testing.T) {
	fs, p := pod(t)
	v, err := newKiller(t, fs, "cgroup.kill").Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	r, c := fake(t)
	if err := v.Clean(t.Context(), c, func(error) {}); err == nil || r.Calls("StopPodSandbox") > 0 {
		t.Errorf("Clean of a live victim = %v with %d calls of StopPodSandbox, want an error and none", err, r.Calls("StopPodSandbox"))
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	r.Change(func() { r.Containers = nil })
	if err := v.Clean(t.Context(), c, func(error) {}); err != nil {
		t.Error(err)
	}
}

func TestParseLadder(t *testing.T) {
	for text, want := range map[string]Ladder{
		"": All, " ": All, "cgroup.kill": CgroupKill, " mrelease , cpu,cgroup.kill": CgroupKill | CPU | Mrelease, All.String(): All,
	} {
		got, err := ParseLadder(text)
		if again, _ := ParseLadder(got.String()); err != nil || got != want || again != got {
			t.Errorf("ParseLadder(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"kill", "cgroup.kill,", ",", "cgroup.kill;cpu", "CPU"} {
		if got, err := ParseLadder(text); err == nil || !strings.Contains(err.Error(), "cgroup.kill,pidfd,cpu,mrelease,runtime") {
			t.Errorf("ParseLadder(%q) = %v, %v, want an error that lists the steps", text, got, err)
		}
	}
}

// Nothing is allocated from the choice of a victim to its kill, so the kill never waits for memory.
func TestPinAndKillDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	fs, p := pod(t)
	k := newKiller(t, fs, "cgroup.kill,pidfd")
	const runs = 100
	k.spares = make(chan *Victim, runs+1)
	for range runs + 1 {
		k.spares <- newVictim()
	}
	victims := make([]*Victim, 0, runs+1)
	h := newHelper(k)
	n := testing.AllocsPerRun(runs, func() {
		v, err := k.Pin(p)
		if err == nil {
			h.v = v
			h.pidfds()
			err = v.Kill()
		}
		if err != nil {
			t.Error(err)
			return
		}
		victims = append(victims, v)
	})
	for _, v := range victims {
		v.Close()
	}
	if n != 0 {
		t.Errorf("allocations of Pin and Kill = %v, want 0", n)
	}
}

// Close ends the threads, victims may outlive their Killer, and no descriptor leaks.
func TestKillerReleasesEverything(t *testing.T) {
	fs, p := pod(t)
	before := descriptors(t)
	k := New(Options{FS: fs})
	var victims []*Victim
	for range 2 * maxDying { // more than are reaped at a time
		v, err := k.Pin(p)
		if err != nil {
			t.Fatal(err)
		}
		victims = append(victims, v)
	}
	var kills sync.WaitGroup
	for _, v := range victims {
		kills.Go(func() {
			if err := v.Kill(); err != nil {
				t.Error(err)
			}
		})
	}
	kills.Wait()
	if err := errors.Join(k.Close(), k.Close()); err != nil {
		t.Fatal(err)
	}
	for _, v := range victims {
		v.Close()
		v.Close()
	}
	late, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Kill(); err != nil {
		t.Errorf("kill after the threads ended: error = %v, want nil", err)
	}
	late.Close()
	if after := descriptors(t); after != before {
		t.Errorf("open descriptors after the test = %d, want %d as before", after, before)
	}
}

func TestStepsAreBounded(t *testing.T) {
	var s stepLog
	for range 1000 {
		s.call(stepStop, errBusy)
	}
	s.call(stepStop, nil)
	if got := s.snapshot(); len(got) != 1 || got[0].N != 1001 || got[0].Err != nil {
		t.Errorf("steps after 1001 calls = %+v, want one with N = 1001", got)
	}
	for range 1000 {
		s.add(stepPin, 0, nil)
	}
	s.add(stepEmptied, 0, nil)
	if got := s.snapshot(); len(got) != maxSteps || got[maxSteps-1].Name != stepEmptied {
		t.Errorf("%d steps %+v, want %d with the latest at the end", len(got), got, maxSteps)
	}
}

// bomb starts a process in a cgroup that forks others as fast as it can, up to a few thousand: a bound, in case the test is slower.
func bomb(t *testing.T, dir string) {
	t.Helper()
	start(t, dir, "/bin/sh", "-c", "i=0; while [ $i -lt 1000 ]; do (sleep 600 & sleep 600) & i=$((i+1)); done; wait")
}

// A kill through pidfds finds all processes of a fork bomb, and thaws the victim at the end.
func TestPidfdsEndForkBomb(t *testing.T) {
	fs, p := pod(t)
	top := filepath.Join(fs.Mount(), p.Cgroup)
	bomb(t, filepath.Join(top, "container"))
	v := pinWithoutLimit(t, newKiller(t, fs, "pidfd"), p)
	waitProcs(t, top+"/container", 100)
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if s := step(t, v, "pidfd"); s.N < 100 {
		t.Errorf("step pidfd = %+v, want N >= 100", s)
	}
	if b, err := os.ReadFile(filepath.Join(top, "cgroup.freeze")); err != nil || string(b) != "0\n" {
		t.Errorf("cgroup.freeze after the kill = %q, %v, want 0", b, err)
	}
}

// Threads that appear in the cgroup after the death belong to another pod life.
func TestDeadVictimIsNotRaised(t *testing.T) {
	fs, p := pod(t)
	k := newKiller(t, fs, "cgroup.kill")
	v, err := k.Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := errors.Join(v.Kill(), v.WaitEmpty(t.Context(), time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := newRaiser("/proc", func() {}).raise(v, &v.group.reap); n != 0 || err != nil {
		t.Errorf("raised %d threads, %v, want 0 and no error", n, err)
	}
}

// A child of a fork that was in flight when its parent was killed is listed late, and dies too.
func TestLateListedProcessDies(t *testing.T) {
	fs, p := pod(t)
	v := pinWithoutLimit(t, newKiller(t, fs, "pidfd"), p)
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	start(t, filepath.Join(fs.Mount(), p.Cgroup, "container"), "sleep", "600")
	if err := v.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wait without time = %v, want deadline exceeded and no kill", err)
	}
	if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

// waitProcs waits until a cgroup has at least n processes.
func waitProcs(t *testing.T, dir string, n int) {
	t.Helper()
	for limit := time.After(waitLimit); ; {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(b), "\n") >= n {
			return
		}
		select {
		case <-limit:
			t.Fatalf("%d processes in the cgroup after %v, want %d", strings.Count(string(b), "\n"), waitLimit, n)
		case <-time.After(time.Millisecond):
		}
	}
}

// A victim frozen by another program dies, and its cgroup stays frozen.
func TestFrozenVictims(t *testing.T) {
	for _, rungs := range []string{"cgroup.kill", "pidfd"} {
		fs, p := pod(t)
		top := filepath.Join(fs.Mount(), p.Cgroup)
		if err := os.WriteFile(top+"/cgroup.freeze", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		v := pinWithoutLimit(t, newKiller(t, fs, rungs), p)
		if err := errors.Join(v.Kill(), v.WaitEmpty(t.Context(), time.Minute)); err != nil {
			t.Error(rungs, err)
		}
		v.Close()
		if b, _ := os.ReadFile(top + "/cgroup.freeze"); string(b) != "1\n" {
			t.Errorf("%s: cgroup.freeze after the kill = %q, want 1", rungs, b)
		}
	}
}

// A threaded cgroup refuses cgroup.kill and has no list of processes.
func TestThreadedVictims(t *testing.T) {
	fs, p := pod(t)
	thread := filepath.Join(fs.Mount(), p.Cgroup, "container", "threads")
	if err := os.Mkdir(thread, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Rmdir(thread) })
	if err := os.WriteFile(thread+"/cgroup.type", []byte("threaded"), 0); err != nil {
		t.Skip("no threaded groups here: ", err)
	}
	procs, err := os.ReadFile(filepath.Join(filepath.Dir(thread), "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(thread+"/cgroup.threads", []byte(strings.TrimSpace(string(procs))), 0); err != nil {
		t.Fatal(err)
	}
	v := pinWithoutLimit(t, newKiller(t, fs, ""), &stats.PodStats{PodRef: p.PodRef, Cgroup: p.Cgroup + "/container/threads", SandboxIDs: p.SandboxIDs})
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if s := step(t, v, "cgroup.kill"); !errors.Is(s.Err, unix.EOPNOTSUPP) {
		t.Errorf("step cgroup.kill = %+v, want EOPNOTSUPP", s)
	}
	if s := step(t, v, "pidfd"); s.Err != nil || s.N != 1 {
		t.Errorf("step pidfd = %+v, want N = 1 and no error", s)
	}
}

// Repeated rounds of a slow kill block neither the kill of the next victim nor the threads that free memory.
func TestRepeatedKillBlocksNoOther(t *testing.T) {
	mount := t.TempDir()
	for _, dir := range []string{"", "pod"} {
		for name, text := range map[string]string{"cgroup.events": "populated 1\nfrozen 0\n", "cgroup.procs": ""} {
			path := filepath.Join(mount, dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fs, err := cgroup.OpenTree(mount)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	k := newKiller(t, fs, "pidfd")
	v, err := k.Pin(&stats.PodStats{PodRef: stats.PodReference{UID: "u"}, Cgroup: "pod"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	_ = v.Kill() // cgroup.procs lists no process
	v.replies.mu.Lock()
	v.singles.mu.Lock()
	ended := make(chan error, 1)
	go func() { ended <- v.WaitEmpty(t.Context(), 4*sweepFirst) }()
	select {
	case err = <-ended:
	case <-time.After(waitLimit):
		err = errors.New("WaitEmpty blocks on a lock of the kill")
	}
	v.singles.mu.Unlock()
	v.replies.mu.Unlock()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("WaitEmpty = %v, want deadline exceeded", err)
	}
}

// Hundreds of processes exit slowly on a small node. While a victim uses CPU time it is dying, and no
// other one is needed; one that uses none counts as alive after the limit.
func TestWaitEmptyWaitsForADyingVictim(t *testing.T) {
	for _, c := range []struct {
		what  string
		exits bool
	}{{"uses CPU time", true}, {"uses none", false}} {
		root := t.TempDir()
		file := func(name, text string) { // in one write, so that no reader sees a part
			f, err := os.OpenFile(filepath.Join(root, "pod", name), os.O_WRONLY|os.O_CREATE, 0o644)
			if err == nil {
				_, err = f.WriteAt([]byte(text), 0)
			}
			if err = errors.Join(err, f.Close()); err != nil {
				t.Error(err)
			}
		}
		if err := os.Mkdir(filepath.Join(root, "pod"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cgroup.events": "populated 1\n", "cgroup.procs": "", "cgroup.kill": "", "cpu.stat": "usage_usec 1000\n"} {
			file(name, text)
		}
		fs, err := cgroup.OpenTree(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { fs.Close() })
		v, err := Pin(fs, &stats.PodStats{PodRef: stats.PodReference{UID: "u"}, Cgroup: "pod"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(v.Close)
		if err := v.Kill(); err != nil {
			t.Fatal(err)
		}
		const limit = 3 * time.Second
		began := time.Now()
		ended := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			// each reading finds more CPU time, for twice the limit
			for used, last := 1000, (*cpuReading)(nil); c.exits && time.Since(began) < 2*limit; {
				if r := v.background.cpuTime.Load(); r != last {
					last, used = r, used+1
					file("cpu.stat", fmt.Sprintln("usage_usec", used))
				}
				select {
				case <-ended:
					return
				case <-time.After(time.Millisecond):
				}
			}
			if c.exits {
				file("cgroup.events", "populated 0\n")
			}
		}()
		err = v.WaitEmpty(t.Context(), limit)
		close(ended)
		<-done
		if c.exits && err != nil || !c.exits && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("WaitEmpty of a victim that %s = %v after %v", c.what, err, time.Since(began))
		}
	}
}
