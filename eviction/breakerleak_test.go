package eviction

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"jettison/stats"
)

// setPodMemory sets a pod's memory, in MiB.
func (w *testNode) setPodMemory(uid string, mib uint64, quick bool) {
	for i := range w.pods {
		if p := &w.pods[i]; p.PodRef.UID == uid {
			p.Memory.WorkingSetBytes, p.Memory.AnonBytes = stats.Some(mib<<20), stats.Some(mib<<20)
			if p.Memory.Quick = quick; quick {
				p.Memory.UsageBytes = stats.Some((mib + 900) << 20) // with page cache
				p.Memory.WorkingSetBytes = p.Memory.UsageBytes
			}
		}
	}
}

// openBreakerNode returns a node whose breaker opened because of a daemon, with small pods that are
// ranked before a larger one by its priority.
func openBreakerNode(t *testing.T) *testNode {
	w := newTestNode(t, "hard memory.available 1000Mi")
	w.m.config.Breaker = true
	for _, uid := range []string{"a", "b", "c", "d", "e"} {
		w.addPod(uid, 20, 0, 1)
	}
	leaker := w.addPod("leaker", 300, 0, 1)
	leaker.PodRef.Namespace, leaker.Annotations = "kube-system", map[string]string{annotationPriority: "100"}
	leaker.StartTime = epoch
	w.setPodTotal(2000)
	w.look(time.Second)
	if evicted := w.leak(900, 2000, leakRate{60, 0}); len(evicted) != breakerLimit || slices.Contains(evicted, "leaker") {
		t.Fatalf("victims %v, want %d without the leaker: %s", evicted, breakerLimit, w.reason)
	}
	return w
}

// leakForMinute changes memory for a minute after the breaker opened, in MiB per second: the
// available amount falls, and all pods and the leaker grow.
func (w *testNode) leakForMinute(fall, pods, leaker uint64, quick bool) (first *Life) {
	left, all, has := uint64(500), uint64(2000), uint64(300)
	for range 60 {
		left, all, has = left-min(left, fall), all+pods, has+leaker
		w.setPodMemory("leaker", has, quick)
		w.setLeft(stats.SignalMemoryAvailable, left)
		w.now = w.now.Add(time.Second)
		w.setPodTotal(all)
		if l := w.look(0); l != nil {
			return l
		}
	}
	return nil
}

// The breaker opened because of a daemon. A pod that leaks afterwards is evicted, although pods
// that never grow are ranked before it. Otherwise no pod would be, down to the last byte.
func TestBreakerAllowsLeakerBehindFirst(t *testing.T) {
	for _, c := range []struct {
		name               string
		fall, pods, leaker uint64
		want               string
	}{
		{"the daemon gives back what it takes, mostly", 8, 100, 100, "leaker"},
		{"it takes all that is less", 8, 8, 8, "leaker"},
		{"the daemon takes more", 8, 3, 3, ""},
		{"it grows within pods that do not", 8, 0, 8, ""},
		{"it does not grow", 8, 8, 0, ""},
	} {
		w := openBreakerNode(t)
		w.wantVictim(w.leakForMinute(c.fall, c.pods, c.leaker, false), c.want)
	}
}

// The breaker allows it once. If its end does not help, the breaker opens again.
func TestBreakerAllowsOneFutileLeaker(t *testing.T) {
	w := openBreakerNode(t)
	l := w.leakForMinute(8, 8, 8, false)
	w.wantVictim(l, "leaker")
	w.reportDead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	for range 20 {
		w.now = w.now.Add(time.Second)
		w.setPodTotal(1700)
		w.setLeft(stats.SignalMemoryAvailable, 300)
		w.wantVictim(w.look(0), "")
	}
}

// The breaker holds back a leaker that is within its request while others are over theirs, one that
// was set aside, and one that is protected.
func TestPodsThatBreakerHoldsBack(t *testing.T) {
	for name, set := range map[string]func(w *testNode, p *stats.PodStats){
		"within its request": func(_ *testNode, p *stats.PodStats) {
			p.QOSClass, p.MemoryRequest = stats.Guaranteed, stats.Some(stats.ExactRange(8000<<20))
		},
		"set aside": func(w *testNode, p *stats.PodStats) {
			w.m.evictions.history.aside[p.PodRef.UID] = setAside{until: w.now.Add(time.Hour)}
		},
		"static": func(_ *testNode, p *stats.PodStats) { p.Annotations[annotationConfigSource] = "file" },
	} {
		w := openBreakerNode(t)
		set(w, &w.pods[len(w.pods)-1])
		if l := w.leakForMinute(8, 100, 100, false); l != nil {
			t.Errorf("%s: %s is evicted, want no eviction", name, l.e.Pod.PodRef.UID)
		}
	}
}

// Page cache is no leak: a pod whose upper bound exceeds its earlier usage is read in full first.
func TestBreakerIgnoresPageCacheGrowth(t *testing.T) {
	w := openBreakerNode(t)
	w.leakForMinute(0, 0, 0, false)
	w.setPodMemory("leaker", 300, true)
	w.now = w.now.Add(time.Second)
	w.setLeft(stats.SignalMemoryAvailable, 450)
	w.setPodTotal(4000) // others grow
	w.node.Memory.Time = w.now
	w.m.Observe(w.now, &w.node, Situation{})
	in := Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}, MemoryOnly: true}
	if i := w.m.PodToRead(w.now, in); i != len(w.pods)-1 {
		t.Fatalf("Unread = %d, want %d", i, len(w.pods)-1)
	}
	w.setPodMemory("leaker", 300, false)
	if i := w.m.PodToRead(w.now, in); i != -1 {
		t.Errorf("Unread after the full read = %d, want -1", i)
	}
	w.wantVictim(w.look(0), "")
}

// The usage at the opening of the breaker survives a restart; a file without it starts a new
// comparison.
func TestBreakerStateSurvivesRestart(t *testing.T) {
	for _, kept := range []bool{true, false} {
		w := openBreakerNode(t)
		w.leakForMinute(1, 1, 1, false)
		saved := throughFile(t, w.m.Save())
		if s := saved.Breaker[0].Stopped; s == nil || s.Used == 0 {
			t.Fatalf("saved breaker = %+v, want the usage at its opening", saved.Breaker[0])
		}
		if !kept {
			saved.Breaker[0].Stopped = nil
		}
		restored := managerOf(t, 0, "own x", "hard memory.available 1000Mi")
		restored.config.Replay, restored.config.Breaker = false, true
		if dropped := restored.Resume(w.now, saved); len(dropped) > 0 {
			t.Fatalf("Resume dropped %v, want nothing", dropped)
		}
		w.m = restored
		w.wantVictim(w.leakForMinute(8, 9, 9, false), "leaker")
		saved.Breaker[0].Stopped = &SavedPodTotals{Used: 1 << 63}
		if dropped := managerOf(t, 0, "hard memory.available 1000Mi").Resume(w.now, saved); len(dropped) != 1 {
			t.Errorf("Resume dropped %v, want one entry", dropped)
		}
	}
}

// On a disk, the measured usage of each pod decides: the pod that fills the disk is evicted
// although others are ranked before it.
func TestBreakerAllowsPodThatFillsDisk(t *testing.T) {
	for grows, want := range map[uint64]string{20: "filler", 4: ""} {
		w := newTestNode(t, "hard nodefs.available 1000Mi")
		w.m.config.Breaker = true
		for i := range 8 {
			w.setFiles(fmt.Sprint("i", i), stats.FsUsage{UsedBytes: 50 << 20})
		}
		w.setFiles("filler", stats.FsUsage{UsedBytes: 10 << 20})
		w.pods[8].PodRef.Namespace, w.pods[8].Annotations = "kube-system", map[string]string{annotationPriority: "100"}
		w.setDisk(4000, 1_000_000)
		w.look(time.Second)
		left := uint64(950)
		for quiet := 0; quiet < 100; quiet++ {
			w.setDisk(left, 1_000_000) // a daemon takes what they return
			if l := w.look(2 * time.Second); l != nil {
				quiet = 0
				w.reportDead(l)
				w.m.Cleaned(Stamp{Time: w.now}, l)
			}
		}
		if len(w.m.evictions.history.evicted) == len(w.pods) || !w.m.breakers.anyOpen() {
			t.Fatalf("%d of %d pods evicted, want an open breaker before the last: %s", len(w.m.evictions.history.evicted), len(w.pods), w.reason)
		}
		has := uint64(10)
		var l *Life
		for i := 0; i < 80 && l == nil; i++ {
			left, has = left-10, has+grows
			w.setDisk(left, 1_000_000)
			container(&w.pods[8]).Rootfs.V.UsedBytes = has << 20
			l = w.look(2 * time.Second)
		}
		w.wantVictim(l, want)
	}
}
