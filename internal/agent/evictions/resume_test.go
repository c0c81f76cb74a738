package evictions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// keeping stores state and records in a directory, and returns what the previous process stored
// there.
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

// crash ends an agent: only what was stored at each change remains.
func (f *fixture) crash(cancel func()) {
	f.t.Helper()
	f.save(time.Now())
	for err := os.ErrDeadlineExceeded; err != nil; { // the disk may be slow
		err = f.o.Keeper.Close()
	}
	f.end(cancel)
}

// crashed returns a node on which the agent crashed while it stopped the pod with a grace period.
func crashed(t *testing.T) (f *fixture, life *eviction.Life, dir string) {
	t.Helper()
	f, dir = newFixture(t, softAndHard, nil), t.TempDir()
	f.keeping(dir)
	ctx, cancel := context.WithCancel(t.Context())
	life = f.soft(ctx)
	f.crash(cancel)
	return f, life, dir
}

// resume continues the evictions of the previous agent process, and returns their number.
func (f *fixture) resume(ctx context.Context, now time.Time, dir string) int {
	f.t.Helper()
	state, running := f.keeping(dir)
	if dropped := f.m.Resume(now, state.Manager); len(dropped) > 0 {
		f.t.Errorf("the manager dropped restored state: %v", dropped)
	}
	return f.Resume(ctx, now, running)
}

// An agent killed during an eviction continues it after its restart: the pod keeps the rest of its
// grace period, no other pod is chosen, and the record stays the same.
func TestRestartedAgentContinues(t *testing.T) {
	f, before, dir := crashed(t)
	ctx, cancel := context.WithCancel(t.Context())
	now := before.Began().Time.Add(59 * time.Second) // of 60
	if n := f.resume(ctx, now, dir); n != 1 {
		t.Fatalf("%d evictions continue, want 1\n%s", n, f.Text())
	}
	life := f.m.Life(nodetest.UID)
	if life == nil || !life.Killed().Time.IsZero() || life.Record != before.Record || !life.Began().Time.Equal(before.Began().Time.Round(0)) {
		t.Fatalf("eviction in progress = %+v, want record %s\n%s", life, before.Record, f.Text())
	}
	if d := f.decide(now, 150); len(d.Evictions) > 0 {
		t.Errorf("a victim is chosen again: %+v", d.Evictions)
	}
	// The pod dies, the runtime cleans up, and the eviction ends.
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	f.Populated(nodetest.Pod, false)
	for _, want := range []stage{emptied, cleaned} {
		if e := f.take(); e.stage != want || e.err != nil {
			t.Errorf("report = %+v, want stage %v\n%s", e, want, f.Text())
		}
	}
	f.observe(time.Now(), 500)
	f.crash(cancel)
	list, err := records.Read(records.Path(dir))
	if err != nil || len(list.Records) != 1 || list.Records[0].ID != before.Record || list.Records[0].Outcome != api.OutcomeBack {
		t.Errorf("records after the restart = %+v (%v), want one with outcome back", list, err)
	}
}

// The pod died and its cgroup was removed while no agent ran: the runtime cleans up.
func TestVictimThatDiedMeanwhileIsCleanedUp(t *testing.T) {
	f, _, dir := crashed(t)
	if err := os.RemoveAll(filepath.Join(f.Dir, "cgroup", nodetest.Pod)); err != nil {
		t.Fatal(err)
	}
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	ctx, cancel := context.WithCancel(t.Context())
	if n := f.resume(ctx, time.Now(), dir); n != 1 {
		t.Fatalf("%d evictions continue, want 1\n%s", n, f.Text())
	}
	for _, want := range []stage{emptied, cleaned} {
		if e := f.take(); e.stage != want || e.err != nil {
			t.Errorf("report = %+v, want stage %v\n%s", e, want, f.Text())
		}
	}
	if f.Runtime.Calls("StopPodSandbox") == 0 {
		t.Error("StopPodSandbox was not called")
	}
	f.end(cancel)
}

// A kubelet has started the pod again meanwhile in the same cgroup: it is another pod now, and only
// leftovers of the earlier one are cleaned up.
func TestPodThatCameBackMeanwhileLives(t *testing.T) {
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
			t.Errorf("report = %+v, want no error\n%s", e, f.Text())
		}
	}
	f.end(cancel)
	f.Runtime.Change(func() {
		for _, s := range f.Runtime.Sandboxes {
			if ready := s.State == runtimev1.PodSandboxState_SANDBOX_READY; ready != (s.Id == "next") {
				t.Errorf("sandbox %s has state %v, want only next ready", s.Id, s.State)
			}
		}
	})
}

// Long after the grace period the shortage may be over: the pod stays until it is chosen again, and
// the record shows the eviction as abandoned.
func TestLateRestartKillsNoPod(t *testing.T) {
	f, before, dir := crashed(t)
	later := time.Now().Add(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	if n := f.resume(ctx, later, dir); n != 0 || f.Runtime.Calls("StopPodSandbox") != 0 {
		t.Errorf("%d evictions continue, want none\n%s", n, f.Text())
	}
	f.observe(later, 500)
	f.crash(cancel)
	list, err := records.Read(records.Path(dir))
	if err != nil || len(list.Records) != 1 || list.Records[0].ID != before.Record || list.Records[0].Outcome != api.OutcomeAbandoned {
		t.Errorf("records %+v (%v), want one abandoned", list, err)
	}
}

// If the outcome was unknown when the agent ended, although the runtime had cleaned up, the next
// agent records it.
func TestOutcomeIsAwaitedAfterARestart(t *testing.T) {
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
		t.Fatalf("phase %v, outcome %v, want cleaned and unknown", life.Phase(), life.Outcome())
	}
	f.crash(cancel)
	ctx, cancel = context.WithCancel(t.Context())
	if n := f.resume(ctx, time.Now(), dir); n != 1 {
		t.Fatalf("%d evictions continue, want 1\n%s", n, f.Text())
	}
	f.observe(time.Now(), 500)
	f.crash(cancel)
	list, err := records.Read(records.Path(dir))
	if err != nil || len(list.Records) != 1 || list.Records[0].Outcome != api.OutcomeBack {
		t.Errorf("records %+v (%v), want one with outcome back\n%s", list, err, f.Text())
	}
}

// A malformed state is logged once and ignored.
func TestMalformedStateIsIgnored(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, records.StateFile), []byte("{\"version\": 1, \"evictions\": 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := f.resume(t.Context(), time.Now(), dir); n != 0 || strings.Count(f.Text(), "saved state incomplete") != 1 {
		t.Errorf("%d evictions continue from a malformed state\n%s", n, f.Text())
	}
}

// A pod that does not die stays set aside across a restart for the rest of its time: that its
// eviction is not continued must not count as its death.
func TestUndyingPodIsSetAsideAfterARestart(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	life := f.soft(ctx)
	now := time.Now()
	f.OnEvent(now, Event{f.inProgress[life].job, emptied, os.ErrDeadlineExceeded}) // its grace period ended, and the runtime hangs
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
		t.Errorf("%d evictions continue, want none", n)
	}
	f.end(cancel)
	if again := f.m.Save(); len(f.m.SetAside(later)) != 1 || again.Aside[0].Times != 4 || len(again.Evicted) != 0 {
		t.Errorf("set aside after the restart %v, saved %+v", f.m.SetAside(later), again)
	}
}

// A dry run counts one eviction of a pod for each shortage. A record covers the shortages of a day,
// so that a threshold that is often met does not push a week of records out of the file.
func TestADryRunKeepsOneRecordADay(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	keeper, _, _ := records.StartKeeper(time.Now(), records.KeeperOptions{Dir: dir, Proc: f.Proc(), Log: f.Log, DryRun: true})
	f.renew(softAndHard, func(o *Options) { o.Keeper, o.DryRun = keeper, true })
	start := time.Now()
	would := func(at time.Duration, uid string) {
		e := eviction.Eviction{Pod: stats.PodStats{PodRef: stats.PodReference{UID: uid}}, Signal: stats.SignalMemoryAvailable}
		if f.OnDecided(t.Context(), &eviction.Decision{Time: start.Add(at), Evictions: []eviction.Eviction{e}}) {
			t.Error("a dry run began an eviction")
		}
	}
	for i := range 100 { // one shortage of 4950 s
		would(time.Duration(i)*50*time.Second, "a")
	}
	would(5000*time.Second, "b")
	for i := range 5 { // five more
		would(2*time.Hour+time.Duration(i)*2*time.Minute, "a")
	}
	would(25*time.Hour, "a") // a new day
	f.Save(time.Now(), func(*records.State) { t.Error("a dry run saved a state") })
	if err := keeper.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := records.Read(records.Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range list.Records {
		last := "-"
		if !r.LastDecided.IsZero() {
			last = r.LastDecided.Sub(start.Round(0)).String()
		}
		got = append(got, fmt.Sprintf("%s +%d %s", r.Pod.UID, r.Repeats, last))
	}
	if want := []string{"a +5 2h8m0s", "b +0 -", "a +0 -"}; !slices.Equal(got, want) {
		t.Errorf("pods, repeats and last decisions of the records = %q, want %q", got, want)
	}
	for i := range 2 * maxDryRuns {
		would(26*time.Hour, strconv.Itoa(i))
	}
	if len(f.dryRuns) > maxDryRuns {
		t.Errorf("the dry run continues %d records, want at most %d", len(f.dryRuns), maxDryRuns)
	}
}

// heldUp blocks writes to the pod's cgroup.kill, as a lock of the kernel does, until letGo is
// called.
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

// The agent crashes while a kill waits for a lock of the kernel: the kill did not happen. The next
// agent kills the pod unless it has come back; a kill that happened is not repeated.
func TestKillThatWaitedIsRepeatedAfterACrash(t *testing.T) {
	for _, c := range []struct {
		name         string
		waits, again bool
		change       func(f *fixture)
	}{
		{"the kill waited", true, true, func(*fixture) {}},
		{"the kill happened", false, false, func(*fixture) {}},
		{"the pod came back", true, false, func(f *fixture) { f.pods[nodetest.UID].Sandboxes[0].ID = "next" }},
		{"the runtime does not list it", true, false, func(f *fixture) { f.pods = nil }},
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
				t.Fatalf("eviction = %+v, want a kill\n%s", life, f.Text())
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
				t.Fatalf("%d evictions continue, want 1\n%s", n, f.Text())
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

// crashedAfterKill returns a node on which the agent crashed so long after a kill, with the state of
// the next agent process, and the records of the running evictions.
func crashedAfterKill(t *testing.T, after time.Duration) (f *fixture, running []api.Record) {
	t.Helper()
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	f.keeping(dir)
	f.killable()
	ctx, cancel := context.WithCancel(t.Context())
	if life := f.evict(ctx, time.Now(), 90); life == nil || life.Killed().Time.IsZero() {
		t.Fatalf("eviction = %+v, want a kill\n%s", life, f.Text())
	}
	f.crash(cancel)
	state, running := f.keeping(dir)
	killed := &state.Manager.Lives[0].Killed
	killed.Time, killed.Monotonic = killed.Time.Add(-after), killed.Monotonic-after
	if dropped := f.m.Resume(time.Now(), state.Manager); len(dropped) > 0 {
		t.Errorf("the manager dropped restored state: %v", dropped)
	}
	return f, running
}

// The next agent process waits for a killed victim only for the rest of the time that it may take to
// die, so that restarts in a row do not delay the next victim.
func TestRestartDoesNotProlongTheWaitForADeath(t *testing.T) {
	f, running := crashedAfterKill(t, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	if n := f.Resume(ctx, began, running); n != 1 {
		t.Fatalf("%d evictions continue, want 1\n%s", n, f.Text())
	}
	if e := f.take(); e.stage != emptied || e.err == nil || time.Since(began) > eviction.DieLimit*4/5 {
		t.Errorf("report after %v = %+v, want an undying victim before %v\n%s", time.Since(began), e, eviction.DieLimit, f.Text())
	}
	f.end(cancel)
}

// A victim that uses CPU time since its kill is dying, also for the next agent process.
func TestRestartWaitsForADyingVictim(t *testing.T) {
	f, running := crashedAfterKill(t, eviction.DieLimit/2)
	use := func(used int) { // of one length, so that no reader sees a part
		file, err := os.OpenFile(filepath.Join(f.Dir, "cgroup", nodetest.Pod, "cpu.stat"), os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = fmt.Fprintf(file, "usage_usec %09d\n", used)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	use(1000)
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	if n := f.Resume(ctx, began, running); n != 1 {
		t.Fatalf("%d evictions continue, want 1\n%s", n, f.Text())
	}
	died := make(chan struct{})
	go func() {
		defer close(died)
		for used := 1001; time.Since(began) < eviction.DieLimit*4/5; used++ {
			use(used)
			time.Sleep(50 * time.Millisecond)
		}
		f.Populated(nodetest.Pod, false)
	}()
	if e := f.take(); e.stage != emptied || e.err != nil {
		t.Errorf("report = %+v, want the death of a victim that needs %v\n%s", e, eviction.DieLimit*4/5, f.Text())
	}
	<-died
	f.end(cancel)
}
