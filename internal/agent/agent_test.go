package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/pace"
	"jettison/internal/agent/podlister"
	"jettison/internal/agent/serve/eventlog"
	"jettison/internal/node/config"
	"jettison/internal/node/nodetest"
	"jettison/internal/node/records"
	"jettison/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLoop is the loop of an agent on a node made of files, without a state directory.
type testLoop struct {
	*loop
	*nodetest.Node
	b *builder
}

// newLoop builds a loop for a configuration file's text; empty: the defaults. change may change the
// options.
func newLoop(t *testing.T, text string, change func(*Options)) *testLoop {
	t.Helper()
	n := nodetest.New(t)
	o := Options{Config: configOf(t, text), ProcMount: n.Proc(), HostRoot: t.TempDir(), CgroupMount: filepath.Join(n.Dir, "none"), Log: n.Log.Logger}
	o.Config.Socket, o.Config.StateDir = "", ""
	if change != nil {
		change(&o)
	}
	return buildLoop(t, n, o)
}

func buildLoop(t *testing.T, n *nodetest.Node, o Options) *testLoop {
	t.Helper()
	b := newBuilder(o, n.Sources, eventlog.NewRing(time.Now()))
	l, err := b.build(t.Context(), pace.New(1<<30, 2))
	t.Cleanup(b.close)
	if err != nil {
		t.Fatal(err)
	}
	return &testLoop{loop: l, Node: n, b: b}
}

func configOf(t *testing.T, text string) *config.Loaded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	text = "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n" + strings.TrimPrefix(text, "\n")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := config.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// killable creates a pod's cgroup.kill.
func (l *testLoop) killable() { l.Write("cgroup/"+nodetest.Pod+"/cgroup.kill", "") }

// A threshold above the node's capacity is an error in the agent's own file, and a warning in a
// kubelet's file.
func TestThresholdsAreHeldAgainstTheNode(t *testing.T) {
	l := newLoop(t, "", nil)
	for _, own := range []bool{true, false} {
		l.o.Config = configOf(t, "evictionHard: {memory.available: 2Gi}\n")
		if !own {
			l.o.Config.Kind = config.KindKubelet
		}
		doubts, err := l.checkCapacity(t.Context())
		text := ""
		if err != nil {
			text = err.Error()
		}
		for _, d := range doubts {
			text += d.Error()
		}
		const want = ":3: evictionHard: memory.available: memory.available<2Gi can never be satisfied: the capacity is 1Gi"
		if (err != nil) != own || (len(doubts) == 0) != own || !strings.Contains(text, want) {
			t.Errorf("own configuration %v: error %v, doubts %v", own, err, doubts)
		}
	}
}

// softAndHard is a configuration with soft and hard thresholds.
const softAndHard = `
evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: 200Mi}
evictionSoftGracePeriod: {memory.available: 10s}
evictionMaxPodGracePeriod: 60
`

// A soft threshold stops a pod with a grace period; a hard one that is met meanwhile cuts it short.
func TestAHardThresholdCutsAGraceShort(t *testing.T) {
	l := newLoop(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	l.onListed(podlister.Update{Pods: l.Runs()})
	l.killable()
	l.Runtime.Change(func() { l.Runtime.Hang = map[string]bool{"StopContainer": true} })
	l.Available(150)
	now := time.Now()
	l.look(ctx, now)
	if lives := l.manager.Lives(); len(lives) != 0 || !strings.Contains(l.Text(),
		`msg="condition changed" condition=MemoryPressure status=true reason=KubeletHasInsufficientMemory event=NodeHasInsufficientMemory`) {
		t.Fatalf("evictions in the threshold's grace period = %v, want none\n%s", lives, l.Text())
	}
	now = now.Add(10 * time.Second)
	l.look(ctx, now)
	life := l.manager.Life(nodetest.UID)
	if life == nil || !life.Killed().Time.IsZero() || life.Eviction().GracePeriodSeconds != 60 {
		t.Fatalf("eviction after the threshold's grace period = %+v\n%s", life, l.Text())
	}
	l.look(ctx, now.Add(time.Second))
	if l.manager.Life(nodetest.UID) != life || !life.Killed().Time.IsZero() {
		t.Fatalf("eviction during the pod's grace period = %+v, want it unchanged\n%s", life, l.Text())
	}
	l.Available(90)
	l.look(ctx, now.Add(2*time.Second))
	if l.manager.Life(nodetest.UID) != life || life.Killed().Time.IsZero() || life.Eviction().GracePeriodSeconds != 1 ||
		!strings.Contains(l.Text(), "grace period cut short") {
		t.Fatalf("eviction after the hard threshold was met = %+v\n%s", life, l.Text())
	}
	l.Runtime.Change(func() { clear(l.Runtime.Hang) })
	l.Populated(nodetest.Pod, false)
	l.evictions.OnEvent(time.Now(), <-l.evictions.Events()) // no process is left
	l.Available(500)
	l.look(ctx, time.Now())
	if h := l.evictions.History(); len(h) != 1 || !h[0].Back {
		t.Errorf("history = %+v, want one eviction that helped\n%s", h, l.Text())
	}
	answer, ok := l.b.queue.Recent()
	if !ok || len(answer) != 1 || answer[0].Outcome != api.OutcomeBack || len(answer[0].Steps) == 0 {
		t.Errorf("published records = %+v, want one with outcome back\n%s", answer, l.Text())
	}
	cancel()
	l.end()
}

// A dry run logs once which pod it would evict, and kills none: the tree has no cgroup.kill.
func TestADryRunOnlySays(t *testing.T) {
	l := newLoop(t, "", func(o *Options) { o.DryRun = true })
	l.Available(90)
	now := time.Now()
	for i := range 5 {
		l.look(t.Context(), now.Add(time.Duration(i)*time.Second))
	}
	if got := strings.Count(l.Text(), `msg="would evict"`); got != 1 || len(l.manager.Lives()) > 0 {
		t.Errorf("%d lines, want one; evictions in progress %v:\n%s", got, l.manager.Lives(), l.Text())
	}
}

// The file of records has the evictions of a dry run, marked as such, once for a shortage, however
// many looks it lasts. For the next process none of them is an eviction, and no state is stored.
func TestADryRunLeavesRecords(t *testing.T) {
	dir := t.TempDir()
	l := newLoop(t, "", func(o *Options) { o.DryRun, o.Config.StateDir = true, dir })
	l.Available(90)
	now := time.Now()
	for i := range 30 {
		l.look(t.Context(), now.Add(time.Duration(i)*10*time.Second))
	}
	if err := l.b.keeper.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := records.Read(records.Path(dir))
	if err != nil || len(list.Records) != 1 {
		t.Fatalf("records of a dry run = %+v, %v, want one", list, err)
	}
	for _, r := range list.Records {
		if !r.DryRun || r.Outcome != api.OutcomeDryRun || r.Pod.UID != nodetest.UID || r.WasKilled() || r.Signal != stats.SignalMemoryAvailable ||
			r.Crossed == nil || r.Decided == nil || len(r.Ranking.Rows) == 0 || r.Reason == "" {
			t.Errorf("record of a dry run = %+v", r)
		}
	}
	state, kept, warnings := records.Load(dir, now, "")
	running := slices.ContainsFunc(kept, func(r api.Record) bool { return r.Outcome == api.OutcomeRunning })
	if running || len(warnings) > 0 || state.Version != 0 {
		t.Errorf("the next process continues %+v, %+v, %v", state, kept, warnings)
	}
}

// The quick look counts tasks: a victim for them is chosen without further reading.
func TestAForkBombIsEvictedByAQuickLook(t *testing.T) {
	l := newLoop(t, `evictionHard: {pid.available: "25%"}`, nil)
	l.killable()
	l.Write("cgroup/"+nodetest.Pod+"/pids.current", "900\n")
	l.Write("proc/sys/kernel/pid_max", "1000\n")
	l.Write("proc/sys/kernel/threads-max", "5000\n")
	l.Write("proc/loadavg", "1.00 1.00 1.00 1/950 4242\n")
	ctx, cancel := context.WithCancel(t.Context())
	l.look(ctx, time.Now())
	life := l.manager.Life(nodetest.UID)
	if life == nil || life.Eviction().Signal != stats.SignalPIDAvailable || life.Killed().Time.IsZero() {
		t.Errorf("eviction in progress = %+v, want a kill for pid.available\n%s", life, l.Text())
	}
	cancel()
	l.end()
}

// A pod that only a client knows is no victim. A victim without a cgroup and sandbox cannot be
// killed, and is set aside. Neither delays other looks nor uses CPU.
func TestVictimWithoutACgroupDelaysNothing(t *testing.T) {
	l := newLoop(t, "", nil)
	l.Populated(nodetest.Pod, false)
	const ghost = `{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"uid": "ghost", "name": "ghost", "namespace": "default"},
		"spec": {"containers": [{"name": "c", "image": "i"}]}}]}`
	if _, _, err := l.objects.Store().Put(strings.NewReader(ghost), false, podstore.ByRoot); err != nil {
		t.Fatal(err)
	}
	<-l.objects.Changed()
	l.onObjects()
	l.Available(90)
	now := time.Now()
	l.look(t.Context(), now)
	if aside := l.manager.SetAside(now); len(aside) != 0 || len(l.manager.Lives()) != 0 || strings.Contains(l.Text(), "ghost") {
		t.Errorf("set aside %v, in progress %v\n%s", aside, l.manager.Lives(), l.Text())
	}
	l.evictions.OnDecided(t.Context(), &eviction.Decision{Evictions: []eviction.Eviction{{
		Pod: stats.PodStats{PodRef: stats.PodReference{UID: "ghost"}}, Signal: stats.SignalNodeFsAvailable, GracePeriodSeconds: 1,
	}}})
	if aside := l.manager.SetAside(now); len(aside) != 1 || len(l.manager.Lives()) != 0 {
		t.Errorf("set aside %v, want one; in progress %v\n%s", aside, l.manager.Lives(), l.Text())
	}
	if l.due() < 50*time.Millisecond {
		t.Errorf("the next look is due in %v, want at least 50ms", l.due())
	}
}

// A kubelet that started since the last search saves the victims for a disk. With disk: act they
// are evicted, but the kubelet removes their files.
func TestAKubeletIsLookedForBeforeADiskVictimDies(t *testing.T) {
	l := newLoop(t, "", nil)
	for _, name := range []string{"comm", "cgroup", "net/tcp", "net/tcp6"} {
		l.Write("proc/1/"+name, "header\n")
	}
	d := l.diskVictim()
	if l.dropDiskVictims(&d); len(d.Evictions) != 1 || l.kubelet.Found() {
		t.Fatalf("victims without a kubelet = %+v, want one\n%s", d.Evictions, l.Text())
	}
	l.Write("proc/812/comm", "kubelet\n")
	l.Write("proc/812/cgroup", "0::/system.slice/kubelet.service\n")
	l.Write("proc/812/status", "Uid:\t0\t0\t0\t0\n")
	for _, act := range []bool{true, false} {
		if l.o.Config.Disk = config.ModeUnset; act {
			l.o.Config.Disk = config.ModeAct
		}
		if l.dropDiskVictims(&d); (len(d.Evictions) == 1) != act || !l.kubelet.Found() {
			t.Errorf("disk: act %v: victims with a kubelet = %+v\n%s", act, d.Evictions, l.Text())
		}
	}
}

// For a pod that only the kernel knows, a kill requests one list and waits a moment for it: the log
// then has the name.
func TestAKillWaitsForAName(t *testing.T) {
	for try := 1; !killNames(t); try++ { // a very busy machine may not answer within the moment
		if try == 10 {
			t.Fatal("no kill waited for the pod's name in 10 tries")
		}
	}
}

func killNames(t *testing.T) (named bool) {
	l := newLoop(t, "", nil)
	l.killable()
	ctx, cancel := context.WithCancel(t.Context())
	l.Runs()
	wait := l.pods.Start(ctx)
	l.Available(90)
	l.look(ctx, time.Now())
	life := l.manager.Life(nodetest.UID)
	if life == nil {
		t.Fatalf("no eviction began for the pod\n%s", l.Text())
	}
	named = life.Eviction().Pod.PodRef.Name == "pod"
	cancel()
	wait()
	l.end()
	return named
}

// The loop runs a self-test that was put off at start as soon as nothing is short. It is inconclusive, because no
// process can start in a tree of files.
func TestPostponedSelfTest(t *testing.T) {
	l := newLoop(t, "", nil)
	l.Available(90)
	l.selfTest(t.Context())
	if !strings.Contains(l.Text(), "self-test postponed") {
		t.Fatalf("the self-test was not put off:\n%s", l.Text())
	}
	l.Available(500)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.run(ctx); close(ended) }()
	for !strings.Contains(l.Text(), `msg="self-test inconclusive`) && !strings.Contains(l.Text(), `msg="self-test finished"`) {
		select {
		case <-t.Context().Done():
			t.Fatal("the loop ran no self-test")
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	<-ended
	l.end()
}

// A second agent on the node does not start, and its error names the first; a dry run does start.
func TestASecondAgentIsRefused(t *testing.T) {
	dir := t.TempDir()
	in := func(dry bool) func(*Options) { return func(o *Options) { o.Config.StateDir, o.DryRun = dir, dry } }
	newLoop(t, "", in(false))
	newLoop(t, "", in(true))
	n := nodetest.New(t)
	o := Options{Config: configOf(t, ""), ProcMount: n.Proc(), HostRoot: t.TempDir(), CgroupMount: filepath.Join(n.Dir, "none"), Log: n.Log.Logger}
	o.Config.Socket = ""
	in(false)(&o)
	b := newBuilder(o, n.Sources, eventlog.NewRing(time.Now()))
	defer b.close()
	_, err := b.build(t.Context(), pace.New(1<<30, 2))
	if want := fmt.Sprintf("%s is locked by another agent (pid %d)", dir, os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
