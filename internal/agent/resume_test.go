package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/internal/records"
	"jettison/stats/read"
)

// keepingNode is a node on which the pod is being stopped gently; what has to outlive the agent lies in dir.
func keepingNode(t *testing.T, ctx context.Context) (n *testNode, dir string, stop func()) {
	t.Helper()
	n, dir = newTestNode(t), t.TempDir()
	n.again(t, dir)
	_, _, stop = n.a.startKeeping(time.Now())
	n.runs()
	n.runtime.Change(func() { n.runtime.Hang = map[string]bool{"StopContainer": true} })
	n.available(150)
	now := time.Now()
	n.a.look(ctx, now)
	n.a.look(ctx, now.Add(10*time.Second))
	if u := n.a.underway[uid]; u == nil || !u.Killed().Time.IsZero() {
		t.Fatalf("under way %+v\n%s", u, n.log)
	}
	return n, dir, stop
}

// crashedNode is such a node after the agent has ended in the middle of it, with the one that follows.
func crashedNode(t *testing.T) *testNode {
	t.Helper()
	ctx, crash := context.WithCancel(t.Context())
	n, dir, _ := keepingNode(t, ctx)
	if err := n.a.keeper.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	crash()
	n.a.evictions.Wait()
	n.again(t, dir)
	return n
}

// again makes an agent that knows nothing of the one before.
func (n *testNode) again(t *testing.T, dir string) {
	c := configOf(t, softAndHard)
	c.StateDir = dir
	n.write("proc/sys/kernel/random/boot_id", "0f0e0d0c-0b0a-0908-0706-050403020100\n")
	n.a = newAgent(Options{Log: n.a.log, Config: c, ProcMount: filepath.Join(n.dir, "proc")}, n.a.Sources)
}

// Killed in the middle of an eviction, the agent comes back and goes on: the pod keeps what is left of its grace period, stays held off,
// and nobody else is chosen meanwhile.
func TestAnAgentThatIsKilledGoesOn(t *testing.T) {
	ctx, crash := context.WithCancel(t.Context())
	n, dir, _ := keepingNode(t, ctx)
	id := n.a.underway[uid].record.ID
	began := n.a.underway[uid].Began().Time
	if err := n.a.keeper.Close(time.Minute); err != nil { // nothing is written at the end: what was written at each change is what counts
		t.Fatal(err)
	}
	crash()
	n.a.evictions.Wait()
	n.again(t, dir)
	state, running, stop := n.a.startKeeping(time.Now())
	ctx, crash = context.WithCancel(t.Context())
	n.runs()
	n.a.resume(ctx, began.Add(59*time.Second), state, running) // with one more of 60
	u := n.a.underway[uid]
	if u == nil || !u.Killed().Time.IsZero() || u.record.ID != id || !u.Began().Time.Equal(began.Round(0)) {
		t.Fatalf("under way %+v, want record %s\n%s", u, id, n.log)
	}
	if _, held := n.a.holds.Held(time.Now(), uid); !held {
		t.Error("it is not held off any more")
	}
	n.available(150)
	n.a.look(ctx, time.Now())
	if len(n.a.underway) != 1 {
		t.Errorf("under way %v", n.a.underway)
	}
	// It dies, the runtime cleans up, and that is the end of it.
	n.runtime.Change(func() { n.runtime.Hang = nil })
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.events", "populated 0\nfrozen 0\n")
	if e := n.take(); e.stage != emptied || e.err != nil {
		t.Errorf("%+v\n%s", e, n.log)
	}
	if e := n.take(); e.stage != cleaned || e.err != nil {
		t.Errorf("%+v\n%s", e, n.log)
	}
	n.available(500)
	n.a.look(ctx, time.Now())
	crash()
	n.a.evictions.Wait()
	if err := n.a.keeper.Close(time.Minute); err != nil { // stop waits for less
		t.Error(err)
	}
	stop()
	list, err := records.Read(records.Path(dir))
	if err != nil || len(list.Records) != 1 || list.Records[0].ID != id || list.Records[0].Outcome != records.Back {
		t.Errorf("records %+v, %v", list, err)
	}
}

// The pod died, and its cgroup went, while there was no agent: the runtime cleans up.
func TestAVictimThatDiedMeanwhileIsCleanedUp(t *testing.T) {
	ctx, crash := context.WithCancel(t.Context())
	n, dir, _ := keepingNode(t, ctx)
	if err := n.a.keeper.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	crash()
	n.a.evictions.Wait()
	if err := os.RemoveAll(filepath.Join(n.dir, "cgroup/kubepods/besteffort/pod"+uid)); err != nil {
		t.Fatal(err)
	}
	n.again(t, dir)
	state, running, stop := n.a.startKeeping(time.Now())
	defer stop()
	n.runs()
	n.runtime.Change(func() { n.runtime.Hang = nil })
	n.a.resume(t.Context(), time.Now(), state, running)
	if e := n.take(); e.stage != emptied || e.err != nil {
		t.Errorf("%+v\n%s", e, n.log)
	}
	if e := n.take(); e.stage != cleaned || e.err != nil || n.runtime.Calls("StopPodSandbox") == 0 {
		t.Errorf("%+v\n%s", e, n.log)
	}
	n.a.evictions.Wait()
}

// A kubelet has started the pod again meanwhile, in the cgroup that it had: it is another pod now, and only what is left of the one before is
// cleaned up.
func TestAPodThatCameBackMeanwhileLives(t *testing.T) {
	n := crashedNode(t)
	state, running, stop := n.a.startKeeping(time.Now())
	defer stop()
	n.runs()
	n.runtime.Change(func() {
		n.runtime.Hang = nil
		n.runtime.Sandboxes = append(n.runtime.Sandboxes, &runtimev1.PodSandbox{
			Id: "next", Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Name: "pod", Namespace: "default", Attempt: 1}, CreatedAt: time.Now().UnixNano(),
		})
	})
	listing, err := n.a.watcher.lister.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.a.listed(update{pods: read.NewIndex(listing)})
	n.a.resume(t.Context(), time.Now(), state, running)
	for range 2 {
		if e := n.take(); e.err != nil {
			t.Errorf("%+v\n%s", e, n.log)
		}
	}
	n.a.evictions.Wait()
	n.runtime.Change(func() {
		for _, s := range n.runtime.Sandboxes {
			if ready := s.State == runtimev1.PodSandboxState_SANDBOX_READY; ready != (s.Id == "next") {
				t.Errorf("sandbox %s: %v", s.Id, s.State)
			}
		}
	})
}

// A state that cannot be true costs nobody anything but one line.
func TestAStateThatCannotBeTrueIsAFreshStart(t *testing.T) {
	n, dir := newTestNode(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, records.StateFile), []byte("{\"version\": 1, \"evictions\": 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.again(t, dir)
	state, running, stop := n.a.startKeeping(time.Now())
	defer stop()
	n.a.resume(t.Context(), time.Now(), state, running)
	if len(n.a.underway) != 0 || strings.Count(n.log.String(), "what was kept is not whole") != 1 {
		t.Errorf("under way %v\n%s", n.a.underway, n.log)
	}
}

// Long after the grace period nobody knows whether anything is short still: the pod is left alone, until it is chosen anew.
func TestALateRestartKillsNobody(t *testing.T) {
	n := crashedNode(t)
	later := time.Now().Add(time.Hour)
	state, running, stop := n.a.startKeeping(later)
	defer stop()
	n.runs()
	n.a.resume(t.Context(), later, state, running)
	n.a.evictions.Wait()
	if len(state.Manager.Lives) != 1 || len(n.a.underway) != 0 || n.runtime.Calls("StopPodSandbox") != 0 {
		t.Errorf("saved %d, under way %v\n%s", len(state.Manager.Lives), n.a.underway, n.log)
	}
}

// The eviction is over, but what it was for is short still: after a restart, too, the hold-off lasts as long as that, and no longer.
func TestAHoldOffLastsAsLongAsItsSignalAfterARestart(t *testing.T) {
	for _, c := range []struct {
		name string
		mib  int
		on   bool
	}{{"short still", 90, true}, {"back", 500, false}} {
		n, dir, now := newTestNode(t), t.TempDir(), time.Now()
		n.again(t, dir)
		n.a.startKeeping(now)
		d := n.victim(90, now)
		n.a.holdOff(now, &d.Evictions[0])
		n.a.changed = true
		n.a.save(now)
		if err := n.a.keeper.Close(time.Minute); err != nil {
			t.Fatal(err)
		}
		n.again(t, dir)
		state, running, _ := n.a.startKeeping(now)
		n.a.resume(t.Context(), now, state, running)
		before := n.a.holds.All()[uid].Until
		n.available(c.mib)
		late := before.Add(-time.Second)
		n.a.holdOn(late, n.a.measure(late))
		if after := n.a.holds.All()[uid].Until; before.IsZero() || after.After(before) != c.on {
			t.Errorf("%s: until %s, then until %s\n%s", c.name, before, after, n.log)
		}
		if err := n.a.keeper.Close(time.Minute); err != nil {
			t.Error(err)
		}
	}
}
