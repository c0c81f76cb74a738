package evictions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cgroup"
	"jettison/eviction"
	"jettison/internal/agent/squeeze"
	"jettison/internal/agent/thresholdadvice"
	"jettison/internal/base/race"
	"jettison/internal/node/config"
	"jettison/internal/node/kill"
	"jettison/internal/node/nodetest"
	"jettison/internal/node/podfiles"
	"jettison/reclaim"
	"jettison/stats"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is an Evictions on a node made of files. Its fields replace the other parts of the agent.
type fixture struct {
	*nodetest.Node
	*Evictions
	t *testing.T
	m *eviction.Manager

	pods          read.Index
	asked         int            // requested lists
	held          map[string]int // UIDs of pods in their hold-off, with the number of evictions
	earlyHoldOffs []string       // UIDs in the order in which their hold-offs began before the stop
	stillMet      bool           // the threshold is met by a measurement made now
	kubelet       bool
	notKilled     map[string]string // by UID
	cleaned       []string          // UIDs
}

func (f *fixture) All() read.Index { return f.pods }
func (f *fixture) Ask()            { f.asked++ }
func (f *fixture) Name(p stats.PodReference) string {
	if known := f.pods[p.UID]; known != nil {
		p = known.PodRef
	}
	return p.Namespace + "/" + p.Name
}
func (f *fixture) Enforces() bool { return true }
func (f *fixture) StartHoldOff(_ time.Time, uid string) {
	f.earlyHoldOffs = append(f.earlyHoldOffs, uid)
}
func (f *fixture) Until(string) time.Time                                    { return time.Time{} }
func (f *fixture) Evicted(_ time.Time, uid string, _ stats.Signal, _ string) { f.held[uid]++ }

// softAndHard is a configuration with soft and hard thresholds.
const softAndHard = `
evictionHard: {memory.available: 100Mi, nodefs.available: 10%}
evictionSoft: {memory.available: 200Mi}
evictionSoftGracePeriod: {memory.available: 10s}
evictionMaxPodGracePeriod: 60
`

// newFixture returns a fixture for a configuration file's text.
func newFixture(t *testing.T, text string, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{Node: nodetest.New(t), t: t, held: map[string]int{}, stillMet: true, notKilled: map[string]string{}}
	f.renew(text, change)
	return f
}

// renew replaces the Evictions by one without state.
func (f *fixture) renew(text string, change func(*Options)) {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"+text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	c, err := config.Load(f.t.Context(), path)
	if err != nil {
		f.t.Fatal(err)
	}
	f.m = eviction.NewManager(c.Eviction())
	o := Options{
		Manager: f.m, Client: f.Client, Pin: func(p *stats.PodStats) (*kill.Victim, error) { return kill.Pin(f.FS, p) }, Pods: f, Gate: f,
		Advice: thresholdadvice.New(1<<30, f.Log), Log: f.Log, Kubelet: func() bool { return f.kubelet },
		StillMet:  func(eviction.Threshold) bool { return f.stillMet },
		NotKilled: func(uid, why string) { f.notKilled[uid] = why },
		OnCleaned: func(l *eviction.Life) { f.cleaned = append(f.cleaned, l.Eviction().Pod.PodRef.UID) },
	}
	if change != nil {
		change(&o)
	}
	f.Evictions = New(o)
}

// host makes victims' leftovers below the node's directory removable.
func (f *fixture) host(o *Options) {
	host, err := read.OpenHostRoot(f.Dir)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { host.Close() })
	o.Host, o.Remover = host, podfiles.Remover{Host: host, RootDir: "/kubelet", PodLogsDir: "/logs", Proc: filepath.Join(f.Proc(), "1")}
}

// ownTree opens the node's cgroups for a part that closes them.
func (f *fixture) ownTree() *cgroup.FS {
	f.t.Helper()
	fs, err := cgroup.OpenTree(filepath.Join(f.Dir, "cgroup"))
	if err != nil {
		f.t.Fatal(err)
	}
	return fs
}

// killable creates the pod's cgroup.kill.
func (f *fixture) killable() { f.Write("cgroup/"+nodetest.Pod+"/cgroup.kill", "") }

// node returns a node with the given MiB of 1 GiB available.
func node(now time.Time, mib uint64) stats.NodeStats {
	return stats.NodeStats{Memory: stats.NodeMemoryStats{
		Time: now, CapacityBytes: stats.Some[uint64](1 << 30), WorkingSetBytes: stats.Some(1<<30 - mib<<20),
		KernelAvailableBytes: stats.Some(mib << 20),
	}}
}

// observe makes a cheap look and processes its results for evictions.
func (f *fixture) observe(now time.Time, mib uint64) eviction.Ready {
	n := node(now, mib)
	f.m.Observe(now, &n, eviction.Situation{})
	ready := f.m.Ready(now)
	f.OnReady(now, &ready)
	f.m.Acknowledge()
	return f.m.Ready(now)
}

// decide returns the decision of a look at the pods with the given MiB available.
func (f *fixture) decide(now time.Time, mib uint64) eviction.Decision {
	f.t.Helper()
	f.observe(now, mib)
	s := stats.Summary{Time: now}
	if err := f.Reader.Memory(now, f.pods, &s); err != nil {
		f.t.Fatal(err)
	}
	s.Node = node(now, mib)
	return f.m.Step(now, eviction.Input{Summary: &s, MemoryOnly: true})
}

// decideDisk returns the decision while the pods' disk is full and nothing can be reclaimed.
func (f *fixture) decideDisk(now time.Time) eviction.Decision {
	f.t.Helper()
	s := stats.Summary{Time: now}
	if err := f.Reader.Memory(now, f.pods, &s); err != nil {
		f.t.Fatal(err)
	}
	s.Node = node(now, 500)
	s.Node.Fs = stats.Some(stats.FsStats{Time: now, AvailableBytes: stats.Some[uint64](1), CapacityBytes: stats.Some[uint64](1 << 40)})
	s.Node.Layout = stats.Some(stats.Layout{})
	in := eviction.Input{Summary: &s}
	if d := f.m.Step(now, in); len(d.Reclaim) == 0 {
		return d
	}
	return f.m.StepAfterReclaim(now, in)
}

// evict carries out the decision at the given MiB; nil if no eviction began.
func (f *fixture) evict(ctx context.Context, now time.Time, mib uint64) *eviction.Life {
	f.t.Helper()
	d := f.decide(now, mib)
	if !f.OnDecided(ctx, &d) {
		return nil
	}
	return f.m.Life(nodetest.UID)
}

// soft returns an eviction in its grace period with a slow runtime.
func (f *fixture) soft(ctx context.Context) *eviction.Life {
	f.t.Helper()
	f.pods = f.Runs()
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopContainer": true} })
	now := time.Now()
	f.observe(now, 150)
	life := f.evict(ctx, now.Add(10*time.Second), 150)
	if life == nil || !life.Killed().Time.IsZero() {
		f.t.Fatalf("eviction in progress = %+v, want one in its grace period\n%s", life, f.Text())
	}
	return life
}

// take processes the next report of an end or a clean-up.
func (f *fixture) take() Event {
	f.t.Helper()
	for {
		e := <-f.Events()
		if f.OnEvent(time.Now(), e); e.stage != uncached {
			return e
		}
	}
}

// end waits for all goroutines.
func (f *fixture) end(cancel func()) {
	f.t.Helper()
	cancel()
	f.Wait()
}

// The signal is measured again right before a kill: if its threshold is no longer met, no pod dies.
func TestAKillIsAbandonedWhenEnoughIsAvailableAgain(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	f.stillMet = false
	if life := f.evict(t.Context(), time.Now(), 90); life != nil || len(f.held) != 0 || !strings.Contains(f.Text(), "eviction cancelled") {
		t.Errorf("eviction in progress = %v, want none\n%s", life, f.Text())
	}
}

// After a cancelled eviction the next look is not delayed.
func TestCancelledEvictionDelaysNoLook(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	f.stillMet = false
	now := time.Now()
	if life := f.evict(t.Context(), now, 90); life != nil {
		t.Fatalf("eviction in progress = %v, want none", life)
	}
	if ready := f.observe(now.Add(5*time.Millisecond), 90); ready.Look != eviction.LookMemory {
		t.Errorf("5 ms after a cancelled eviction the look is %v, want one at memory", ready.Look)
	}
}

// A victim known only by its object cannot be killed and is set aside. One that ended since the
// ranking is ranked again.
func TestVictimCannotBePinned(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	for _, cgroup := range []string{"", "kubepods/besteffort/podgone"} {
		now := time.Now()
		d := f.decide(now, 90)
		d.AddTexts()
		d.Evictions[0].Pod.Cgroup, d.Evictions[0].Pod.SandboxIDs = cgroup, nil
		if f.OnDecided(t.Context(), &d) || f.Missed() != (cgroup != "") {
			t.Errorf("victim with cgroup %q: eviction began, or missed = %v", cgroup, f.Missed())
		}
		if aside := f.m.SetAside(now); len(aside) != 1 { // the first one
			t.Errorf("cgroup %q: set aside %v, want one pod", cgroup, aside)
		}
	}
	if n := strings.Count(f.Text(), "eviction could not start"); n != 2 {
		t.Errorf("failed start of an eviction is logged %d times, want 2:\n%s", n, f.Text())
	}
}

// Without cgroup.kill (missing in the tree) the runtime is the next step, and is retried until it
// succeeds.
func TestWithoutCgroupKillTheRuntimeKills(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.Runtime.Change(func() {
		f.Runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID}, CreatedAt: 1}}
		f.Runtime.Fail["StopPodSandbox"] = errors.New("busy")
	})
	f.Write("cgroup/"+nodetest.Pod+"/cgroup.procs", "0\n") // of another PID namespace: signals fail, too
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, time.Now(), 90)
	if life == nil || f.inProgress[life].killErr == nil {
		t.Fatalf("eviction in progress = %+v, want one with a failed kill\n%s", life, f.Text())
	}
	f.Populated(nodetest.Pod, false)
	f.Runtime.Change(func() { clear(f.Runtime.Fail) })
	if e := f.take(); e.stage != emptied || e.err != nil {
		t.Errorf("report of the end: stage %v, error %v", e.stage, e.err)
	}
	if e := f.take(); e.stage != cleaned || e.err != nil || f.Runtime.Calls("StopPodSandbox") == 0 || len(f.cleaned) != 1 {
		t.Errorf("report of the clean-up: error %v, cleaned %v", e.err, f.cleaned)
	}
	f.end(cancel)
}

// A victim that does not die is set aside and logged; if it dies later, the eviction is reported
// like any other.
func TestLateDeathIsReported(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	now := time.Now()
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopPodSandbox": true} })
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, now, 90)
	j := f.inProgress[life].job
	f.OnEvent(now, Event{j, emptied, os.ErrDeadlineExceeded})
	f.observe(now, 500)
	if len(f.History()) != 0 || len(f.m.SetAside(now)) != 1 || f.notKilled[nodetest.UID] == "" ||
		strings.Count(f.Text(), "victim did not die, set aside") != 1 {
		t.Fatalf("history %v, set aside %v, log: %s", f.History(), f.m.SetAside(now), f.Text())
	}
	if n := node(now, 500); f.m.Observe(now, &n, eviction.Situation{}).Within < 100*time.Millisecond {
		t.Error("looks are fast for a victim that does not die")
	}
	f.OnEvent(now, Event{j, emptied, nil})
	f.OnEvent(now, Event{j, cleaned, nil})
	f.observe(now, 500)
	if len(f.History()) != 1 || len(f.m.SetAside(now)) != 0 || len(f.InProgress()) != 0 || len(f.inProgress) != 0 {
		t.Errorf("history %v, set aside %v, in progress %v\n%s", f.History(), f.m.SetAside(now), f.InProgress(), f.Text())
	}
	f.end(cancel)
}

// When the agent stops during an eviction, it logs that, and does not report the victim as undying.
func TestStopDuringEvictionIsLogged(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopPodSandbox": true} })
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, time.Now(), 90)
	f.OnEvent(time.Now(), Event{f.inProgress[life].job, emptied, fmt.Errorf("wait: %w", context.Canceled)})
	f.Interrupted()
	if text := f.Text(); !strings.Contains(text, `msg="agent stopped during eviction"`) || !strings.Contains(text, nodetest.UID) ||
		strings.Contains(text, "did not die") {
		t.Errorf("log of a stop during an eviction: %s", text)
	}
	f.end(cancel)
}

// When the agent stops, a pod keeps its grace period: cleaning up would kill it immediately.
func TestStopKeepsGracePeriod(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	f.soft(ctx)
	f.end(cancel)
	if calls := f.Runtime.Calls("StopPodSandbox"); calls != 0 {
		t.Errorf("%d calls of StopPodSandbox, want none\n%s", calls, f.Text())
	}
}

// A pod that is being stopped for memory, and then killed for a disk, leaves nothing on the disk.
func TestGracePeriodCutForADiskRemovesFiles(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	life := f.soft(ctx)
	f.killable()
	d := f.decideDisk(time.Now().Add(11 * time.Second))
	if len(d.Evictions) != 1 || !d.Evictions[0].CutsGracePeriod {
		t.Fatal(d.Reason)
	}
	u := f.inProgress[life]
	if u.job.remove.Load() || !f.cutGracePeriod(life, &d, 0) || !u.job.remove.Load() || !life.RemoveFiles {
		t.Errorf("grace period cut short for a disk, removes files %v\n%s", u.job.remove.Load(), f.Text())
	}
	f.end(cancel)
}

// A grace period that was not cut short after all does not delay the next crossing.
func TestUnneededCutDelaysNoLook(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	f.soft(ctx)
	f.killable()
	f.stillMet = false
	now := time.Now().Add(11 * time.Second)
	d := f.decide(now, 90)
	if len(d.Evictions) != 1 || !d.Evictions[0].CutsGracePeriod || !f.OnDecided(ctx, &d) {
		t.Fatal(d.Reason)
	}
	now = now.Add(5 * time.Millisecond)
	n := node(now, 50)
	if r := f.m.Observe(now, &n, eviction.Situation{}); !r.HardMet || r.Look != eviction.LookMemory {
		t.Errorf("5 ms later: hard threshold met %v, look %v", r.HardMet, r.Look)
	}
	f.end(cancel)
}

// reclaiming starts a proactive reclaim, of pods without reclaimable memory, until the test ends.
func (f *fixture) reclaiming() {
	f.t.Helper()
	squeezer := squeeze.Start(squeeze.Options{FS: f.ownTree(), SysMount: f.Dir, Watch: time.Millisecond})
	f.t.Cleanup(func() {
		if err := squeezer.Close(time.Minute); err != nil {
			f.t.Error(err)
		}
	})
	node := squeeze.Node{
		Need: func(time.Time, int) reclaim.MemoryNeed {
			return reclaim.MemoryNeed{Available: 150 << 20, Hard: stats.Some[uint64](100 << 20), Fill: 1 << 20, Margin: time.Millisecond}
		},
		Available: func(stats.Signal) stats.Opt[uint64] { return stats.Some[uint64](150 << 20) },
		Swap:      func() (stats.Opt[uint64], uint64) { return stats.Some[uint64](1 << 30), 0 },
	}
	f.o.Squeeze = squeeze.NewLoop(squeezer, node, f.Log)
	f.o.Squeeze.Tick(time.Now(), nil, "")
}

// The effect of a proactive reclaim is known seconds later, when the eviction that followed is
// usually finished: its record gets it nevertheless, and the reclaim's log line names the pod.
func TestReclaimEffectIsInTheRecordOfAFinishedEviction(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.keeping(t.TempDir())
	f.reclaiming()
	f.killable()
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, time.Now(), 90)
	if life == nil || f.afterReclaim == nil || f.afterReclaim.reclaim != nil {
		t.Fatalf("eviction in progress = %+v, after a reclaim %+v\n%s", life, f.afterReclaim, f.Text())
	}
	u := f.afterReclaim
	f.Populated(nodetest.Pod, false)
	f.take()
	f.take()
	f.observe(time.Now(), 500)
	if len(f.inProgress) != 0 {
		t.Fatalf("evictions in progress = %v, want none", f.inProgress)
	}
	effect := reclaim.MemoryEffect{
		Signal: stats.SignalMemoryAvailable, Asked: 1 << 20, Final: true, Freed: stats.Some[uint64](1 << 20), Refaulted: stats.Some[uint64](4096),
	}
	f.OnReclaimed(squeeze.Follower{ID: evictionID(u), Signal: effect.Signal}, &effect)
	if fields := f.ReclaimFields(evictionID(u)); len(fields) != 4 || u.record.Squeeze == nil || *u.record.Squeeze.Refaulted != 4096 {
		t.Errorf("log fields %v, reclaim in the record %+v", fields, u.record.Squeeze)
	}
	f.OnReclaimed(squeeze.Follower{ID: "another", Signal: effect.Signal}, &reclaim.MemoryEffect{Asked: 2})
	if u.record.Squeeze.Asked != 1<<20 {
		t.Error("the record has the effect of another eviction's reclaim")
	}
	f.end(cancel)
}

// Shared memory that was unmounted late does not measure how fast a kill frees memory.
func TestSharedMemoryIsNoMeasureOfAKill(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	f.Write("cgroup/"+nodetest.Pod+"/memory.stat", "anon 100\nfile 419430400\nshmem 419430400\ninactive_file 0\n")
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopPodSandbox": true} })
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	life := f.evict(ctx, now, 90)
	f.OnEvent(now, Event{f.inProgress[life].job, emptied, nil})
	f.observe(now.Add(3*time.Second), 90)
	if life.Outcome() != eviction.OutcomeUnknown {
		t.Errorf("outcome after 3 s = %v, want unknown", life.Outcome())
	}
	f.observe(now.Add(12*time.Second), 490)
	if s := f.Headroom(100 << 20); life.Outcome() != eviction.OutcomeBack || s.Release != 0 {
		t.Errorf("outcome = %v, headroom advice = %+v, want back and no release", life.Outcome(), s)
	}
	f.end(cancel)
}

// A pod that came back under its UID during the clean-up of its victim keeps its volumes.
func TestPodThatIsBackKeepsItsVolumes(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.renew(softAndHard, f.host)
	volume := "/kubelet/pods/" + nodetest.UID + "/volumes/kubernetes.io~empty-dir/v/data"
	for _, back := range []bool{true, false} {
		f.Write(volume, "x")
		f.Write("proc/1/mountinfo", "")
		f.Runs()
		victim, err := kill.Pin(f.FS, &stats.PodStats{
			PodRef: stats.PodReference{UID: nodetest.UID, Name: "pod", Namespace: "default"}, SandboxIDs: []string{"s"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if back {
			f.Runtime.Change(func() {
				f.Runtime.Sandboxes = append(f.Runtime.Sandboxes, &runtimev1.PodSandbox{
					Id: "s2", Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID}, CreatedAt: time.Now().UnixNano(),
				})
			})
		}
		f.carrier.removeFiles(t.Context(), victim)
		victim.Close()
		if _, err := os.Stat(filepath.Join(f.Dir, volume)); (err == nil) != back {
			t.Errorf("volume of a pod with back %v: %v\n%s", back, err, f.Text())
		}
	}
}

// A kubelet that started since the eviction began removes the pod's leftovers.
func TestNewKubeletKeepsFiles(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	here := false
	f.renew(softAndHard, func(o *Options) { f.host(o); o.KubeletNow = func() bool { return here } })
	volume := "/kubelet/pods/" + nodetest.UID + "/volumes/kubernetes.io~empty-dir/v/data"
	f.Write("proc/1/mountinfo", "")
	for _, here = range []bool{true, false} {
		f.Write(volume, "x")
		f.killable()
		f.Populated(nodetest.Pod, false)
		victim, err := kill.Pin(f.FS, &stats.PodStats{
			PodRef: stats.PodReference{UID: nodetest.UID, Name: "pod", Namespace: "default"}, Cgroup: nodetest.Pod,
		})
		if err == nil {
			err = victim.Kill()
		}
		if err != nil {
			t.Fatal(err)
		}
		j := &job{victim: victim, cancel: func() {}, urgent: true, cgroup: true}
		j.remove.Store(true)
		f.carrier.carryOut(t.Context(), j)
		for range 2 {
			<-f.Events()
		}
		if _, err := os.Stat(filepath.Join(f.Dir, volume)); (err == nil) != here {
			t.Errorf("volume of the dead pod with kubelet %v: %v\n%s", here, err, f.Text())
		}
	}
}

// A dead pod's /dev/shm is unmounted before any request to the runtime, and again once all
// its sandboxes are known. Here unmounting fails, which is logged.
func TestSharedMemoryIsUnmounted(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.renew(softAndHard, f.host)
	pinned, found := strings.Repeat("a", 64), strings.Repeat("b", 64)
	f.Write("proc/1/mountinfo", "36 1 0:90 / /run/"+pinned+"/shm rw - tmpfs shm rw\n37 1 0:91 / /run/"+found+"/shm rw - tmpfs shm rw\n")
	f.Runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: found, Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID}, CreatedAt: 1}}
	f.killable()
	f.Populated(nodetest.Pod, false)
	victim, err := kill.Pin(f.FS, &stats.PodStats{
		PodRef: stats.PodReference{UID: nodetest.UID}, Cgroup: nodetest.Pod, SandboxIDs: []string{pinned},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.carrier.carryOut(t.Context(), &job{victim: victim, cancel: func() {}, urgent: true, cgroup: true})
	}()
	for _, want := range []stage{emptied, uncached, cleaned} {
		if e := <-f.Events(); e.stage != want {
			t.Errorf("reported stage %v (%v), want %v", e.stage, e.err, want)
		}
	}
	<-done
	attempts := func(id string) int { return strings.Count(f.Text(), "/run/"+id+"/shm") }
	if attempts(pinned) != 2 || attempts(found) != 1 {
		t.Errorf("attempts to unmount /dev/shm = %d and %d, want 2 and 1: %s", attempts(pinned), attempts(found), f.Text())
	}
}

// From the choice of a victim to its death nothing is allocated: memory may be exhausted.
func TestAStrikeDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	f := newFixture(t, softAndHard, nil)
	f.killable()
	killer := kill.New(kill.Options{FS: f.FS, Ladder: kill.CgroupKill})
	defer func() {
		if err := killer.Close(); err != nil {
			t.Error(err)
		}
	}()
	f.o.Pin = killer.Pin
	d := f.decide(time.Now(), 90)
	d.AddTexts()
	killVictim := func() (b strike) {
		b, ok := f.kill(&d, &d.Evictions[0])
		if !ok || b.err != nil || b.killed == (kill.Stamp{}) || b.killed.Time.Before(b.pinned.Time) {
			t.Errorf("the victim was not killed: %+v", b)
		}
		return b
	}
	killVictim().victim.Close() // the first one prepares the next
	least := uint64(math.MaxUint64)
	for i := 0; i < 50 && least > 0; i++ { // other goroutines of this process may allocate meanwhile
		before := mallocs()
		b := killVictim()
		least = min(least, mallocs()-before)
		b.victim.Close()
	}
	if least != 0 {
		t.Errorf("a kill made %d allocations, want 0", least)
	}
}

// mallocs returns the number of allocations of this process.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
