package evictions

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/api"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/internal/node/nodetest"
	"jettison/internal/node/records"
	"jettison/stats"
	"jettison/stats/read"
)

// keeping has what outlives the agent kept in a directory, and takes what the process before this one has left there.
func (f *fixture) keeping(dir string) (state records.State, running []api.Record) {
	f.t.Helper()
	f.Write("proc/sys/kernel/random/boot_id", "0f0e0d0c-0b0a-0908-0706-050403020100\n")
	var keeper *records.Keeper
	keeper, state, running = records.StartKeeper(time.Now(), records.KeeperOptions{Dir: dir, Proc: f.Proc(), Agent: "test", Log: f.Log})
	f.renew(softAndHard, func(o *Options) { o.Keeper = keeper })
	f.t.Cleanup(func() { _ = keeper.Close() })
	return state, running
}

func (f *fixture) save(now time.Time) {
	f.Save(now, func(s *records.State) { s.Manager = f.m.Save() })
}

// crash ends an agent: what it has written at each change is what counts.
func (f *fixture) crash(cancel func()) {
	f.t.Helper()
	f.save(time.Now())
	for err := os.ErrDeadlineExceeded; err != nil; { // the disk may be slow
		err = f.o.Keeper.Close()
	}
	f.end(cancel)
}

// crashed is a node on which the pod was being stopped gently when the agent ended, with the one that follows.
func crashed(t *testing.T) (f *fixture, life *eviction.Life, dir string) {
	t.Helper()
	f, dir = newFixture(t, softAndHard, nil), t.TempDir()
	f.keeping(dir)
	ctx, cancel := context.WithCancel(t.Context())
	life = f.soft(ctx)
	f.crash(cancel)
	return f, life, dir
}

// resume goes on where the agent before was. It returns how many evictions do.
func (f *fixture) resume(ctx context.Context, now time.Time, dir string) int {
	f.t.Helper()
	state, running := f.keeping(dir)
	if dropped := f.m.Resume(now, state.Manager); len(dropped) > 0 {
		f.t.Error(dropped)
	}
	return f.Resume(ctx, now, running)
}

// Killed in the middle of an eviction, the agent comes back and goes on: the pod keeps what is left of its grace period, no other is chosen
// meanwhile, and the record is the same.
func TestAnAgentThatIsKilledGoesOn(t *testing.T) {
	f, before, dir := crashed(t)
	ctx, cancel := context.WithCancel(t.Context())
	now := before.Began().Time.Add(59 * time.Second) // of 60
	if n := f.resume(ctx, now, dir); n != 1 {
		t.Fatalf("%d go on\n%s", n, f.Text())
	}
	life := f.m.Life(nodetest.UID)
	if life == nil || !life.Killed().Time.IsZero() || life.Record != before.Record || !life.Began().Time.Equal(before.Began().Time.Round(0)) {
		t.Fatalf("under way %+v, want record %s\n%s", life, before.Record, f.Text())
	}
	if d := f.decide(now, 150); len(d.Evictions) > 0 {
		t.Errorf("chosen again: %+v", d.Evictions)
	}
	// It dies, the runtime cleans up, and that is the end of it.
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	f.Populated(nodetest.Pod, false)
	for _, want := range []stage{emptied, cleaned} {
		if e := f.take(); e.stage != want || e.err != nil {
			t.Errorf("%+v\n%s", e, f.Text())
		}
	}
	f.observe(time.Now(), 500)
	f.crash(cancel)
	list, err := records.Read(records.Path(dir))
	if err != nil || len(list.Records) != 1 || list.Records[0].ID != before.Record || list.Records[0].Outcome != api.OutcomeBack {
		t.Errorf("records %+v, %v", list, err)
	}
}

// The pod died, and its cgroup went, while there was no agent: the runtime cleans up.
func TestAVictimThatDiedMeanwhileIsCleanedUp(t *testing.T) {
	f, _, dir := crashed(t)
	if err := os.RemoveAll(filepath.Join(f.Dir, "cgroup", nodetest.Pod)); err != nil {
		t.Fatal(err)
	}
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	ctx, cancel := context.WithCancel(t.Context())
	if n := f.resume(ctx, time.Now(), dir); n != 1 {
		t.Fatalf("%d go on\n%s", n, f.Text())
	}
	for _, want := range []stage{emptied, cleaned} {
		if e := f.take(); e.stage != want || e.err != nil {
			t.Errorf("%+v\n%s", e, f.Text())
		}
	}
	if f.Runtime.Calls("StopPodSandbox") == 0 {
		t.Error("the runtime was not asked")
	}
	f.end(cancel)
}

// A kubelet has started the pod again meanwhile, in the cgroup that it had: it is another pod now, and only what is left of the one before
// is cleaned up.
func TestAPodThatCameBackMeanwhileLives(t *testing.T) {
	f, _, dir := crashed(t)
	f.Runtime.Change(func() {
		f.Runtime.Hang = nil
		f.Runtime.Sandboxes = append(f.Runtime.Sandboxes, &runtimev1.PodSandbox{
			Id: "next", Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID, Name: "pod", Namespace: "default", Attempt: 1},
			CreatedAt: time.Now().UnixNano(),
		})
	})
	listing, err := cri.NewLister(f.Client).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.pods = read.NewIndex(listing)
	ctx, cancel := context.WithCancel(t.Context())
	f.resume(ctx, time.Now(), dir)
	for range 2 {
		if e := f.take(); e.err != nil {
			t.Errorf("%+v\n%s", e, f.Text())
		}
	}
	f.end(cancel)
	f.Runtime.Change(func() {
		for _, s := range f.Runtime.Sandboxes {
			if ready := s.State == runtimev1.PodSandboxState_SANDBOX_READY; ready != (s.Id == "next") {
				t.Errorf("sandbox %s: %v", s.Id, s.State)
			}
		}
	})
}

// Long after the grace period it is not known whether anything is short still: the pod is left alone until it is chosen anew, and the record
// says that the eviction was abandoned.
func TestALateRestartKillsNoPod(t *testing.T) {
	f, before, dir := crashed(t)
	later := time.Now().Add(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	if n := f.resume(ctx, later, dir); n != 0 || f.Runtime.Calls("StopPodSandbox") != 0 {
		t.Errorf("%d go on\n%s", n, f.Text())
	}
	f.observe(later, 500)
	f.crash(cancel)
	list, err := records.Read(records.Path(dir))
	if err != nil || len(list.Records) != 1 || list.Records[0].ID != before.Record || list.Records[0].Outcome != api.OutcomeAbandoned {
		t.Errorf("records %+v, %v", list, err)
	}
}

// An eviction whose outcome was not known yet when the agent ended, though the runtime had cleaned up, gets it from the next one.
func TestAnOutcomeIsAwaitedOverARestart(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	f.keeping(dir)
	f.killable()
	f.Populated(nodetest.Pod, true)
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, time.Now(), 90)
	f.Populated(nodetest.Pod, false)
	for range 2 {
		if e := f.take(); e.err != nil {
			t.Error(e.err)
		}
	}
	if life.Outcome() != eviction.OutcomeUnknown || life.Phase() != eviction.Cleaned {
		t.Fatalf("%v, outcome %v", life.Phase(), life.Outcome())
	}
	f.crash(cancel)
	ctx, cancel = context.WithCancel(t.Context())
	if n := f.resume(ctx, time.Now(), dir); n != 1 {
		t.Fatalf("%d go on\n%s", n, f.Text())
	}
	f.observe(time.Now(), 500)
	f.crash(cancel)
	list, err := records.Read(records.Path(dir))
	if err != nil || len(list.Records) != 1 || list.Records[0].Outcome != api.OutcomeBack {
		t.Errorf("records %+v, %v\n%s", list, err, f.Text())
	}
}

// A state that cannot be true costs one line, and nothing goes on.
func TestAStateThatCannotBeTrueIsAFreshStart(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, records.StateFile), []byte("{\"version\": 1, \"evictions\": 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := f.resume(t.Context(), time.Now(), dir); n != 0 || strings.Count(f.Text(), "saved state incomplete") != 1 {
		t.Errorf("%d go on\n%s", n, f.Text())
	}
}

// A pod that does not die stays set aside over a restart, as long as it was: that the agent goes on without its eviction is no death.
func TestAPodThatDoesNotDieIsSetAsideOverARestart(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	life := f.soft(ctx)
	now := time.Now()
	f.OnEvent(now, Event{f.underway[life].job, emptied, os.ErrDeadlineExceeded}) // its grace period is over, and the runtime hangs
	f.observe(now, 150)
	saved := f.m.Save()
	f.end(cancel)
	saved.Aside[0].Times, saved.Aside[0].Until = 4, now.Add(4*time.Minute)
	f.renew(softAndHard, nil)
	later := now.Add(71 * time.Second)
	if dropped := f.m.Resume(later, saved); len(dropped) > 0 {
		t.Fatal(dropped)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if n := f.Resume(ctx, later, nil); n != 0 {
		t.Errorf("%d go on", n)
	}
	f.end(cancel)
	if again := f.m.Save(); len(f.m.SetAside(later)) != 1 || again.Aside[0].Times != 4 || len(again.Evicted) != 0 {
		t.Errorf("set aside %v, saved %+v", f.m.SetAside(later), again)
	}
}

// A dry run asks for the same pod at every look, and would have evicted it once; after a minute without, it would have again. What it keeps
// of that is bounded.
func TestADryRunWouldEvictAPodOnceAShortage(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	keeper, _, _ := records.StartKeeper(time.Now(), records.KeeperOptions{Dir: dir, Proc: f.Proc(), Log: f.Log, DryRun: true})
	f.renew(softAndHard, func(o *Options) { o.Keeper, o.DryRun = keeper, true })
	start := time.Now()
	would := func(at time.Duration, uid string) {
		e := eviction.Eviction{Pod: stats.PodStats{PodRef: stats.PodReference{UID: uid}}, Signal: stats.SignalMemoryAvailable}
		if f.OnDecided(t.Context(), &eviction.Decision{Time: start.Add(at), Evictions: []eviction.Eviction{e}}) {
			t.Error("one was begun")
		}
	}
	for i := range 100 {
		would(time.Duration(i)*50*time.Second, "a")
	}
	would(5000*time.Second, "b")
	would(5010*time.Second+wouldAgain, "a")
	if len(f.would) != 1 {
		t.Errorf("it remembers %v", f.would)
	}
	would(5020*time.Second+2*wouldAgain, "c")
	f.Save(time.Now(), func(*records.State) { t.Error("a state is saved") })
	if err := keeper.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := records.Read(records.Path(dir))
	var got []string
	for _, r := range list.Records {
		got = append(got, r.Pod.UID)
	}
	if err != nil || strings.Join(got, " ") != "a b a c" {
		t.Errorf("recorded %v, %v", got, err)
	}
}

// heldUp has the write of the pod's cgroup.kill wait, as for a lock of the kernel, until it is let go.
func (f *fixture) heldUp() (letGo func()) {
	f.t.Helper()
	path := filepath.Join(f.Dir, "cgroup", nodetest.Pod, "cgroup.kill")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		f.t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, size := range []int{4096, 1} {
		for err == nil {
			_, err = unix.Write(fd, make([]byte, size))
		}
		if err != unix.EAGAIN {
			f.t.Fatal(err)
		}
		err = nil
	}
	return func() {
		_, _ = unix.Read(fd, make([]byte, 1<<16))
		f.t.Cleanup(func() { unix.Close(fd) })
	}
}

// The agent crashes while a kill waits for a lock of the kernel: that is no kill yet. The next one kills, where the pod has not come back; one
// that was carried out is not carried out twice.
func TestAKillThatOnlyWaitedIsCarriedOutAfterACrash(t *testing.T) {
	for _, c := range []struct {
		name         string
		waits, again bool
		change       func(f *fixture)
	}{
		{"it waited", true, true, func(*fixture) {}},
		{"it was carried out", false, false, func(*fixture) {}},
		{"the pod came back", true, false, func(f *fixture) { f.pods[nodetest.UID].Sandboxes[0].ID = "next" }},
		{"the runtime does not know it", true, false, func(f *fixture) { f.pods = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, dir := newFixture(t, softAndHard, nil), t.TempDir()
			f.keeping(dir)
			killer := kill.New(kill.Options{FS: f.FS, Ladder: kill.CgroupKill})
			f.o.Pin = killer.Pin
			f.pods = f.Runs()
			letGo := func() {}
			if c.waits {
				letGo = f.heldUp()
			} else {
				f.killable()
			}
			ctx, cancel := context.WithCancel(t.Context())
			life := f.evict(ctx, time.Now(), 90)
			if life == nil || life.Killed().Time.IsZero() {
				t.Fatalf("%+v\n%s", life, f.Text())
			}
			f.crash(cancel)
			letGo()
			if err := killer.Close(); err != nil {
				t.Error(err)
			}
			path := filepath.Join(f.Dir, "cgroup", nodetest.Pod, "cgroup.kill")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			f.killable()
			f.Populated(nodetest.Pod, true)
			c.change(f)
			ctx, cancel = context.WithCancel(t.Context())
			if n := f.resume(ctx, time.Now(), dir); n != 1 {
				t.Fatalf("%d go on\n%s", n, f.Text())
			}
			written, err := os.ReadFile(path)
			if again := string(written) == "1"; again != c.again || err != nil {
				t.Errorf("killed again: %v, want %v, %v\n%s", again, c.again, err, f.Text())
			}
			f.Populated(nodetest.Pod, false)
			f.take()
			f.end(cancel)
		})
	}
}
