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

// last returns the newest record that readers see.
func (f *fixture) last() *api.Record {
	f.t.Helper()
	all := f.o.Keeper.Recent()
	if len(all) == 0 {
		f.t.Fatal("the keeper has no record")
	}
	return all[len(all)-1]
}

// holding returns the runtime's pods, where the evicted one has these containers.
func holding(containers ...cri.Container) read.Index {
	l := cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: nodetest.UID, Namespace: "default", Name: "pod", Ready: true}}}
	for _, c := range containers {
		c.SandboxID, c.Name = "s", "c"
		l.Containers = append(l.Containers, c)
	}
	return read.NewIndex(l)
}

// The record is updated after each step of an eviction: the choice, the end of the last process,
// the clean-up, the outcome. Then the pod is watched for a return, also after a restart.
func TestRecordOfEachStep(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	f.keeping(dir)
	ctx, cancel := context.WithCancel(t.Context())
	f.soft(ctx)
	r := f.last()
	if r.Outcome != api.OutcomeRunning || r.StatusReason != "Evicted" || !r.Disruption || r.Complete || r.Emptied.Known() ||
		r.Annotations["starved_resource"] != "memory" || r.Message == "" {
		t.Errorf("record at the choice: %+v", r)
	}
	again := cri.Container{ID: "again", State: cri.Running, Running: true, CreatedAt: r.Began.Time.Add(time.Millisecond)}
	if f.OnPods(time.Now(), holding(again)); !f.last().Restarted.IsZero() {
		t.Errorf("a container started during the stop counts as a return: %+v", f.last())
	}
	f.Runtime.Change(func() { f.Runtime.Hang = nil })
	f.Populated(nodetest.Pod, false)
	f.take()
	if r = f.last(); !r.Emptied.Known() || r.Cleaned.Known() || r.Complete {
		t.Errorf("record when no process is left: %+v", r)
	}
	f.take()
	if r = f.last(); !r.Cleaned.Known() || r.Complete || r.Outcome != api.OutcomeRunning {
		t.Errorf("record after the clean-up: %+v", r)
	}
	f.observe(time.Now(), 500)
	if r = f.last(); !r.Complete || r.Outcome != api.OutcomeBack || !r.Cleaned.Known() {
		t.Errorf("record at the end: %+v", r)
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
		t.Errorf("record before a container started: %+v", r)
	}
	at := began.Add(2 * time.Second)
	f.OnPods(time.Now(), holding(old, cri.Container{ID: "new", State: cri.Running, Running: true, CreatedAt: at}))
	if r = f.last(); !r.Restarted.Equal(at) || !r.Complete {
		t.Errorf("record after the pod came back: %+v", r)
	}
	f.crash(cancel)
}

// A failed clean-up is not recorded as done.
func TestFailedCleanUpIsNotRecorded(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	f.keeping(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	life := f.soft(ctx)
	f.OnEvent(time.Now(), Event{f.inProgress[life].job, cleaned, context.DeadlineExceeded})
	if r := f.last(); r.Cleaned.Known() {
		t.Errorf("record after a failed clean-up: %+v", r)
	}
	f.crash(cancel)
}

// Evicted pods are watched for an hour, and only a limited number.
func TestWatchedPodsAreBounded(t *testing.T) {
	f := newFixture(t, softAndHard, nil)
	now := time.Now()
	for i := range maxWatched + 3 {
		id := string(rune('A'+i/26)) + string(rune('a'+i%26))
		f.watch(&api.Record{ID: id, Pod: api.Victim{UID: id}, Began: stats.Stamp{Time: now}})
	}
	if len(f.watched) != maxWatched || f.watched["Aa"] != nil || f.watched["Cm"] == nil {
		t.Errorf("%d pods are watched, want %d", len(f.watched), maxWatched)
	}
	f.OnPods(now.Add(watchPeriod), read.Index{})
	if len(f.watched) > 0 {
		t.Errorf("%d pods are still watched after an hour", len(f.watched))
	}
}
