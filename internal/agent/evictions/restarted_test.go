package evictions

import (
	"context"
	"testing"
	"time"

	"jettison/api"
	"jettison/cri"
	"jettison/internal/node/nodetest"
	"jettison/stats"
	"jettison/stats/read"
)

// last is the newest record that readers see.
func (f *fixture) last() *api.Record {
	f.t.Helper()
	all := f.o.Keeper.Recent()
	if len(all) == 0 {
		f.t.Fatal("there is no record")
	}
	return all[len(all)-1]
}

// holding are the runtime's pods where the one that was evicted has these containers.
func holding(containers ...cri.Container) read.Index {
	l := cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: nodetest.UID, Namespace: "default", Name: "pod", Ready: true}}}
	for _, c := range containers {
		c.SandboxID, c.Name = "s", "c"
		l.Containers = append(l.Containers, c)
	}
	return read.NewIndex(l)
}

// Each step of an eviction is told when it is done: the choice, that no process is left, that the runtime has cleaned up, and the end.
// Then it is followed whether the pod comes back, over a restart, too.
func TestARecordTellsEachStep(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	f.keeping(dir)
	ctx, cancel := context.WithCancel(t.Context())
	f.soft(ctx)
	r := f.last()
	if r.Outcome != api.OutcomeRunning || r.StatusReason != "Evicted" || !r.Disruption || r.Over || r.Emptied.Known() ||
		r.Annotations["starved_resource"] != "memory" || r.Message == "" {
		t.Errorf("at the choice: %+v", r)
	}
	again := cri.Container{ID: "again", State: cri.Running, Running: true, CreatedAt: r.Began.Time.Add(time.Millisecond)}
	if f.OnPods(time.Now(), holding(again)); !f.last().Restarted.IsZero() {
		t.Errorf("what is started anew while it is being stopped ends with it: %+v", f.last())
	}
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	f.Populated(nodetest.Pod, false)
	f.take()
	if r = f.last(); !r.Emptied.Known() || r.Cleaned.Known() || r.Over {
		t.Errorf("no process is left: %+v", r)
	}
	f.take()
	if r = f.last(); !r.Cleaned.Known() || r.Over || r.Outcome != api.OutcomeRunning {
		t.Errorf("the runtime has cleaned up: %+v", r)
	}
	f.observe(time.Now(), 500)
	if r = f.last(); !r.Over || r.Outcome != api.OutcomeBack || !r.Cleaned.Known() {
		t.Errorf("at the end: %+v", r)
	}
	f.crash(cancel)

	began := r.Began.Time
	f.renew(softAndHard, nil)
	ctx, cancel = context.WithCancel(t.Context())
	f.resume(ctx, time.Now(), dir)
	old := cri.Container{ID: "old", State: cri.Running, Running: true, CreatedAt: began.Add(-time.Second)}
	f.OnPods(time.Now(), holding(old))
	f.OnPods(time.Now(), holding(old, cri.Container{ID: "never", State: cri.Exited, CreatedAt: began.Add(time.Second)}))
	if r = f.last(); !r.Restarted.IsZero() {
		t.Errorf("nothing of it has started: %+v", r)
	}
	at := began.Add(2 * time.Second)
	f.OnPods(time.Now(), holding(old, cri.Container{ID: "new", State: cri.Running, Running: true, CreatedAt: at}))
	if r = f.last(); !r.Restarted.Equal(at) || !r.Over {
		t.Errorf("it is back: %+v", r)
	}
	f.crash(cancel)
}

// A sandbox that the runtime did not end is not told as ended.
func TestACleanUpThatFailedIsNone(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.keeping(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	life := f.soft(ctx)
	f.OnEvent(time.Now(), Event{f.underway[life].job, cleaned, context.DeadlineExceeded})
	if r := f.last(); r.Cleaned.Known() {
		t.Errorf("%+v", r)
	}
	f.crash(cancel)
}

// Pods that were evicted are followed for an hour, and only so many.
func TestFollowedPodsAreBounded(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	now := time.Now()
	for i := range mostFollow + 3 {
		id := string(rune('A'+i/26)) + string(rune('a'+i%26))
		f.follow(&api.Record{ID: id, Pod: api.Victim{UID: id}, Began: stats.Stamp{Time: now}})
	}
	if len(f.returns) != mostFollow || f.returns["Aa"] != nil || f.returns["Cm"] == nil {
		t.Errorf("%d are followed", len(f.returns))
	}
	f.OnPods(now.Add(followFor), read.Index{})
	if len(f.returns) > 0 {
		t.Errorf("%d are still followed after an hour", len(f.returns))
	}
}
