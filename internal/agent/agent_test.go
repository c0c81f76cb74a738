package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/cri/critest"
	"jettison/eviction"
	"jettison/internal/config"
	"jettison/internal/kill"
	"jettison/internal/sources"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const uid = "12345678-1234-1234-1234-123456789abc"

// testNode is a tree of files that an agent takes for a node: 1 GiB, one pod that uses 400 MiB.
type testNode struct {
	t   *testing.T
	dir string
	a   *agent
	log *bytes.Buffer

	runtime *critest.Runtime
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	n := &testNode{t: t, dir: t.TempDir(), log: &bytes.Buffer{}}
	pod := "cgroup/kubepods/besteffort/pod" + uid + "/"
	n.write("cgroup/cgroup.procs", "")
	n.write("cgroup/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 0\n")
	n.write(pod+"cgroup.procs", "")
	n.write(pod+"cgroup.events", "populated 1\nfrozen 0\n")
	n.write(pod+"memory.current", "419430400\n")
	n.write(pod+"memory.stat", "anon 419430400\nfile 0\nshmem 0\ninactive_file 0\n")
	n.available(500)
	fs, err := cgroup.OpenTree(filepath.Join(n.dir, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	proc, err := read.OpenProc(filepath.Join(n.dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	collector, err := read.NewReader(fs, proc, "")
	if err != nil {
		t.Fatal(err)
	}
	n.runtime = critest.Start(t)
	client, err := cri.Dial(n.runtime.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	s := &sources.Sources{FS: fs, Proc: proc, Reader: collector, Client: client}
	t.Cleanup(s.Close)
	n.a = newAgent(Options{Config: &config.Loaded{Config: config.Default()}, Log: slog.New(slog.NewTextHandler(n.log, nil))}, s)
	return n
}

func (n *testNode) write(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// available sets how many MiB are, by the kernel's word.
func (n *testNode) available(mib int) {
	n.write("proc/meminfo", fmt.Sprintf("MemTotal: 1048576 kB\nMemAvailable: %d kB\n", mib<<10))
}

// victim is what is decided at so many MiB.
func (n *testNode) victim(mib int, now time.Time) eviction.Decision {
	n.t.Helper()
	n.available(mib)
	n.a.measure(now)
	if err := n.a.lookAtPods(now, memoryLook); err != nil {
		n.t.Fatal(err)
	}
	d := n.a.manager.Step(now, eviction.Input{Summary: &n.a.summary, MemoryOnly: true})
	if len(d.Evictions) == 0 {
		n.t.Fatalf("no victim: %s", d.Reason)
	}
	return d
}

// kill brings the node into the state after a kill at so many MiB, the victim's cgroup empty.
func (n *testNode) kill(mib int, now time.Time) *underway {
	n.t.Helper()
	u := n.written(mib, now)
	n.a.happened(now, event{u, emptied, nil})
	return u
}

// written brings the node into the state after a kill was written at so many MiB.
func (n *testNode) written(mib int, now time.Time) *underway {
	n.t.Helper()
	d := n.victim(mib, now)
	at := eviction.Stamp{Time: now}
	e := d.Evictions[0]
	u := &underway{Life: n.a.manager.Begin(at, e, d.Signal), reason: d.Reason, victim: &kill.Victim{Pod: e.Pod.PodRef}, cancel: func() {}}
	n.a.manager.Killed(at, u.Life)
	n.a.underway[uid], n.a.lives[u.Life] = u, u
	return u
}

// take hands the loop what an eviction's goroutine reports, once.
func (n *testNode) take() event {
	n.t.Helper()
	e := <-n.a.events
	n.a.happened(time.Now(), e)
	return e
}

// runs gives the fake runtime the node's pod, with one container.
func (n *testNode) runs() {
	n.runtime.Change(func() {
		n.runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Name: "pod", Namespace: "default"}, CreatedAt: 1}}
		n.runtime.Containers = []*runtimev1.Container{{Id: "c", PodSandboxId: "s", State: runtimev1.ContainerState_CONTAINER_RUNNING, Metadata: &runtimev1.ContainerMetadata{Name: "c"}}}
	})
	listing, err := n.a.watcher.lister.List(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	n.a.listed(update{pods: read.NewIndex(listing)})
}

// An eviction is over when the memory is back, when it does not come, or when the shortage has become much worse than the
// one that the victim died for; until then nobody else is looked at.
func TestWhenAnEvictionIsOver(t *testing.T) {
	for _, c := range []struct {
		name      string
		available int // MiB, after a kill at 90
		after     time.Duration
		over      bool
		asks      bool // for the next one
		says      string
	}{
		{"still on its way", 95, time.Second, false, false, ""},
		{"no better yet", 90, time.Second, false, false, ""},
		{"back", 300, 20 * time.Millisecond, true, false, "killToMemoryBack=20ms"},
		{"does not come", 95, 2 * time.Second, true, true, `killToMemoryBack="not back"`},
		{"a dip", 80, time.Second, false, false, ""},
		{"much worse than before", 44, 20 * time.Millisecond, true, true, `killToMemoryBack="not back"`},
	} {
		n := newTestNode(t)
		start := time.Now()
		u := n.kill(90, start)
		n.available(c.available)
		now := start.Add(c.after)
		n.a.measure(now)
		n.a.progress(now)
		asks := n.a.manager.Ready(now.Add(poll)).Look == eviction.LookMemory
		if (u.Outcome() != eviction.OutcomeUnknown) != c.over || asks != c.asks || !strings.Contains(n.log.String(), c.says) {
			t.Errorf("%s: over %v, asks for the next one %v, log %s", c.name, u.Outcome(), asks, n.log)
		}
	}
}

// Told to stop in the middle of an eviction, the agent leaves a trace of it, and does not call the victim undying.
func TestAStopInAnEvictionLeavesATrace(t *testing.T) {
	n := newTestNode(t)
	u := n.kill(90, time.Now())
	n.a.happened(time.Now(), event{u, emptied, fmt.Errorf("wait: %w", context.Canceled)})
	n.a.interrupted()
	if text := n.log.String(); !strings.Contains(text, `msg="stopped during an eviction"`) || !strings.Contains(text, uid) || strings.Contains(text, "does not die") {
		t.Errorf("log: %s", text)
	}
}

// A kernel without cgroup.kill (the tree has none): the runtime is the next rung, and is asked until it has done it.
func TestWithoutCgroupKillTheRuntimeKills(t *testing.T) {
	n := newTestNode(t)
	n.runtime.Change(func() {
		n.runtime.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: uid}, CreatedAt: 1}}
		n.runtime.Fail["StopPodSandbox"] = errors.New("busy")
	})
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.procs", "0\n") // of another pid namespace: nor can they be killed one by one
	n.available(90)
	n.a.look(t.Context(), time.Now())
	if u := n.a.underway[uid]; u == nil || u.killErr == nil {
		t.Fatalf("under way %+v\n%s", u, n.log)
	}
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.events", "populated 0\nfrozen 0\n")
	n.runtime.Change(func() { clear(n.runtime.Fail) })
	if e := n.take(); e.stage != emptied || e.err != nil {
		t.Error(e)
	}
	if e := n.take(); e.stage != cleaned || e.err != nil || n.runtime.Calls("StopPodSandbox") == 0 {
		t.Errorf("cleaned: %v", e)
	}
	n.a.evictions.Wait()
}

// A victim that does not die is set aside aloud.
func TestAnUndyingVictimIsSetAside(t *testing.T) {
	n := newTestNode(t)
	now := time.Now()
	u := n.written(90, now)
	n.a.happened(now, event{u, emptied, os.ErrDeadlineExceeded})
	if s := n.a.state(now); !strings.Contains(n.log.String(), "the victim does not die, set aside") || len(s.SetAside) != 1 {
		t.Errorf("set aside %v, log: %s", s.SetAside, n.log)
	}
	if n.a.manager.Ready(now).Within < poll {
		t.Error("the loop hurries for a victim that does not die")
	}
}

// softAndHard is a configuration with both.
const softAndHard = `
evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: 200Mi}
evictionSoftGracePeriod: {memory.available: 10s}
evictionMaxPodGracePeriod: 60
`

// A soft threshold stops a pod gently; a hard one that is met meanwhile does not wait for its grace period.
func TestAHardThresholdCutsAGraceShort(t *testing.T) {
	n := newTestNode(t)
	n.a = newAgent(Options{Log: n.a.log, Config: configOf(t, softAndHard)}, n.a.Sources)
	n.runs()
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.kill", "")
	n.runtime.Change(func() { n.runtime.Hang = map[string]bool{"StopContainer": true} })
	n.available(150)
	now := time.Now()
	n.a.look(t.Context(), now)
	if len(n.a.underway) != 0 || !strings.Contains(n.log.String(), "msg=condition condition=MemoryPressure status=true reason=KubeletHasInsufficientMemory event=NodeHasInsufficientMemory") {
		t.Fatalf("in the grace period of the threshold: under way %v\n%s", n.a.underway, n.log)
	}
	now = now.Add(10 * time.Second)
	n.a.look(t.Context(), now)
	u := n.a.underway[uid]
	if u == nil || !u.Killed().Time.IsZero() || u.Eviction().GracePeriodSeconds != 60 {
		t.Fatalf("under way %+v\n%s", u, n.log)
	}
	n.a.look(t.Context(), now.Add(time.Second))
	if n.a.underway[uid] != u || !u.Killed().Time.IsZero() {
		t.Fatalf("not left in peace: %+v\n%s", n.a.underway[uid], n.log)
	}
	n.available(90)
	n.a.look(t.Context(), now.Add(2*time.Second))
	if n.a.underway[uid] != u || u.Killed().Time.IsZero() || u.Eviction().GracePeriodSeconds != 1 || !strings.Contains(n.log.String(), "the grace period is cut short") {
		t.Fatalf("under way %+v\n%s", u, n.log)
	}
	n.runtime.Change(func() { clear(n.runtime.Hang) })
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.events", "populated 0\nfrozen 0\n")
	if e := n.take(); e.stage != emptied || e.err != nil {
		t.Errorf("emptied: %v", e.err)
	}
	n.available(500)
	now = time.Now()
	n.a.measure(now)
	n.a.progress(now)
	if len(n.a.history) != 1 || !n.a.history[0].Back {
		t.Errorf("history %+v\n%s", n.a.history, n.log)
	}
	u.cancel()
	n.a.evictions.Wait()
}

// A threshold that this node can never satisfy ends an agent whose own file says so, and is a doubt where a kubelet's does.
func TestThresholdsAreHeldAgainstTheNode(t *testing.T) {
	n := newTestNode(t)
	n.available(500)
	for _, own := range []bool{true, false} {
		loaded := configOf(t, "evictionHard: {memory.available: 2Gi}\n")
		if !own {
			loaded.Kind = config.KindKubelet
		}
		n.a.o.Config = loaded
		doubts, err := n.a.checkCapacity(t.Context())
		text := fmt.Sprint(err, doubts)
		if (err != nil) != own || (len(doubts) == 0) != own || !strings.Contains(text, ":3: evictionHard: memory.available: memory.available<2Gi can never be satisfied: the capacity is 1Gi") {
			t.Errorf("own %v: %v, doubts %v", own, err, doubts)
		}
	}
}

func configOf(t *testing.T, text string) *config.Loaded {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"+strings.TrimPrefix(text, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The runtime's loss and return, and a source that cannot be read, are one line each.
func TestLossesAreLoggedOnce(t *testing.T) {
	n := newTestNode(t)
	for range 3 {
		n.a.listed(update{err: errors.New("down")})
	}
	for range 3 {
		n.a.listed(update{})
	}
	n.write("cgroup/memory.stat", "anon what\n")
	for range 3 {
		n.a.look(t.Context(), time.Now())
	}
	n.write("cgroup/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 0\n")
	n.a.look(t.Context(), time.Now())
	for _, line := range []string{"lost the runtime", "the runtime is back", "cannot read the node's memory", "everything is read again"} {
		if got := strings.Count(n.log.String(), line); got != 1 {
			t.Errorf("%q is logged %d times:\n%s", line, got, n.log)
		}
	}
}

// A dry run says whom it would evict, once, and kills nobody: the tree has no cgroup.kill to write to.
func TestADryRunOnlySays(t *testing.T) {
	n := newTestNode(t)
	n.a.o.DryRun = true
	n.available(90)
	for range 5 {
		n.a.look(t.Context(), time.Now())
	}
	if got := strings.Count(n.log.String(), `msg="would evict"`); got != 1 || len(n.a.underway) > 0 {
		t.Errorf("%d lines, under way %v:\n%s", got, n.a.underway, n.log)
	}
}

// A pod that only the kernel knows is asked about a few times, not for ever: its cgroup may be left over.
func TestALeftOverCgroupIsNotAskedAboutForEver(t *testing.T) {
	n := newTestNode(t)
	asked := 0
	for range 3 * asks {
		n.a.keepUp(time.Now())
		select {
		case <-n.a.watcher.refresh:
			asked++
		default:
		}
	}
	if asked != asks {
		t.Errorf("asked %d times, want %d", asked, asks)
	}
}
