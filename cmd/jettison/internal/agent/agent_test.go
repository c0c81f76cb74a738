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
	"jettison/cmd/jettison/internal/config"
	"jettison/cmd/jettison/internal/kill"
	"jettison/cmd/jettison/internal/sources"
	"jettison/cri"
	"jettison/cri/critest"
	"jettison/eviction"
	"jettison/stats"
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
	proc, err := stats.OpenProc(filepath.Join(n.dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	collector, err := stats.NewCollector(fs, proc, "")
	if err != nil {
		t.Fatal(err)
	}
	n.runtime = critest.Start(t)
	client, err := cri.Dial(n.runtime.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	s := &sources.Sources{FS: fs, Proc: proc, Collector: collector, Client: client}
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

// kill brings the node into the state after a kill at so many MiB, the victim's cgroup empty.
func (n *testNode) kill(mib int, now time.Time) {
	n.t.Helper()
	n.available(mib)
	if err := n.a.Collector.Memory(now, nil, &n.a.summary); err != nil {
		n.t.Fatal(err)
	}
	d := n.a.manager.Step(now, eviction.Input{Summary: &n.a.summary})
	if len(d.Evictions) == 0 {
		n.t.Fatalf("no victim: %s", d.Reason)
	}
	n.a.manager.Begin(d.Evictions[0], d.Signal.Observed.Available)
	n.a.current = &underway{decision: d, victim: &kill.Victim{Pod: d.Evictions[0].Pod.PodRef}, killed: kill.Stamp{Time: now}}
	n.a.emptied(nil)
	n.a.current.emptied = now
}

// An eviction is over when the memory is back, when it does not come, or when the shortage has become much worse than the
// one that the victim died for; until then nobody else is looked at.
func TestWhenAnEvictionIsOver(t *testing.T) {
	for _, c := range []struct {
		name      string
		available int // MiB, after a kill at 90
		after     time.Duration
		over      bool
		says      string
	}{
		{"still on its way", 95, time.Second, false, ""},
		{"no better yet", 90, time.Second, false, ""},
		{"back", 300, 20 * time.Millisecond, true, "killToMemoryBack=20ms"},
		{"does not come", 95, backLimit, true, `killToMemoryBack="not back"`},
		{"a dip", 80, time.Second, false, ""},
		{"much worse than before", 44, 20 * time.Millisecond, true, `killToMemoryBack="not back"`},
	} {
		n := newTestNode(t)
		start := time.Now()
		n.kill(90, start)
		n.available(c.available)
		n.a.look(t.Context(), start.Add(c.after))
		if over := n.a.current == nil; over != c.over || !strings.Contains(n.log.String(), c.says) {
			t.Errorf("%s: over %v, log %s", c.name, over, n.log)
		}
	}
}

// Told to stop in the middle of an eviction, the agent leaves a trace of it, and does not call the victim undying.
func TestAStopInAnEvictionLeavesATrace(t *testing.T) {
	n := newTestNode(t)
	n.kill(90, time.Now())
	n.a.emptied(fmt.Errorf("wait: %w", context.Canceled))
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
	n.available(90)
	n.a.decide(t.Context(), time.Now())
	if n.a.current == nil || n.a.current.killErr == nil {
		t.Fatalf("under way %+v", n.a.current)
	}
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.events", "populated 0\nfrozen 0\n")
	n.runtime.Change(func() { clear(n.runtime.Fail) })
	if err := <-n.a.empty; err != nil {
		t.Error(err)
	}
	if c := <-n.a.cleaned; c.err != nil || n.runtime.Calls("StopPodSandbox") == 0 {
		t.Errorf("cleaned: %v", c.err)
	}
	n.a.evictions.Wait()
}

// A victim that does not die is set aside aloud, and the next look may choose another one.
func TestAnUndyingVictimIsSetAside(t *testing.T) {
	n := newTestNode(t)
	n.kill(90, time.Now())
	n.a.emptied(os.ErrDeadlineExceeded)
	if n.a.current != nil || !strings.Contains(n.log.String(), "the victim does not die, set aside") {
		t.Errorf("log: %s", n.log)
	}
	n.a.decide(t.Context(), time.Now())
	if !strings.Contains(n.log.String(), "was killed already and did not die") {
		t.Errorf("log: %s", n.log)
	}
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
	if got := strings.Count(n.log.String(), `msg="would evict"`); got != 1 || n.a.current != nil {
		t.Errorf("%d lines, under way %v:\n%s", got, n.a.current, n.log)
	}
}

// A pod that only the kernel knows is asked about a few times, not for ever: its cgroup may be left over.
func TestALeftOverCgroupIsNotAskedAboutForEver(t *testing.T) {
	n := newTestNode(t)
	asked := 0
	for range 3 * asks {
		n.a.keepUp()
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
