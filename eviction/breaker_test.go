package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// setPodTotal sets the current memory use of all pods, in MiB.
func (w *testNode) setPodTotal(memory uint64) {
	w.node.Pods = stats.PodsTotal{Time: w.now, WorkingSetBytes: stats.Some(memory << 20)}
}

// leak kills one pod after the other while memory falls. leakRate is in MiB per second, in total
// and in the pods. It returns the victims, until no pod is evicted for five seconds.
func (w *testNode) leak(left, pods uint64, a leakRate) (evicted []string) {
	for quiet := 0; quiet < 5 && left > 0; {
		left, pods = left-min(left, a.fall), pods+a.pods
		w.setLeft(stats.SignalMemoryAvailable, left)
		w.now = w.now.Add(time.Second)
		w.setPodTotal(pods)
		quiet++
		if l := w.look(0); l != nil {
			quiet, evicted = 0, append(evicted, l.e.Pod.PodRef.UID)
			left, pods = left+l.e.Returns>>20, pods-l.e.Returns>>20
			w.reportDead(l)
			w.m.Cleaned(Stamp{Time: w.now}, l)
			w.pods = slices.DeleteFunc(w.pods, func(p stats.PodStats) bool { return p.PodRef.UID == l.e.Pod.PodRef.UID })
			w.setLeft(stats.SignalMemoryAvailable, left)
			w.setPodTotal(pods)
		}
	}
	return evicted
}

// leakRate is the change per second.
type leakRate struct{ fall, pods uint64 }

func breakerNode(t *testing.T, lines ...string) *testNode {
	w := newTestNode(t, lines...)
	w.m.config.Breaker = true
	for i := range 8 {
		w.addPod(fmt.Sprint(i), 20, 0, 1)
	}
	return w
}

// The first reason of an open breaker names the cgroup that grows, because that is the one logged.
func TestBreakerNamesGrowingCgroup(t *testing.T) {
	w := breakerNode(t, "hard memory.available 1000Mi")
	w.totalsWithPods = true
	w.leak(1100, 500, leakRate{60, 0})
	first := slices.IndexFunc(w.reasons, func(reason string) bool { return strings.Contains(reason, "circuit breaker open") })
	if first < 0 {
		t.Fatalf("breaker did not open, reasons %q", w.reasons)
	}
	if reason := w.reasons[first]; !strings.Contains(reason, "system.slice grew by") {
		t.Errorf("reason of the open breaker = %q, want the growing cgroup named", reason)
	}
}

// Pods that leak together look like a leak outside of them, but the use of all pods grows: the
// breaker stays closed.
func TestTheBreakerIsForWhatGrowsOutsideThePods(t *testing.T) {
	for _, c := range []struct {
		name string
		of   leakRate
		want int
	}{
		{"in the pods", leakRate{60, 60}, 8},
		{"in the pods, mostly", leakRate{60, 45}, 8},
		{"outside", leakRate{60, 0}, breakerLimit},
		{"outside, mostly", leakRate{60, 10}, breakerLimit},
	} {
		w := breakerNode(t, "hard memory.available 1000Mi")
		w.setPodTotal(2000)
		w.look(time.Second)
		if evicted := w.leak(900, 2000, c.of); len(evicted) != c.want {
			t.Errorf("%s: victims %v, want %d: %s", c.name, evicted, c.want, w.reason)
		}
	}
}

// Futile evictions for a soft threshold do not count for a hard one.
func TestBreakerCountsPerThreshold(t *testing.T) {
	w := breakerNode(t, "hard memory.available 500Mi", "soft memory.available 2000Mi", "grace memory.available 1s")
	w.look(time.Second)
	if evicted := w.leak(1500, 2000, leakRate{60, 0}); len(evicted) != breakerLimit {
		t.Errorf("victims of the soft threshold %v, want 3: %s", evicted, w.reason)
	}
	if evicted := w.leak(490, 2000, leakRate{60, 0}); len(evicted) != breakerLimit {
		t.Errorf("victims of the hard threshold %v, want 3 more: %s", evicted, w.reason)
	}
}

// The open breaker allows the first pod of the ranking if it is new or has grown: once, and no pod
// that existed before.
func TestTheBreakerIsArmedAgain(t *testing.T) {
	stopped := func() *testNode {
		w := breakerNode(t, "hard memory.available 1000Mi")
		w.look(time.Second)
		if evicted := w.leak(900, 2000, leakRate{40, 0}); len(evicted) != breakerLimit || !strings.Contains(w.reason, "circuit breaker open") {
			t.Fatalf("victims %v, want %d and an open breaker: %s", evicted, breakerLimit, w.reason)
		}
		return w
	}
	w := stopped()
	w.addPod("new", 35, 0, 1)
	if evicted := w.leak(600, 2000, leakRate{40, 0}); !slices.Equal(evicted, []string{"new"}) {
		t.Errorf("victims of the open breaker %v, want the new pod: %s", evicted, w.reason)
	}
	w = stopped()
	grown := w.pods[2].PodRef.UID
	w.pods[2].Memory.WorkingSetBytes, w.pods[2].Memory.AnonBytes = stats.Some(uint64(200<<20)), stats.Some(uint64(200<<20))
	if evicted := w.leak(600, 2000, leakRate{40, 0}); len(evicted) == 0 || evicted[0] != grown {
		t.Errorf("victims of the open breaker %v, want %s, which has grown: %s", evicted, grown, w.reason)
	}
	w = stopped()
	w.pods[2].Memory.WorkingSetBytes = stats.Some(uint64(21 << 20)) // too little to count
	if evicted := w.leak(600, 2000, leakRate{40, 0}); len(evicted) != 0 {
		t.Errorf("victims of the open breaker %v, want none: %s", evicted, w.reason)
	}
	// also after a restart
	saved, restored := throughFile(t, w.m.Save()), managerOf(t, 0, "own x", "hard memory.available 1000Mi")
	restored.config.Replay, restored.config.Breaker = false, true
	if dropped := restored.Resume(w.now, saved); len(dropped) > 0 {
		t.Fatalf("Resume dropped %v, want nothing", dropped)
	}
	w.m = restored
	if evicted := w.leak(600, 2000, leakRate{40, 0}); len(evicted) != 0 {
		t.Errorf("victims after a restart %v, want none: %s", evicted, w.reason)
	}
	w.addPod("new", 35, 0, 1)
	if evicted := w.leak(600, 2000, leakRate{40, 0}); !slices.Equal(evicted, []string{"new"}) {
		t.Errorf("victims after a restart %v, want the new pod: %s", evicted, w.reason)
	}
}

// A protected static pod leaks. Its memory counts in the cgroup of all pods, but evicting other
// pods does not help.
func TestTheBreakerStopsForAPodThatMayNotGo(t *testing.T) {
	for _, quick := range []bool{false, true} { // memory.current includes page cache
		w := newTestNode(t, "hard memory.available 1000Mi")
		w.m.config.Breaker = true
		w.addPod("static", 2000, 0, 1).Annotations = map[string]string{annotationConfigSource: "file"}
		for i := range 40 {
			w.addPod(fmt.Sprint("i", i), 20, 0, 1)
		}
		left, pods, leaker := uint64(990), uint64(2800), uint64(2000)
		var evicted []string
		for range 60 {
			left, pods, leaker = left-12, pods+12, leaker+12
			w.setLeft(stats.SignalMemoryAvailable, left)
			m := &w.pods[0].Memory
			m.WorkingSetBytes, m.AnonBytes = stats.Some(leaker<<20), stats.Some(leaker<<20)
			if m.Quick = quick; quick {
				m.UsageBytes = stats.Some((leaker + 700) << 20)
				m.WorkingSetBytes = m.UsageBytes
			}
			w.now = w.now.Add(time.Second)
			w.setPodTotal(pods)
			if l := w.look(0); l != nil {
				evicted = append(evicted, l.e.Pod.PodRef.UID)
				w.reportDead(l)
				w.m.Cleaned(Stamp{Time: w.now}, l)
				leaker += 20 // it has already taken what was returned
			}
		}
		if len(evicted) != breakerLimit || slices.Contains(evicted, "static") {
			t.Errorf("quick %v: %d victims, want %d without the static pod: %v, %s", quick, len(evicted), breakerLimit, evicted, w.reason)
		}
	}
}

// A static pod that only reads files grows by page cache, which is no leak: other pods that leak
// are still evicted.
func TestPageCacheOfProtectedPodIsNoLeak(t *testing.T) {
	w := newTestNode(t, "hard memory.available 1000Mi")
	w.m.config.Breaker = true
	static := w.addPod("static", 100, 0, 1)
	static.Annotations = map[string]string{annotationConfigSource: "file"}
	for i := range 8 {
		w.addPod(fmt.Sprint("i", i), 20, 0, 1)
	}
	left, pods, evicted, back := uint64(990), uint64(2800), 0, uint64(0)
	for i := range uint64(60) {
		living := slices.DeleteFunc(slices.Clone(w.pods[1:]), func(p stats.PodStats) bool { return !p.Populated.V })
		left, pods = left-8, pods+8
		w.setLeft(stats.SignalMemoryAvailable, left)
		w.pods[0].Memory.UsageBytes, w.pods[0].Memory.Quick = stats.Some((100+80*i)<<20), true
		for j := range w.pods[1:] { // they leak together, and also take what a victim returned
			m := &w.pods[1+j].Memory
			m.WorkingSetBytes.V += ((8 + back) << 20) / uint64(max(len(living), 1))
			m.AnonBytes, m.UsageBytes = m.WorkingSetBytes, m.WorkingSetBytes
		}
		back = 0
		w.now = w.now.Add(time.Second)
		w.setPodTotal(pods)
		if l := w.look(0); l != nil {
			evicted, back = evicted+1, l.e.Returns>>20
			w.reportDead(l)
			w.m.Cleaned(Stamp{Time: w.now}, l)
		}
	}
	if evicted != 8 {
		t.Errorf("%d victims, want all 8: %s", evicted, w.reason)
	}
}

// evictRecreated lets something outside of pods take the memory for ten minutes, with everything
// that victims return, while a controller recreates a pod five seconds after each eviction. It
// returns the number of evictions.
func evictRecreated(w *testNode, name func(n int) string) (evicted int) {
	w.addPod(name(0), 50, 0, 1)
	from := w.now
	turn := func(pods uint64) *Life {
		w.setLeft(stats.SignalMemoryAvailable, 90)
		w.now = w.now.Add(time.Second)
		w.setPodTotal(3000 + pods)
		return w.look(0)
	}
	for w.now.Sub(from) < 10*time.Minute {
		l := turn(50)
		if l == nil {
			continue
		}
		evicted++
		w.reportDead(l)
		w.m.Cleaned(Stamp{Time: w.now}, l)
		p := w.pods[0]
		w.pods = w.pods[:0]
		for range 5 {
			w.wantVictim(turn(0), "")
		}
		p.PodRef.UID, p.PodRef.Name = fmt.Sprint("uid-", evicted), name(evicted)
		p.Populated, p.SandboxIDs, p.StartTime = stats.Some(true), []string{p.PodRef.UID}, w.now
		w.pods = append(w.pods, p)
	}
	return evicted
}

// A pod that is recreated after each eviction, with another UID, is not new to the breaker: no pod
// is evicted after the three. The same holds after a restart of the agent.
func TestBreakerRecognizesRecreatedPods(t *testing.T) {
	for what, name := range map[string]func(int) string{
		"a DaemonSet's":   func(n int) string { return []string{"ds-4bz8x", "ds-c2v9w", "ds-kk5ld", "ds-zw7tq"}[n%4] },
		"a StatefulSet's": func(int) string { return "web-0" },
		"a Job's":         func(n int) string { return fmt.Sprint("job-", n) },
	} {
		w := newTestNode(t, "hard memory.available 100Mi")
		w.m.config.Breaker = true
		if evicted := evictRecreated(w, name); evicted != breakerLimit {
			t.Errorf("%s: %d victims in ten minutes, want %d: %s", what, evicted, breakerLimit, w.reason)
		}
		restored := managerOf(t, 0, "own x", "hard memory.available 100Mi")
		restored.config.Replay, restored.config.Breaker = false, true
		if dropped := restored.Resume(w.now, throughFile(t, w.m.Save())); len(dropped) > 0 {
			t.Fatalf("Resume dropped %v, want nothing", dropped)
		}
		w.m = restored
		w.pods = w.pods[:0]
		if evicted := evictRecreated(w, name); evicted != 0 {
			t.Errorf("%s: %d victims after a restart, want 0: %s", what, evicted, w.reason)
		}
	}
}

// A pod of an unknown workload is evicted as a trial, with growing delays: 30 s, 1, 2, 4, 5 min. A
// pod that is really new gets its turn within five minutes.
func TestWhoIsNewIsTriedEverLater(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.m.config.Breaker = true
	if evicted := evictRecreated(w, func(n int) string { return fmt.Sprintf("pod%d", n) }); evicted != breakerLimit+5 {
		t.Errorf("%d victims in ten minutes, want %d: %s", evicted, breakerLimit+5, w.reason)
	}
	at := w.now
	w.pods = w.pods[:0]
	w.addPod("leaker", 60, 0, 1)
	for w.look(time.Second) == nil {
		if w.setLeft(stats.SignalMemoryAvailable, 90); w.now.Sub(at) > trialDelayMax {
			t.Fatalf("new pod not evicted within %v: %s", trialDelayMax, w.reason)
		}
	}
	saved := w.m.Save()
	saved.Breaker[0].Until = w.now.Add(time.Hour)
	restored := managerOf(t, 0, "hard memory.available 100Mi")
	if dropped := restored.Resume(w.now, saved); len(dropped) != 1 || restored.breakers.byThreshold[breakerKey{"memory.available", true}].nextTrial.Sub(w.now) > trialDelayMax {
		t.Errorf("Resume dropped %v, breakers %+v, want one dropped and a next trial within %v", dropped, restored.breakers.byThreshold, trialDelayMax)
	}
}

// A pod that the breaker allows counts as a trial only when its eviction begins: a wait for an
// eviction in progress costs no other pod its life.
func TestBreakerTrialCountsAtBegin(t *testing.T) {
	w := breakerNode(t, "hard memory.available 1000Mi")
	w.look(time.Second)
	w.leak(900, 2000, leakRate{40, 0})
	w.addPod("new", 35, 0, 1)
	in := Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}, MemoryOnly: true}
	for range 3 { // it is chosen, and cannot be pinned
		w.now = w.now.Add(time.Second)
		in.Summary.Node.Memory.Time = w.now
		if d := w.m.Step(w.now, in); len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != "new" {
			t.Fatalf("evictions = %v, want the new pod: %s", d.Evictions, d.Reason)
		}
	}
	in.Summary.Pods = w.pods[:len(w.pods)-1] // it ended by itself
	w.now = w.now.Add(time.Second)
	in.Summary.Node.Memory.Time = w.now
	if d := w.m.Step(w.now, in); len(d.Evictions) != 0 {
		t.Errorf("%s is evicted instead of the new pod, want no eviction", d.Evictions[0].Pod.PodRef.UID)
	}
}

// The breaker opens in a quick look, in which 2900 MiB of a pod's 3000 MiB are page cache. They are
// not stored as its usage: the next look reads the pod in full, and if that fails the pod counts as
// new.
func TestBreakerStoresNoPageCache(t *testing.T) {
	for _, read := range []bool{true, false} {
		w := breakerNode(t, "hard memory.available 1000Mi")
		w.look(time.Second)
		cached := w.addPod("cached", 3000, 0, 1)
		cached.Memory.Quick, cached.QOSClass = true, stats.Burstable
		for i := range w.pods[:8] { // others are first in the ranking
			w.pods[i].Memory.WorkingSetBytes = stats.Some(uint64(3001+i) << 20)
		}
		w.leak(900, 2000, leakRate{40, 0})
		at := len(w.pods) - 1
		b := w.m.breakers.byThreshold[w.m.watch.all[0].key()]
		if _, is := b.usageAtOpen["cached"]; is || b.futile != breakerLimit {
			t.Fatalf("breaker = %+v, want it open without usage of the pod cached", b)
		}
		if read {
			b.usageAtOpen, b.hasBounds = nil, false
			w.m.breakers.byThreshold[w.m.watch.all[0].key()] = b
			w.look(100 * time.Millisecond)
			in := Input{Summary: &stats.Summary{Node: w.node, Pods: w.pods}, MemoryOnly: true}
			if i := w.m.PodToRead(w.now, in); i != at {
				t.Fatalf("Unread = %d, want %d", i, at)
			}
		}
		w.pods[at].Memory.Quick = false
		use := func(mib uint64) {
			w.pods[at].Memory.WorkingSetBytes, w.pods[at].Memory.AnonBytes = stats.Some(mib<<20), stats.Some(mib<<20)
		}
		for i := range w.pods[:at] {
			w.pods[i].Memory.WorkingSetBytes = stats.Some(uint64(20) << 20)
		}
		if read {
			use(100)
			if l := w.look(time.Second); l != nil {
				t.Fatalf("%s is evicted, want no pod that existed before", l.e.Pod.PodRef.UID)
			}
		}
		use(1600)
		if evicted := w.leak(600, 2000, leakRate{40, 40}); len(evicted) == 0 || evicted[0] != "cached" {
			t.Errorf("read %v: victims %v, want cached first, which grew by 1500 MiB: %s", read, evicted, w.reason)
		}
	}
}

// Generated suffixes of names are removed.
func TestWorkloadOf(t *testing.T) {
	for name, want := range map[string]string{
		"ds-4bz8x": "a/ds", "web-7d9c5bf6d4-zw7tq": "a/web-7d9c5bf6d4", "web-0": "a/web", "team-x": "a/team-x", "api": "a/api", "-12": "a/-12", "a-": "a/a-",
		"my-apple": "a/my-apple", "": "",
	} {
		if got := workloadOf("a", name); got != want {
			t.Errorf("workloadOf(%q) = %q, want %q", name, got, want)
		}
	}
}
