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

// fixture is an Evictions on a node of files. What the other parts would say is in its fields.
type fixture struct {
	*nodetest.Node
	*Evictions
	t *testing.T
	m *eviction.Manager

	pods      read.Index
	asked     int            // lists
	held      map[string]int // pods that are kept out, and how often they were evicted
	atOnce    []string       // UIDs, in the order in which they were kept out before they were stopped
	still     bool           // what asks for a victim is met by a measurement made now
	kubelet   bool
	notKilled map[string]string // by UID
	cleaned   []string          // UIDs
}

func (f *fixture) All() read.Index { return f.pods }
func (f *fixture) Ask()            { f.asked++ }
func (f *fixture) Name(p stats.PodReference) string {
	if known := f.pods[p.UID]; known != nil {
		p = known.PodRef
	}
	return p.Namespace + "/" + p.Name
}
func (f *fixture) Keeps() bool                                               { return true }
func (f *fixture) AtOnce(_ time.Time, uid string)                            { f.atOnce = append(f.atOnce, uid) }
func (f *fixture) Until(string) time.Time                                    { return time.Time{} }
func (f *fixture) Evicted(_ time.Time, uid string, _ stats.Signal, _ string) { f.held[uid]++ }

// softAndHard is a configuration with both.
const softAndHard = `
evictionHard: {memory.available: 100Mi, nodefs.available: 10%}
evictionSoft: {memory.available: 200Mi}
evictionSoftGracePeriod: {memory.available: 10s}
evictionMaxPodGracePeriod: 60
`

// newFixture makes one by a configuration of our own kind.
func newFixture(t *testing.T, text string, change func(*Options)) *fixture {
	t.Helper()
	f := &fixture{Node: nodetest.New(t), t: t, held: map[string]int{}, still: true, notKilled: map[string]string{}}
	f.renew(text, change)
	return f
}

// renew makes an Evictions that knows nothing of the one before.
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
		StillMet:  func(eviction.Threshold) bool { return f.still },
		NotKilled: func(uid, why string) { f.notKilled[uid] = why },
		OnCleaned: func(l *eviction.Life) { f.cleaned = append(f.cleaned, l.Eviction().Pod.PodRef.UID) },
	}
	if change != nil {
		change(&o)
	}
	f.Evictions = New(o)
}

// host has what victims leave removed below the node's directory.
func (f *fixture) host(o *Options) {
	host, err := read.OpenHostRoot(f.Dir)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { host.Close() })
	o.Host, o.Remover = host, podfiles.Remover{Host: host, RootDir: "/kubelet", PodLogsDir: "/logs", Proc: filepath.Join(f.Proc(), "1")}
}

// ownTree is the node's cgroups, for a part that closes them.
func (f *fixture) ownTree() *cgroup.FS {
	f.t.Helper()
	fs, err := cgroup.OpenTree(filepath.Join(f.Dir, "cgroup"))
	if err != nil {
		f.t.Fatal(err)
	}
	return fs
}

// killable gives the pod the file by which the kernel kills it.
func (f *fixture) killable() { f.Write("cgroup/"+nodetest.Pod+"/cgroup.kill", "") }

// node is one with so many MiB available of 1 GiB.
func node(now time.Time, mib uint64) stats.NodeStats {
	return stats.NodeStats{Memory: stats.NodeMemoryStats{
		Time: now, CapacityBytes: stats.Some[uint64](1 << 30), WorkingSetBytes: stats.Some(1<<30 - mib<<20),
		KernelAvailableBytes: stats.Some(mib << 20),
	}}
}

// observe is the cheap look, and what follows from it for evictions.
func (f *fixture) observe(now time.Time, mib uint64) eviction.Ready {
	n := node(now, mib)
	f.m.Observe(now, &n, eviction.Situation{})
	ready := f.m.Ready(now)
	f.OnReady(now, &ready)
	f.m.Advance()
	return f.m.Ready(now)
}

// decide is what a look at the pod decides at so many MiB.
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

// decideDisk is what is decided while the pods' disk is full, and nothing can be reclaimed.
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
	return f.m.Reclaimed(now, in)
}

// evict begins what is decided at so many MiB; nil: nothing was begun.
func (f *fixture) evict(ctx context.Context, now time.Time, mib uint64) *eviction.Life {
	f.t.Helper()
	d := f.decide(now, mib)
	if !f.OnDecided(ctx, &d) {
		return nil
	}
	return f.m.Life(nodetest.UID)
}

// soft is a life in its grace period, whose runtime takes its time.
func (f *fixture) soft(ctx context.Context) *eviction.Life {
	f.t.Helper()
	f.pods = f.Runs()
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopContainer": true} })
	now := time.Now()
	f.observe(now, 150)
	life := f.evict(ctx, now.Add(10*time.Second), 150)
	if life == nil || !life.Killed().Time.IsZero() {
		f.t.Fatalf("under way %+v\n%s", life, f.Text())
	}
	return life
}

// take hands over what an eviction's goroutine reports of an end or a clean-up, once.
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

// What is measured right before a kill is held against the threshold that asks for it: if that is not met any more, no pod dies.
func TestAKillIsAbandonedWhenEnoughIsAvailableAgain(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	f.still = false
	if life := f.evict(t.Context(), time.Now(), 90); life != nil || len(f.held) != 0 || !strings.Contains(f.Text(), "eviction abandoned") {
		t.Errorf("under way %v\n%s", life, f.Text())
	}
}

// When enough was available for a moment only, the next look is made at once.
func TestAnAbandonedEvictionDoesNotBlind(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	f.still = false
	now := time.Now()
	if life := f.evict(t.Context(), now, 90); life != nil {
		t.Fatalf("under way %v", life)
	}
	if ready := f.observe(now.Add(5*time.Millisecond), 90); ready.Look != eviction.LookMemory {
		t.Errorf("5 ms after an abandoned eviction the look is %v, want one at memory", ready.Look)
	}
}

// A victim that is known by its object only cannot be killed, and is set aside; one that went away since it was ranked is ranked anew.
func TestAVictimThatCannotBePinned(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	for _, cgroup := range []string{"", "kubepods/besteffort/podgone"} {
		now := time.Now()
		d := f.decide(now, 90)
		d.Words()
		d.Evictions[0].Pod.Cgroup, d.Evictions[0].Pod.SandboxIDs = cgroup, nil
		if f.OnDecided(t.Context(), &d) || f.Missed() != (cgroup != "") {
			t.Errorf("%q: missed %v", cgroup, f.Missed())
		}
		if aside := f.m.SetAside(now); len(aside) != 1 { // of the first
			t.Errorf("%q: set aside %v", cgroup, aside)
		}
	}
	if n := strings.Count(f.Text(), "the victim cannot be evicted"); n != 2 {
		t.Errorf("said %d times:\n%s", n, f.Text())
	}
}

// A kernel without cgroup.kill (the tree has none): the runtime is the next rung, and is asked until it has done it.
func TestWithoutCgroupKillTheRuntimeKills(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.Runtime.Change(func() {
		f.Runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: nodetest.UID}, CreatedAt: 1}}
		f.Runtime.Fail["StopPodSandbox"] = errors.New("busy")
	})
	f.Write("cgroup/"+nodetest.Pod+"/cgroup.procs", "0\n") // of another pid namespace: nor can they be killed one by one
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, time.Now(), 90)
	if life == nil || f.underway[life].killErr == nil {
		t.Fatalf("under way %+v\n%s", life, f.Text())
	}
	f.Populated(nodetest.Pod, false)
	f.Runtime.Change(func() { clear(f.Runtime.Fail) })
	if e := f.take(); e.stage != emptied || e.err != nil {
		t.Errorf("emptied: %v", e.err)
	}
	if e := f.take(); e.stage != cleaned || e.err != nil || f.Runtime.Calls("StopPodSandbox") == 0 || len(f.cleaned) != 1 {
		t.Errorf("cleaned: %v, %v", e.err, f.cleaned)
	}
	f.end(cancel)
}

// A victim that does not die is set aside aloud; when it dies after that, it is an eviction like any other.
func TestALateDeathIsReported(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	now := time.Now()
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopPodSandbox": true} })
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, now, 90)
	j := f.underway[life].job
	f.OnEvent(now, Event{j, emptied, os.ErrDeadlineExceeded})
	f.observe(now, 500)
	if len(f.History()) != 0 || len(f.m.SetAside(now)) != 1 || f.notKilled[nodetest.UID] == "" ||
		strings.Count(f.Text(), "the victim does not die, set aside") != 1 {
		t.Fatalf("history %v, set aside %v, log: %s", f.History(), f.m.SetAside(now), f.Text())
	}
	if n := node(now, 500); f.m.Observe(now, &n, eviction.Situation{}).Within < 100*time.Millisecond {
		t.Error("the loop hurries for a victim that does not die")
	}
	f.OnEvent(now, Event{j, emptied, nil})
	f.OnEvent(now, Event{j, cleaned, nil})
	f.observe(now, 500)
	if len(f.History()) != 1 || len(f.m.SetAside(now)) != 0 || len(f.Underway()) != 0 || len(f.underway) != 0 {
		t.Errorf("history %v, set aside %v, under way %v\n%s", f.History(), f.m.SetAside(now), f.Underway(), f.Text())
	}
	f.end(cancel)
}

// Told to stop in the middle of an eviction, the agent leaves a trace of it, and does not call the victim undying.
func TestAStopInAnEvictionLeavesATrace(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopPodSandbox": true} })
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, time.Now(), 90)
	f.OnEvent(time.Now(), Event{f.underway[life].job, emptied, fmt.Errorf("wait: %w", context.Canceled)})
	f.Interrupted()
	if text := f.Text(); !strings.Contains(text, `msg="stopped during an eviction"`) || !strings.Contains(text, nodetest.UID) ||
		strings.Contains(text, "does not die") {
		t.Errorf("log: %s", text)
	}
	f.end(cancel)
}

// Told to stop while a pod has its grace period, the agent leaves it that: to clean up would kill it at once.
func TestAStopKillsNoPodInItsGracePeriod(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	f.soft(ctx)
	f.end(cancel)
	if calls := f.Runtime.Calls("StopPodSandbox"); calls != 0 {
		t.Errorf("%d calls of StopPodSandbox\n%s", calls, f.Text())
	}
}

// A pod that is being stopped for memory and has to go at once for a disk leaves nothing there.
func TestAPodThatIsHastenedForADiskLeavesNothing(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	life := f.soft(ctx)
	f.killable()
	d := f.decideDisk(time.Now().Add(11 * time.Second))
	if len(d.Evictions) != 1 || !d.Evictions[0].Hastens {
		t.Fatal(d.Reason)
	}
	u := f.underway[life]
	if u.job.remove.Load() || !f.hasten(life, &d, 0) || !u.job.remove.Load() || !life.RemoveFiles {
		t.Errorf("removes %v\n%s", u.job.remove.Load(), f.Text())
	}
	f.end(cancel)
}

// A grace period that was not cut short after all does not keep the next crossing waiting.
func TestAHasteningThatWasNotNeededIsNotInVain(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	f.soft(ctx)
	f.killable()
	f.still = false
	now := time.Now().Add(11 * time.Second)
	d := f.decide(now, 90)
	if len(d.Evictions) != 1 || !d.Evictions[0].Hastens || !f.OnDecided(ctx, &d) {
		t.Fatal(d.Reason)
	}
	now = now.Add(5 * time.Millisecond)
	n := node(now, 50)
	if r := f.m.Observe(now, &n, eviction.Situation{}); !r.HardMet || r.Look != eviction.LookMemory {
		t.Errorf("5 ms later: hard met %v, look %v", r.HardMet, r.Look)
	}
	f.end(cancel)
}

// squeezing has memory reclaimed, of pods that have none to give, until the test is over.
func (f *fixture) squeezing() {
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

// What a reclaim of memory got is known seconds after it, when the eviction that followed is over as a rule: it is in the record all the
// same, and the line of the reclaim names the pod.
func TestWhatASqueezeGotIsInTheRecordOfAnEvictionThatIsOver(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.keeping(t.TempDir())
	f.squeezing()
	f.killable()
	ctx, cancel := context.WithCancel(t.Context())
	life := f.evict(ctx, time.Now(), 90)
	if life == nil || f.squeezed == nil || f.squeezed.squeeze != nil {
		t.Fatalf("under way %+v, follows %+v\n%s", life, f.squeezed, f.Text())
	}
	u := f.squeezed
	f.Populated(nodetest.Pod, false)
	f.take()
	f.take()
	f.observe(time.Now(), 500)
	if len(f.underway) != 0 {
		t.Fatalf("not over: %v", f.underway)
	}
	effect := reclaim.MemoryEffect{
		Signal: stats.SignalMemoryAvailable, Asked: 1 << 20, Final: true, Freed: stats.Some[uint64](1 << 20), Refaulted: stats.Some[uint64](4096),
	}
	f.OnSqueezed(squeeze.Follower{ID: follower(u), Signal: effect.Signal}, &effect)
	if fields := f.SqueezeFields(follower(u)); len(fields) != 4 || u.record.Squeeze == nil || *u.record.Squeeze.Refaulted != 4096 {
		t.Errorf("fields %v, record %+v", fields, u.record.Squeeze)
	}
	f.OnSqueezed(squeeze.Follower{ID: "another", Signal: effect.Signal}, &reclaim.MemoryEffect{Asked: 2})
	if u.record.Squeeze.Asked != 1<<20 {
		t.Error("another eviction's effect")
	}
	f.end(cancel)
}

// What lay in shared memory and was unmounted late is no measure of how fast a kill returns memory.
func TestSharedMemoryIsNoMeasureOfAKill(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.killable()
	f.Write("cgroup/"+nodetest.Pod+"/memory.stat", "anon 100\nfile 419430400\nshmem 419430400\ninactive_file 0\n")
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopPodSandbox": true} })
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	life := f.evict(ctx, now, 90)
	f.OnEvent(now, Event{f.underway[life].job, emptied, nil})
	f.observe(now.Add(3*time.Second), 90)
	if life.Outcome() != eviction.OutcomeUnknown {
		t.Errorf("outcome %v after 3 s", life.Outcome())
	}
	f.observe(now.Add(12*time.Second), 490)
	if s := f.Headroom(100 << 20); life.Outcome() != eviction.OutcomeBack || s.Release != 0 {
		t.Errorf("outcome %v, advice %+v", life.Outcome(), s)
	}
	f.end(cancel)
}

// A pod that came back under its UID while its victim was being cleaned up keeps its volumes.
func TestWhatIsBackKeepsItsVolumes(t *testing.T) {
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
			t.Errorf("back %v: %v\n%s", back, err, f.Text())
		}
	}
}

// A kubelet that has come since the eviction began removes what the pod has left.
func TestAKubeletThatHasComeKeepsFiles(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	here := false
	f.renew(softAndHard, func(o *Options) { f.host(o); o.Look = func() bool { return here } })
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
			t.Errorf("kubelet %v: %v\n%s", here, err, f.Text())
		}
	}
}

// A dead pod's /dev/shm is unmounted before the runtime is asked for anything, and again once all its sandboxes are known. Here it
// cannot be: it is said.
func TestSharedMemoryIsGivenBack(t *testing.T) {
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
			t.Errorf("stage %v, %v; want %v", e.stage, e.err, want)
		}
	}
	<-done
	said := func(id string) int { return strings.Count(f.Text(), "/run/"+id+"/shm") }
	if said(pinned) != 2 || said(found) != 1 {
		t.Errorf("%d, %d: %s", said(pinned), said(found), f.Text())
	}
}

// From the choice of a victim to its death nothing is allocated: there may be no memory to be had.
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
	d.Words()
	strike := func() (b blow) {
		b, ok := f.strike(&d, &d.Evictions[0])
		if !ok || b.err != nil || b.killed == (kill.Stamp{}) || b.killed.Time.Before(b.pinned.Time) {
			t.Errorf("not killed: %+v", b)
		}
		return b
	}
	strike().victim.Close() // which makes the next one ready
	least := uint64(math.MaxUint64)
	for range 5 { // others in this process may allocate meanwhile
		before := mallocs()
		b := strike()
		least = min(least, mallocs()-before)
		b.victim.Close()
	}
	if least != 0 {
		t.Errorf("%d allocations", least)
	}
}

// mallocs is how many there were in this process.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
