package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// preempt evicts a pod of the node for a critical one.
func (w *testNode) preempt(p *stats.PodStats) *Life {
	return w.m.Begin(Stamp{Time: w.now}, Preempted(p, w.objects[p.PodRef.UID], "Preempting", "for a critical pod"), Met{})
}

// step makes a look at all pods that much later, without carrying it out.
func (w *testNode) step(later time.Duration) Decision {
	w.now = w.now.Add(later)
	w.node.Memory.Time = w.now
	return w.m.Step(w.now, Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}, Pods: w.objects, MemoryOnly: true})
}

// A pod that should not run on the node is also evicted, and the eviction continues after a restart
// of the agent.
func TestDescheduledPodsArePlanned(t *testing.T) {
	pod := &stats.PodStats{PodRef: stats.PodReference{UID: "u", Namespace: "default", Name: "p"}, SandboxIDs: []string{"s"}, Announced: true}
	e := Descheduled(pod, nil, "m")
	if !e.Planned() || e.GracePeriodSeconds != 30 || e.Reason != "Descheduled" || e.Message != "m" || e.Urgent() || e.Disk() || e.Local() {
		t.Errorf("descheduled eviction = %+v, want a planned one with a grace period of 30 s", e)
	}
	saved := saveEviction(&e)
	if restored, err := saved.Eviction(); err != nil || !restored.Planned() || restored.Signal != SignalDescheduled || restored.GracePeriodSeconds != 30 {
		t.Errorf("restored eviction = %+v, error %v, want the saved one", restored, err)
	}
}

// A preempted pod has its own grace period, however long, and at least a second.
func TestPreemptedPodsHaveTheirOwnGracePeriod(t *testing.T) {
	pod := &stats.PodStats{PodRef: stats.PodReference{UID: "u", Namespace: "default", Name: "p"}, Announced: true}
	for own, want := range map[int64]int64{0: 1, -5: 1, 1: 1, 7: 7, 3600: 3600, 1 << 40: maxSavedGrace} {
		object := NewPod(&v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &own}})
		if e := Preempted(pod, object, "r", "m"); e.GracePeriodSeconds != want || e.Reason != "r" || e.Message != "m" || !e.Disruption {
			t.Errorf("preempted pod with a grace period of %d s: %+v, want %d s", own, e, want)
		}
	}
	if e := Preempted(pod, nil, "r", "m"); e.GracePeriodSeconds != 30 || !e.Planned() || e.Urgent() || e.Disk() || e.Local() {
		t.Errorf("preempted pod without an object: %+v, want a grace period of 30 s", e)
	}
	one, other := int64(1), NewPod(&v1.Pod{Spec: v1.PodSpec{}})
	other.Ref.Name, other.terminationGrace = "another", stats.Some(one)
	if e := Preempted(pod, other, "r", "m"); e.GracePeriodSeconds != 30 || e.Pod.PodRef.Name != "p" {
		t.Errorf("preempted pod with another pod's object: %+v, want it ignored", e)
	}
}

// Its room is free once no process is left, nor its shared memory, as long as that may return.
func TestRoomOfPreemptedPod(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.addPod("plain", 400, 0, 1)
	w.addPod("files", 400, 0, 1).Memory.ShmemBytes = stats.Some(uint64(300 << 20))
	w.addPod("stuck", 400, 0, 1)
	w.setShmem(300)
	w.look(time.Second)
	plain, files, stuck := w.preempt(&w.pods[0]), w.preempt(&w.pods[1]), w.preempt(&w.pods[2])
	check := func(what string, l *Life, back, over bool, outcome Outcome) {
		t.Helper()
		w.look(10 * time.Millisecond)
		if b, o := l.RoomState(w.now); b != back || o != over || l.Outcome() != outcome {
			t.Errorf("%s: free %v, over %v, outcome %q, want %v, %v, %q", what, b, o, l.Outcome(), back, over, outcome)
		}
	}
	check("it is being stopped", plain, false, false, OutcomeUnknown)
	w.reportDead(plain)
	w.reportDead(files)
	w.m.MarkUndying(w.now, stuck)
	check("dead", plain, true, true, OutcomeBack)
	check("dead, its files are not unmounted", files, false, false, OutcomeUnknown)
	check("it does not die", stuck, false, true, OutcomeUndying)
	w.setShmem(0)
	check("its files are unmounted", files, true, true, OutcomeBack)
	w.reportDead(stuck)
	check("it died late", stuck, true, true, OutcomeBack)
}

// Files that are never unmounted are not waited for forever, and do not make the kill fail.
func TestRoomWithFilesThatStay(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.addPod("files", 400, 0, 1).Memory.ShmemBytes = stats.Some(uint64(300 << 20))
	w.setShmem(300)
	w.look(time.Second)
	l := w.preempt(&w.pods[0])
	w.reportDead(l)
	w.look(sharedLimit - time.Second)
	if back, over := l.RoomState(w.now); back || over {
		t.Fatalf("room before sharedLimit: free %v, over %v, want false, false", back, over)
	}
	w.look(time.Second)
	if back, over := l.RoomState(w.now); !back || !over || l.Outcome() != OutcomeBack {
		t.Errorf("room after sharedLimit: free %v, over %v, outcome %q, want true, true, back", back, over, l.Outcome())
	}
}

// A superseded eviction is over; so is one whose pod was recreated under its UID.
func TestRoomOfSupersededEviction(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.addPod("a", 400, 0, 1)
	w.addPod("b", 400, 0, 1)
	w.look(time.Second)
	first, second := w.preempt(&w.pods[0]), w.preempt(&w.pods[1])
	w.preempt(&w.pods[0])
	if back, over := first.RoomState(w.now); back || !over {
		t.Errorf("room of a superseded eviction: free %v, over %v, want false, true", back, over)
	}
	w.pods[1].SandboxIDs = []string{"another"}
	w.step(time.Second)
	if back, over := second.RoomState(w.now); !back || !over {
		t.Errorf("room of a recreated pod: free %v, over %v, want true, true", back, over)
	}
}

// A preempted pod in its grace period is killed immediately for a hard threshold. A soft threshold
// evicts no other pod while that pod explains the shortage.
func TestPreemptedPodsAndThresholds(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi", "soft memory.available 500Mi", "grace memory.available 1s")
	w.addPod("going", 450, 0, 1)
	w.addPod("innocent", 300, 0, 1)
	w.look(time.Second)
	l := w.preempt(&w.pods[0])
	w.setLeft(stats.SignalMemoryAvailable, 400)
	w.step(time.Second)
	if d := w.step(2 * time.Second); len(d.Evictions) > 0 || d.Reason != "eviction of pod going in progress" {
		t.Errorf("soft threshold: evictions %+v, want a wait for the preempted pod: %s", d.Evictions, d.Reason)
	}
	w.setLeft(stats.SignalMemoryAvailable, 50)
	d := w.step(time.Second)
	if len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != "going" || !d.Evictions[0].CutsGracePeriod {
		t.Fatalf("hard threshold: evictions %+v, want the preempted pod hastened: %s", d.Evictions, d.Reason)
	}
	w.m.Hasten(Stamp{Time: w.now}, l, d.Evictions[0], d.Signal)
	w.m.Emptied(Stamp{Time: w.now}, l)
	if back, over := l.RoomState(w.now); !back || !over {
		t.Errorf("room of the hastened pod: free %v, over %v, want true, true", back, over)
	}
}

// A preempted pod with a grace period of an hour delays a soft threshold no longer than a pod
// evicted for a threshold would: after that another pod is evicted. Its expected return does not
// count together with others' returns.
func TestNobodyWaitsAnHourForAPreemptedPod(t *testing.T) {
	for grace, longest := range map[int64]time.Duration{0: time.Second + DieLimit, 60: time.Minute + DieLimit} {
		w := newTestNode(t, "hard memory.available 100Mi", "soft memory.available 500Mi", "grace memory.available 1s")
		w.m.config.MaxPodGracePeriodSeconds = grace
		own := int64(3600)
		w.addPod("going", 450, 0, 1)
		w.addPod("innocent", 300, 0, 1)
		w.objects = map[string]*Pod{"going": NewPod(&v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &own}})}
		w.look(time.Second)
		l := w.preempt(&w.pods[0])
		w.setLeft(stats.SignalMemoryAvailable, 400)
		w.step(time.Second)
		if d := w.step(longest - time.Second - 1); len(d.Evictions) > 0 || d.Reason != "eviction of pod going in progress" {
			t.Errorf("grace period %v: evictions %+v, want a wait for the preempted pod: %s", grace, d.Evictions, d.Reason)
		}
		soft := slices.IndexFunc(w.m.watch.all, func(w watched) bool { return w.Grace > 0 })
		if w.m.evictions.expectedTotal(w.now, &w.m.watch.all[soft], w.m.watch.all) == 0 {
			t.Error("expected return of the preempted pod does not count, want it counted")
		}
		d := w.step(1)
		if len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != "going" || !d.Evictions[0].CutsGracePeriod || l.Phase() != Stopping {
			t.Errorf("grace period %v: evictions %+v, want the preempted pod hastened: %s", grace, d.Evictions, d.Reason)
		}
		if w.m.evictions.expectedTotal(w.now, &w.m.watch.all[soft], w.m.watch.all) > 0 {
			t.Error("expected return of a lingering pod counts, want it ignored")
		}
	}
}

// A preempted pod that takes what is returned is killed for a soft threshold after the time that
// this would wait for it, and no other pod is evicted in its place. While it is being killed
// nothing else happens to it.
func TestSoftThresholdKillsLingeringPreemptedPod(t *testing.T) {
	for _, soft := range []string{"memory.available 500Mi", "swap.available 500Mi", "pid.available 500"} {
		signal, _, _ := strings.Cut(soft, " ")
		w := newTestNode(t, "soft "+soft, "grace "+signal+" 1s")
		w.m.config.MaxPodGracePeriodSeconds = 30
		own, high := int64(3600), int32(100) // others would be ranked before it
		w.addPod("hog", 4000, 4000, 4000)
		w.objects = map[string]*Pod{"hog": NewPod(&v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &own, Priority: &high}})}
		for _, uid := range []string{"a", "b"} {
			w.addPod(uid, 50, 50, 50)
		}
		w.look(time.Second)
		hog := w.preempt(&w.pods[0])
		for hog.Phase() == Stopping && w.now.Sub(hog.began.Time) < 2*time.Minute {
			w.setLeft(stats.Signal(signal), 400)
			if evicted := w.look(time.Second); evicted != nil && (evicted != hog || w.now.Sub(hog.began.Time) < 40*time.Second) {
				t.Fatalf("%s: %s is evicted after %v, want hog after at least 40s", signal, evicted.e.Pod.PodRef.UID, w.now.Sub(hog.began.Time))
			}
		}
		for range 5 {
			w.setLeft(stats.Signal(signal), 400)
			w.wantVictim(w.look(time.Second), "")
		}
		if hog.Phase() != Killed {
			t.Errorf("%s: phase of the preempted hog = %v, want killed", signal, hog.Phase())
		}
	}
}

// Nothing waits for an unknown amount, as when its tasks were not counted.
func TestUnknownReturnsOfPreemptedPod(t *testing.T) {
	w := newTestNode(t, "soft pid.available 500", "grace pid.available 1s")
	w.m.config.MaxPodGracePeriodSeconds = 0
	own := int64(3600)
	w.addPod("going", 1, 0, 0).Threads = stats.Opt[uint64]{}
	w.addPod("innocent", 1, 0, 300)
	w.objects = map[string]*Pod{"going": NewPod(&v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &own}})}
	w.look(time.Second)
	w.preempt(&w.pods[0])
	w.setLeft(stats.SignalPIDAvailable, 400)
	for _, c := range []struct {
		later time.Duration
		want  int
	}{{time.Second, 0}, {DieLimit - time.Second, 0}, {time.Second, 1}} {
		w.node.PIDs.Time = w.now.Add(c.later)
		if d := w.step(c.later); len(d.Evictions) != c.want {
			t.Errorf("at %v: evictions %+v, want %d: %s", w.now.Sub(epoch), d.Evictions, c.want, d.Reason)
		}
	}
}

// No hard threshold waits for a preempted pod in its grace period, whatever it would return: the
// first look kills the best victim, which may be that pod, and its life continues as an eviction
// for the threshold.
func TestPreemptedPodDelaysNoHardThreshold(t *testing.T) {
	for _, s := range []stats.Signal{
		stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable, stats.SignalSwapAvailable, stats.SignalPIDAvailable, stats.SignalNodeFsAvailable,
	} {
		for want, of := range map[string][2]uint64{"going": {800, 100}, "leaker": {100, 800}} {
			w := newTestNode(t, "hard memory.available 1000Mi", "hard swap.available 1000Mi", "hard pid.available 1000", "enforce pods",
				"hard allocatableMemory.available 1000Mi", "hard nodefs.available 1000Mi")
			for i, uid := range []string{"going", "leaker"} {
				container(w.addPod(uid, of[i], of[i], of[i])).Rootfs = stats.Some(stats.FsUsage{UsedBytes: of[i] << 20})
			}
			w.wantVictim(w.look(time.Second), "")
			l := w.preempt(&w.pods[0])
			w.setLeft(s, 900)
			evicted := w.look(time.Second)
			w.wantVictim(evicted, want)
			if hastened := want == "going"; (evicted == l) != hastened || l.hasGracePeriod() == hastened || l.e.Planned() == hastened {
				t.Errorf("%s: preempted pod now for %s, in its grace period %v, want hastened %v", s, l.e.Signal, l.hasGracePeriod(), hastened)
			}
		}
	}
}

// Page cache that a victim leaves would count as used when the critical pod starts, and cost the
// next pod its life.
func TestPageCacheOfPreemptedPodsIsDropped(t *testing.T) {
	if e := Preempted(&stats.PodStats{}, nil, "r", "m"); !e.PageCacheMatters() {
		t.Error("TakesMemory of a preempted pod = false, want true")
	}
	for k, want := range map[kind]bool{kindMemory: true, kindSwap: true, kindBytes: true, kindMemoryPressure: true, kindPID: false, kindIOPressure: false} {
		if e := (Eviction{kind: k}); e.PageCacheMatters() != want {
			t.Errorf("TakesMemory for %v = %v, want %v", kindNames[k], !want, want)
		}
	}
}

// A hard threshold waits a moment for the page cache of a dead victim if that ends the shortage,
// and no longer than dropping it takes.
func TestThresholdWaitsForPageCacheOfPreemptedPod(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		w := newTestNode(t, "hard memory.available 100Mi")
		p := w.addPod("going", 10, 0, 1)
		p.Memory.WorkingSetBytes = stats.Some(uint64(300 << 20))
		w.addPod("innocent", 300, 0, 1)
		w.look(time.Second)
		l := w.preempt(&w.pods[0])
		w.reportDead(l)
		w.pods = w.pods[1:]
		if dropped {
			w.m.CacheDropped(l)
		}
		w.setLeft(stats.SignalMemoryAvailable, 50)
		if d := w.step(time.Millisecond); (len(d.Evictions) > 0) != dropped {
			t.Errorf("page cache dropped %v: evictions %+v, want one only if dropped: %s", dropped, d.Evictions, d.Reason)
		}
		w.setLeft(stats.SignalMemoryAvailable, 50)
		if d := w.step(settleLimit); !dropped && len(d.Evictions) != 1 {
			t.Errorf("no eviction after settleLimit, want one: %s", d.Reason)
		}
	}
}

// The breaker does not count evictions without a shortage.
func TestBreakerIgnoresPreemption(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.m.config.Breaker = true
	for _, uid := range []string{"a", "b", "c", "d"} {
		w.addPod(uid, 10, 0, 1)
	}
	w.setLeft(stats.SignalMemoryAvailable, 50)
	for i := range w.pods {
		l := w.preempt(&w.pods[i])
		w.m.Killed(Stamp{Time: w.now}, l) // a hard threshold may do so
		w.reportDead(l)
		w.m.Cleaned(Stamp{Time: w.now}, l)
		w.now = w.now.Add(settleLimit)
		w.m.settle(w.now, &stats.Summary{Node: w.node, Pods: w.pods})
	}
	if w.m.breakers.anyOpen() || len(w.m.breakers.byThreshold) > 0 || len(w.m.evictions.lives) > 0 && !w.m.evictions.lives[0].settled {
		t.Errorf("breakers %+v, %d evictions, want none open and the eviction settled", w.m.breakers.byThreshold, len(w.m.evictions.lives))
	}
}

// A restored eviction equals the saved one: its grace period is its own, whatever the maximum for
// thresholds.
func TestPreemptedPodsOutliveARestart(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.m.config.MaxPodGracePeriodSeconds = 5
	grace := int64(600)
	p := w.addPod("a", 400, 0, 1)
	w.objects = map[string]*Pod{"a": NewPod(&v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace}})}
	w.look(time.Second)
	l := w.preempt(p)
	l.Record = "r"
	next := NewManager(*w.m.config)
	if dropped := next.Resume(w.now, throughFile(t, w.m.Save())); len(dropped) > 0 {
		t.Fatalf("Resume dropped %v, want nothing", dropped)
	}
	restored := next.Life("a")
	if restored == nil {
		t.Fatal("preempted pod has no eviction after a restart")
	}
	if e := restored.Eviction(); !e.Planned() || e.kind != kindRoom || e.Hard() || e.GracePeriodSeconds != grace || !restored.Deadline().Equal(l.Deadline()) ||
		e.Reason != "Preempting" || !restored.hasGracePeriod() || restored.Record != "r" {
		t.Errorf("restored eviction %+v until %v, want the saved one", e, restored.Deadline())
	}
	saved := SavedEviction{Signal: SignalPreempted, Hard: true, GracePeriodSeconds: 7, Pod: SavedPod{UID: "u", SandboxIDs: []string{"s"}}}
	if e, err := saved.Eviction(); err != nil || e.Hard() || e.GracePeriodSeconds != 7 {
		t.Errorf("eviction saved as hard = %+v, error %v, want a planned one of 7 s", e, err)
	}
}

// The protections from evictions also apply to preemption, except for the pod's own priority, which
// is compared.
func TestSparedFromPreemption(t *testing.T) {
	policy := Policy{AnnotationNamespaces: []string{"kube-system"}, ProtectedNamespaces: []string{"kube-system"}}
	critical, ordinary := int32(systemCriticalPriority), int32(5)
	object := func(change func(*v1.Pod)) *Pod {
		p := &v1.Pod{}
		p.Namespace, p.Name = "kube-system", "p"
		change(p)
		return NewPod(p)
	}
	priority := func(v *int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = v } }
	for name, test := range map[string]struct {
		change func(*stats.PodStats)
		object *Pod
		want   string
	}{
		"ordinary":                {object: object(priority(&ordinary))},
		"critical":                {object: object(priority(&critical))},
		"critical by class, too":  {object: object(func(p *v1.Pod) { priority(&critical)(p); p.Spec.PriorityClassName = "system-node-critical" })},
		"critical by class alone": {object: object(func(p *v1.Pod) { p.Spec.PriorityClassName = "system-node-critical" })},
		"critical, never": {object: object(func(p *v1.Pod) {
			priority(&critical)(p)
			p.Annotations = map[string]string{annotationNeverEvict: "true"}
		}), want: "annotated jettison/never-evict"},
		"unknown":                   {want: "namespace kube-system is protected and the pod's priority is unknown"},
		"another's object":          {object: object(func(p *v1.Pod) { priority(&critical)(p); p.Name = "q" }), want: "namespace kube-system is protected and the pod's priority is unknown"},
		"the agent, critical":       {change: func(p *stats.PodStats) { p.Self = true }, object: object(priority(&critical)), want: "the agent runs in this pod"},
		"a critical mirror":         {change: func(p *stats.PodStats) { p.Annotations = map[string]string{annotationConfigMirror: "x"} }, object: object(priority(&critical)), want: "mirror pod"},
		"-997, critical priority":   {change: func(p *stats.PodStats) { p.NodeCritical = true }, object: object(priority(&critical))},
		"-997, of unknown priority": {change: func(p *stats.PodStats) { p.NodeCritical = true }, want: "critical pod (oom_score_adj -997)"},
	} {
		pod := &stats.PodStats{PodRef: stats.PodReference{UID: "u", Namespace: "kube-system", Name: "p"}, Announced: true}
		if test.change != nil {
			test.change(pod)
		}
		if got := policy.PreemptionProtected(pod, test.object); got != test.want {
			t.Errorf("Spares, %s: %q, want %q", name, got, test.want)
		}
	}
}
