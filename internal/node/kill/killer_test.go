package kill

import (
	"errors"
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

// waitLimit is for what takes milliseconds, on a machine that is busy with other things.
const waitLimit = 30 * time.Second

// pinPatiently pins a victim that may be killed process by process for longer than half a second: the machine may be busy.
func pinPatiently(t *testing.T, k *Killer, p *stats.PodStats) *Victim {
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
			t.Fatalf("no step %q after %v: %+v", name, waitLimit, steps)
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
			v := pinPatiently(t, newKiller(t, fs, rungs), p)
			if v.Killed() {
				t.Error("killed before it was")
			}
			if err := v.Kill(); err != nil || !v.Killed() {
				t.Fatal(err, v.Killed())
			}
			if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			if s := step(t, v, want); s.Err != nil || s.At <= 0 || want == "pidfd" && s.N != 1 {
				t.Errorf("%+v", s)
			}
			if strings.Contains(rungs, "mrelease") {
				if s := step(t, v, "mrelease"); s.Err != nil && !errors.Is(s.Err, unix.ENOSYS) {
					t.Errorf("%+v", s)
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

func TestOnlyTheRuntimeMay(t *testing.T) {
	fs, p := pod(t)
	v, err := newKiller(t, fs, "runtime").Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.Kill(); err == nil || v.Killed() {
		t.Errorf("killed: %v", err)
	}
	if err := v.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("alive: got %v", err)
	}
	r, c := fake(t)
	if err := v.Clean(t.Context(), c, func(error) {}); err != nil {
		t.Fatal(err)
	}
	if got := seconds(r); len(got) != 1 || got[0] != 0 {
		t.Errorf("StopContainer with grace periods %v, want one of 0", got)
	}
}

func TestTheRuntimeMayNot(t *testing.T) {
	fs, p := pod(t)
	v, err := newKiller(t, fs, "cgroup.kill").Pin(p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	r, c := fake(t)
	if err := v.Clean(t.Context(), c, func(error) {}); err == nil || r.Calls("StopPodSandbox") > 0 {
		t.Errorf("a living victim: %v, %d calls", err, r.Calls("StopPodSandbox"))
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
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"kill", "cgroup.kill,", ",", "cgroup.kill;cpu", "CPU"} {
		if got, err := ParseLadder(text); err == nil || !strings.Contains(err.Error(), "cgroup.kill,pidfd,cpu,mrelease,runtime") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// From the choice of a victim to its death nothing is allocated, so nothing waits for memory.
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
		t.Errorf("%v allocations", n)
	}
}

// The threads end with the Killer, victims may outlive it, and no descriptor is left.
func TestKillerGivesEverythingBack(t *testing.T) {
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
		t.Errorf("a kill after the threads ended: %v", err)
	}
	late.Close()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestStepsAreBounded(t *testing.T) {
	var s stepLog
	for range 1000 {
		s.call(stepStop, errBusy)
	}
	s.call(stepStop, nil)
	if got := s.copied(); len(got) != 1 || got[0].N != 1001 || got[0].Err != nil {
		t.Errorf("%+v", got)
	}
	for range 1000 {
		s.add(stepPin, 0, nil)
	}
	s.add(stepEmptied, 0, nil)
	if got := s.copied(); len(got) != maxSteps || got[maxSteps-1].Name != stepEmptied {
		t.Errorf("%d steps: %+v", len(got), got)
	}
}

// bomb starts a process in a cgroup that starts others as fast as it can, until they are some thousands: the test may be slower than
// it is, and the machine has other things to do.
func bomb(t *testing.T, dir string) {
	t.Helper()
	start(t, dir, "/bin/sh", "-c", "i=0; while [ $i -lt 1000 ]; do (sleep 600 & sleep 600) & i=$((i+1)); done; wait")
}

// Processes that fork meanwhile are all found, with the kernel's freezer and without it; the victim is thawed in the end.
func TestPidfdsEndAForkBomb(t *testing.T) {
	fs, p := pod(t)
	top := filepath.Join(fs.Mount(), p.Cgroup)
	bomb(t, filepath.Join(top, "container"))
	v := pinPatiently(t, newKiller(t, fs, "pidfd"), p)
	waitProcs(t, top+"/container", 100)
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if s := step(t, v, "pidfd"); s.N < 100 {
		t.Errorf("%+v", s)
	}
	if b, err := os.ReadFile(filepath.Join(top, "cgroup.freeze")); err != nil || string(b) != "0\n" {
		t.Errorf("left frozen: %q, %v", b, err)
	}
}

// A thread that comes when the victim is dead says so: whoever reads the steps does not wait for it in vain.
func TestADeadVictimIsNotLifted(t *testing.T) {
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
	r := &reaping{k: k, v: v}
	r.boost = r.boostGroup
	r.lift()
	if s := step(t, v, "cpu"); s.N != 0 || s.Err != nil {
		t.Errorf("%+v", s)
	}
}

// A child of a fork that was under way when its parent was killed is listed late. It dies, too.
func TestWhoIsListedLateDies(t *testing.T) {
	fs, p := pod(t)
	v := pinPatiently(t, newKiller(t, fs, "pidfd"), p)
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	start(t, filepath.Join(fs.Mount(), p.Cgroup, "container"), "sleep", "600")
	if err := v.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("killed by a look: %v", err)
	}
	if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

// waitProcs waits until a cgroup has so many processes.
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
			t.Fatalf("%d of %d processes after %v", strings.Count(string(b), "\n"), n, waitLimit)
		case <-time.After(time.Millisecond):
		}
	}
}

// What was frozen by somebody else dies, and stays frozen.
func TestFrozenVictims(t *testing.T) {
	for _, rungs := range []string{"cgroup.kill", "pidfd"} {
		fs, p := pod(t)
		top := filepath.Join(fs.Mount(), p.Cgroup)
		if err := os.WriteFile(top+"/cgroup.freeze", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		v := pinPatiently(t, newKiller(t, fs, rungs), p)
		if err := errors.Join(v.Kill(), v.WaitEmpty(t.Context(), time.Minute)); err != nil {
			t.Error(rungs, err)
		}
		v.Close()
		if b, _ := os.ReadFile(top + "/cgroup.freeze"); string(b) != "1\n" {
			t.Errorf("%s: thawed: %q", rungs, b)
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
	v := pinPatiently(t, newKiller(t, fs, ""), &stats.PodStats{PodRef: p.PodRef, Cgroup: p.Cgroup + "/container/threads", SandboxIDs: p.SandboxIDs})
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if s := step(t, v, "cgroup.kill"); !errors.Is(s.Err, unix.EOPNOTSUPP) {
		t.Errorf("%+v", s)
	}
	if s := step(t, v, "pidfd"); s.Err != nil || s.N != 1 {
		t.Errorf("%+v", s)
	}
}

// Sweeps after whom dies slowly hold up nobody: neither the kill of the next victim, nor the threads that free memory.
func TestSweepsHoldUpNobody(t *testing.T) {
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
	_ = v.Kill() // who lives in it is not listed
	v.replies.mu.Lock()
	v.singles.mu.Lock()
	ended := make(chan error, 1)
	go func() { ended <- v.WaitEmpty(t.Context(), 4*sweepFirst) }()
	select {
	case err = <-ended:
	case <-time.After(waitLimit):
		err = errors.New("a sweep waits for a lock of the kill")
	}
	v.singles.mu.Unlock()
	v.replies.mu.Unlock()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}
