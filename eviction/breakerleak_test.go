package eviction

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"jettison/stats"
)

// uses sets what a pod uses of memory, in MiB.
func (w *ward) uses(uid string, mib uint64, quick bool) {
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

// stoppedWard is a node on which the breaker has stopped for a daemon, with small pods that stand before a larger one by its priority.
func stoppedWard(t *testing.T) *ward {
	w := newWard(t, "hard memory.available 1000Mi")
	w.m.config.Breaker = true
	for _, uid := range []string{"a", "b", "c", "d", "e"} {
		w.pod(uid, 20, 0, 1)
	}
	leaker := w.pod("leaker", 300, 0, 1)
	leaker.PodRef.Namespace, leaker.Annotations = "kube-system", map[string]string{annotationPriority: "100"}
	leaker.StartTime = epoch
	w.used(2000)
	w.look(time.Second)
	if gone := w.leak(900, 2000, second{60, 0}); len(gone) != breakerLimit || slices.Contains(gone, "leaker") {
		t.Fatalf("%v went: %s", gone, w.why)
	}
	return w
}

// What happens in a minute after the breaker has stopped, MiB a second: what is left falls, pods together grow, and so does the leaker.
func (w *ward) minute(fall, pods, leaker uint64, quick bool) (first *Life) {
	left, all, has := uint64(500), uint64(2000), uint64(300)
	for range 60 {
		left, all, has = left-min(left, fall), all+pods, has+leaker
		w.uses("leaker", has, quick)
		w.left(stats.SignalMemoryAvailable, left)
		w.now = w.now.Add(time.Second)
		w.used(all)
		if l := w.look(0); l != nil {
			return l
		}
	}
	return nil
}

// The breaker has stopped for a daemon. A pod that then leaks goes, though others stand before it that never grow: else no pod does, down to
// the last byte.
func TestTheBreakerLetsALeakThroughThatIsNotTheFirst(t *testing.T) {
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
		w := stoppedWard(t)
		w.victim(w.minute(c.fall, c.pods, c.leaker, false), c.want)
	}
}

// It is once: where its end does not help, the breaker stops again.
func TestALeakThatIsLetThroughInVainIsTheLast(t *testing.T) {
	w := stoppedWard(t)
	l := w.minute(8, 8, 8, false)
	w.victim(l, "leaker")
	w.dead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	for range 20 {
		w.now = w.now.Add(time.Second)
		w.used(1700)
		w.left(stats.SignalMemoryAvailable, 300)
		w.victim(w.look(0), "")
	}
}

// Nor does one go that is within its request while others are over theirs, that was set aside, or that may not go.
func TestWhoIsNotLetThroughByTheBreaker(t *testing.T) {
	for name, set := range map[string]func(w *ward, p *stats.PodStats){
		"within its request": func(_ *ward, p *stats.PodStats) {
			p.QOSClass, p.MemoryRequest = stats.Guaranteed, stats.Some(stats.Exactly(8000<<20))
		},
		"set aside": func(w *ward, p *stats.PodStats) {
			w.m.evictions.history.aside[p.PodRef.UID] = setAside{until: w.now.Add(time.Hour)}
		},
		"static": func(_ *ward, p *stats.PodStats) { p.Annotations[annotationConfigSource] = "file" },
	} {
		w := stoppedWard(t)
		set(w, &w.pods[len(w.pods)-1])
		if l := w.minute(8, 100, 100, false); l != nil {
			t.Errorf("%s: %s goes", name, l.e.Pod.PodRef.UID)
		}
	}
}

// Page cache is no leak: where only an upper bound of a pod was read that is beyond what it had, it is read in full first.
func TestTheBreakerLetsNoPageCacheThrough(t *testing.T) {
	w := stoppedWard(t)
	w.minute(0, 0, 0, false)
	w.uses("leaker", 300, true)
	w.now = w.now.Add(time.Second)
	w.left(stats.SignalMemoryAvailable, 450)
	w.used(4000) // others grow
	w.node.Memory.Time = w.now
	w.m.Observe(w.now, &w.node, Situation{})
	in := Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}, MemoryOnly: true}
	if i := w.m.Unread(w.now, in); i != len(w.pods)-1 {
		t.Fatalf("%d is read next", i)
	}
	w.uses("leaker", 300, false)
	if i := w.m.Unread(w.now, in); i != -1 {
		t.Errorf("%d is read next", i)
	}
	w.victim(w.look(0), "")
}

// What it is held against outlives a restart; a file without it begins anew.
func TestWhatTheBreakerStoppedAtIsKept(t *testing.T) {
	for _, kept := range []bool{true, false} {
		w := stoppedWard(t)
		w.minute(1, 1, 1, false)
		saved := onFile(t, w.m.Save())
		if s := saved.Breaker[0].Stopped; s == nil || s.Used == 0 {
			t.Fatalf("saved %+v", saved.Breaker[0])
		}
		if !kept {
			saved.Breaker[0].Stopped = nil
		}
		again := managerOf(t, 0, "own x", "hard memory.available 1000Mi")
		again.config.Replay, again.config.Breaker = false, true
		if dropped := again.Resume(w.now, saved); len(dropped) > 0 {
			t.Fatal(dropped)
		}
		w.m = again
		w.victim(w.minute(8, 9, 9, false), "leaker")
		saved.Breaker[0].Stopped = &SavedPodTotals{Used: 1 << 63}
		if dropped := managerOf(t, 0, "hard memory.available 1000Mi").Resume(w.now, saved); len(dropped) != 1 {
			t.Errorf("dropped %v", dropped)
		}
	}
}

// Of a disk, by what is found of each pod: what fills it goes, though others stand before it.
func TestTheBreakerLetsWhatFillsADiskThrough(t *testing.T) {
	for grows, want := range map[uint64]string{20: "filler", 4: ""} {
		w := newWard(t, "hard nodefs.available 1000Mi")
		w.m.config.Breaker = true
		for i := range 8 {
			w.files(fmt.Sprint("i", i), stats.FsUsage{UsedBytes: 50 << 20})
		}
		w.files("filler", stats.FsUsage{UsedBytes: 10 << 20})
		w.pods[8].PodRef.Namespace, w.pods[8].Annotations = "kube-system", map[string]string{annotationPriority: "100"}
		w.disk(4000, 1_000_000)
		w.look(time.Second)
		left := uint64(950)
		for quiet := 0; quiet < 100; quiet++ {
			w.disk(left, 1_000_000) // a daemon takes what they give back
			if l := w.look(2 * time.Second); l != nil {
				quiet = 0
				w.dead(l)
				w.m.Cleaned(Stamp{Time: w.now}, l)
			}
		}
		if len(w.m.evictions.history.evicted) == len(w.pods) || !w.m.breakers.anyOpen() {
			t.Fatalf("%d went: %s", len(w.m.evictions.history.evicted), w.why)
		}
		has := uint64(10)
		var l *Life
		for i := 0; i < 80 && l == nil; i++ {
			left, has = left-10, has+grows
			w.disk(left, 1_000_000)
			container(&w.pods[8]).Rootfs.V.UsedBytes = has << 20
			l = w.look(2 * time.Second)
		}
		w.victim(l, want)
	}
}
