package evictions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/api"
	"jettison/cgroup"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/internal/node/nodetest"
	"jettison/internal/node/records"
	"jettison/stats"
	"jettison/stats/read"
)

// uids are those of the pods that several starts.
var uids = []string{nodetest.UID, "22345678-1234-1234-1234-123456789abc", "32345678-1234-1234-1234-123456789abc"}

// several lets the runtime run pods with one container each, and returns their evictions for a
// critical pod.
func (f *fixture) several(n int) (going []eviction.Eviction) {
	f.t.Helper()
	f.Runtime.Change(func() {
		f.Runtime.Sandboxes, f.Runtime.Containers = nil, nil
		for i, uid := range uids[:n] {
			f.Runtime.Sandboxes = append(f.Runtime.Sandboxes, &runtimev1.PodSandbox{
				Id: fmt.Sprint("s", i), Metadata: &runtimev1.PodSandboxMetadata{Uid: uid, Name: fmt.Sprint("pod", i), Namespace: "default"}, CreatedAt: 1,
			})
			f.Runtime.Containers = append(f.Runtime.Containers, &runtimev1.Container{
				Id: fmt.Sprint("c", i), PodSandboxId: fmt.Sprint("s", i), State: runtimev1.ContainerState_CONTAINER_RUNNING,
				Metadata: &runtimev1.ContainerMetadata{Name: "c"},
			})
		}
	})
	listing, err := cri.NewLister(f.Client).List(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	f.pods = read.NewIndex(listing)
	for i, uid := range uids[:n] {
		path := "kubepods/besteffort/pod" + uid
		f.AddPod(path, 10)
		pod := stats.PodStats{
			PodRef: stats.PodReference{UID: uid, Name: fmt.Sprint("pod", i), Namespace: "default"}, Announced: true, QOSClass: stats.BestEffort,
			Cgroup: path, SandboxIDs: []string{fmt.Sprint("s", i)},
		}
		going = append(going, eviction.Preempted(&pod, nil, "Preempting", "Preempted in order to admit critical pod"))
	}
	return going
}

// All victims are stopped at the same time, each with its own grace period and hold-off; the
// records show the reason.
func TestPreemptedPodsAreStoppedTogether(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	dir := t.TempDir()
	f.keeping(dir)
	going := f.several(3)
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopContainer": true} })
	now, saved := time.Now(), 0
	save := func() { f.Save(now, func(*records.State) { saved++ }) }
	save()
	before := saved
	if save(); saved > before {
		t.Error("state was saved without a change")
	}
	lives, err := f.Preempt(t.Context(), now, going, "room for kube-system/critical")
	if err != nil || len(lives) != 3 {
		t.Fatal(lives, err)
	}
	if save(); saved == before {
		t.Error("state was not saved after a preemption")
	}
	if !slices.Equal(f.earlyHoldOffs, uids) {
		t.Errorf("hold-offs began for %v, want %v", f.earlyHoldOffs, uids)
	}
	for i, l := range lives {
		if l != f.m.Life(uids[i]) || f.held[uids[i]] != 1 || !l.Killed().Time.IsZero() || f.inProgress[l].grace != 30*time.Second {
			t.Errorf("%s: life %+v, %d hold-offs, want 1", uids[i], l, f.held[uids[i]])
		}
	}
	for _, i := range []int{2, 1, 0} { // none waits for another
		f.Runtime.Change(func() { f.Runtime.Containers[i].State = runtimev1.ContainerState_CONTAINER_EXITED })
		f.Populated("kubepods/besteffort/pod"+uids[i], false)
		for range 2 {
			if e := f.take(); e.job.victim.Pod.UID != uids[i] || e.err != nil {
				t.Errorf("report %v of %s (%v), want %s", e.stage, e.job.victim.Pod.UID, e.err, uids[i])
			}
		}
	}
	f.observe(now, 500)
	for _, l := range lives {
		if back, over := l.RoomState(now); !back || !over {
			t.Errorf("%s: resources back %v, eviction over %v, want both", l.Eviction().Pod.PodRef.UID, back, over)
		}
	}
	if len(f.inProgress) > 0 || len(f.History()) != 3 {
		t.Errorf("evictions in progress %v, history %+v, want none and three\n%s", f.inProgress, f.History(), f.Text())
	}
	if err := f.o.Keeper.Close(); err != nil {
		t.Fatal(err)
	}
	kept, err := records.Read(records.Path(dir))
	if err != nil || len(kept.Records) != 3 {
		t.Fatal(kept, err)
	}
	for _, r := range kept.Records {
		if r.Signal != "preempted" || r.Reason != "room for kube-system/critical" || r.Outcome != api.OutcomeBack ||
			r.Message != "Preempted in order to admit critical pod" || r.Threshold != "" || r.Crossed != nil {
			t.Errorf("record of a preemption = %+v", r)
		}
	}
	if text := f.Text(); strings.Contains(text, "killToMemoryBack") || strings.Count(text, "msg=evicted signal=preempted") != 3 {
		t.Errorf("log of the preemptions: %s", text)
	}
	f.Wait()
}

// If one victim cannot be pinned, none is stopped: the others would be stopped without effect.
func TestPreemptionIsAllOrNothing(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	going := f.several(3)
	going[2].Pod.Cgroup += "gone"
	var pinned []*kill.Victim
	pin := f.o.Pin
	f.o.Pin = func(p *stats.PodStats) (*kill.Victim, error) {
		v, err := pin(p)
		if err == nil {
			pinned = append(pinned, v)
		}
		return v, err
	}
	lives, err := f.Preempt(t.Context(), time.Now(), going, "r")
	if lives != nil || !errors.Is(err, cgroup.ErrVanished) || !strings.Contains(err.Error(), "default/pod2") {
		t.Errorf("Preempt = %v, %v, want ErrVanished for default/pod2", lives, err)
	}
	if len(f.inProgress)+len(f.m.Lives())+len(f.held)+len(f.m.SetAside(time.Now())) > 0 || f.Runtime.Calls("StopContainer") > 0 {
		t.Errorf("evictions in progress %v, hold-offs %v, want none\n%s", f.m.Lives(), f.held, f.Text())
	}
	for _, v := range pinned {
		if err := v.Kill(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s stays pinned: kill error %v, want ErrClosed", v.Pod.UID, err)
		}
	}
	if len(pinned) != 2 {
		t.Errorf("%d pods were pinned, want 2", len(pinned))
	}
	going[2].Pod.Cgroup, going[2].Pod.SandboxIDs = "", nil
	if _, err := f.Preempt(t.Context(), time.Now(), going, "r"); err == nil || len(f.m.SetAside(time.Now())) != 1 {
		t.Errorf("Preempt of a pod without cgroup: error %v, set aside %v", err, f.m.SetAside(time.Now()))
	}
	f.Wait() // no goroutine runs
}

// A pod that is being stopped already is awaited, not stopped again. A pod that survived a kill a
// moment ago makes the preemption fail.
func TestPreemptionOfPodsBeingStopped(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	going := f.several(2)
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopContainer": true, "StopPodSandbox": true} })
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	first, err := f.Preempt(ctx, now, going[:1], "r")
	if err != nil {
		t.Fatal(err)
	}
	both, err := f.Preempt(ctx, now, going, "r")
	if err != nil || both[0] != first[0] || both[1] == nil || len(f.inProgress) != 2 {
		t.Errorf("lives %v, then %v (%v), want the first one again", first, both, err)
	}
	f.OnEvent(now, Event{f.inProgress[first[0]].job, emptied, os.ErrDeadlineExceeded})
	pins := 0
	pin := f.o.Pin
	f.o.Pin = func(p *stats.PodStats) (*kill.Victim, error) { pins++; return pin(p) }
	if _, err := f.Preempt(ctx, now, going[:1], "r"); !errors.Is(err, errUndying) || pins > 0 {
		t.Errorf("Preempt of an undying pod: error %v, pinned %d times", err, pins)
	}
	if _, err := f.Preempt(ctx, now.Add(eviction.DieLimit+time.Second), going[:1], "r"); err != nil || pins != 1 {
		t.Errorf("Preempt of the undying pod later: error %v, pinned %d times, want once", err, pins)
	}
	f.end(cancel)
}

// A pod that has come back under its UID is not the stopped one: it is stopped again, although the
// runtime still cleans up.
func TestPreemptionOfAPodThatCameBack(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	going := f.several(1)
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopContainer": true, "StopPodSandbox": true} })
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	first, err := f.Preempt(ctx, now, going, "r")
	if err != nil {
		t.Fatal(err)
	}
	f.OnEvent(now, Event{f.inProgress[first[0]].job, emptied, nil})
	if !first[0].CleaningUp() {
		t.Fatal("the first victim is cleaned up already")
	}
	again, err := f.Preempt(ctx, now, going, "r")
	if err != nil || again[0] == first[0] || again[0] != f.m.Life(uids[0]) || again[0].Terminated() {
		t.Errorf("lives %v, then %v (%v), want a new life", first, again, err)
	}
	f.end(cancel)
}

// preempted stops the pod for a critical one, with a slow runtime.
func (f *fixture) preempted(ctx context.Context, now time.Time) *eviction.Life {
	f.t.Helper()
	f.pods = f.Runs()
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopContainer": true} })
	s := stats.Summary{Time: now}
	if err := f.Reader.Memory(now, f.pods, &s); err != nil {
		f.t.Fatal(err)
	}
	lives, err := f.Preempt(ctx, now, []eviction.Eviction{eviction.Preempted(&s.Pods[0], nil, "Preempting", "m")}, "room for kube-system/critical")
	if err != nil {
		f.t.Fatal(err)
	}
	return lives[0]
}

// A hard threshold cuts the grace period short. The life stays the same, so that the critical pod
// gets its resources; the record shows the signal of the kill. The page cache is dropped, too.
func TestAHardThresholdKillsAPreemptedPod(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	f.keeping(dir)
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	f.observe(now, 500)
	life := f.preempted(ctx, now)
	if !f.inProgress[life].cache {
		t.Error("the victim's page cache is not dropped")
	}
	f.killable()
	d := f.decide(now.Add(time.Second), 90)
	if len(d.Evictions) != 1 || !d.Evictions[0].CutsGracePeriod || !f.OnDecided(ctx, &d) {
		t.Fatal(d.Reason)
	}
	if f.m.Life(nodetest.UID) != life || life.Killed().Time.IsZero() || life.Eviction().Planned() || f.held[nodetest.UID] != 2 {
		t.Errorf("eviction after the hard threshold %+v, %d hold-offs, want 2\n%s", life.Eviction(), f.held[nodetest.UID], f.Text())
	}
	f.Populated(nodetest.Pod, false)
	if e := f.take(); e.err != nil || e.stage != emptied {
		t.Errorf("report after the kill = %+v, want emptied", e)
	}
	if back, over := life.RoomState(time.Now()); !back || !over {
		t.Errorf("resources back %v, over %v, want both", back, over)
	}
	f.end(cancel)
	if err := f.o.Keeper.Close(); err != nil {
		t.Fatal(err)
	}
	kept, err := records.Read(records.Path(dir))
	if err != nil || len(kept.Records) == 0 || kept.Records[len(kept.Records)-1].Signal != stats.SignalMemoryAvailable {
		t.Errorf("last record = %+v (%v), want signal memory.available", kept, err)
	}
}

// A preemption follows no proactive reclaim: its record has no effect of one.
func TestPreemptionFollowsNoReclaim(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.keeping(t.TempDir())
	f.reclaiming()
	ctx, cancel := context.WithCancel(t.Context())
	life := f.preempted(ctx, time.Now())
	if f.afterReclaim != nil || f.inProgress[life].reclaim != nil {
		t.Errorf("preemption after a reclaim %+v, want none", f.afterReclaim)
	}
	f.end(cancel)
}

// If the kernel rejects the kill, the eviction begins again: the first life ends without success,
// and the pod gets another one.
func TestPreemptedPodWithoutCgroupKill(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	ctx, cancel := context.WithCancel(t.Context())
	now := time.Now()
	f.observe(now, 500)
	life := f.preempted(ctx, now)
	d := f.decide(now.Add(time.Second), 90)
	if len(d.Evictions) != 1 || !d.Evictions[0].CutsGracePeriod || !f.OnDecided(ctx, &d) {
		t.Fatal(d.Reason)
	}
	later := f.m.Life(nodetest.UID)
	if back, over := life.RoomState(now); later == nil || later == life || back || !over {
		t.Errorf("life %v after %v: resources back %v, over %v", later, life, back, over)
	}
	f.end(cancel)
}

// A dry run stops no pod, but logs and records the pods it would stop.
func TestDryRunPreemptsNoPod(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	going := f.several(2)
	f.o.DryRun = true
	if lives, err := f.Preempt(t.Context(), time.Now(), going, "room for kube-system/critical"); lives != nil || !errors.Is(err, ErrDryRun) {
		t.Errorf("Preempt in a dry run = %v, %v, want ErrDryRun", lives, err)
	}
	if text := f.Text(); strings.Count(text, "would evict") != 2 || !strings.Contains(text, "room for kube-system/critical") || len(f.m.Lives()) > 0 {
		t.Errorf("log of a dry run: %s", text)
	}
	f.Wait()
}
