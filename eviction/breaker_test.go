package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// used sets what all pods together use of memory, in MiB, as of now.
func (w *ward) used(memory uint64) {
	w.node.Pods = stats.PodsTotal{Time: w.now, WorkingSetBytes: stats.Some(memory << 20)}
}

// leak kills one pod after the other while memory falls: leaks MiB a second, so much of it in the pods. Each pod of a list is the next one's
// worse. It returns who went, until nobody does for five seconds.
func (w *ward) leak(left, pods uint64, a second) (gone []string) {
	for quiet := 0; quiet < 5 && left > 0; {
		left, pods = left-min(left, a.fall), pods+a.pods
		w.left(stats.SignalMemoryAvailable, left)
		w.now = w.now.Add(time.Second)
		w.used(pods)
		quiet++
		if l := w.look(0); l != nil {
			quiet, gone = 0, append(gone, l.e.Pod.PodRef.UID)
			left, pods = left+l.e.Returns>>20, pods-l.e.Returns>>20
			w.dead(l)
			w.m.Cleaned(Stamp{Time: w.now}, l)
			w.pods = slices.DeleteFunc(w.pods, func(p stats.PodStats) bool { return p.PodRef.UID == l.e.Pod.PodRef.UID })
			w.left(stats.SignalMemoryAvailable, left)
			w.used(pods)
		}
	}
	return gone
}

// second is what happens in one.
type second struct{ fall, pods uint64 }

func breakerWard(t *testing.T, lines ...string) *ward {
	w := newWard(t, lines...)
	w.m.config.Breaker = true
	for i := range 8 {
		w.pod(fmt.Sprint(i), 20, 0, 1)
	}
	return w
}

// Pods that leak together look like a leak outside of them, but what all of them use grows: the breaker is none of it.
func TestTheBreakerIsForWhatGrowsOutsideThePods(t *testing.T) {
	for _, c := range []struct {
		name string
		of   second
		want int
	}{
		{"in the pods", second{60, 60}, 8},
		{"in the pods, mostly", second{60, 45}, 8},
		{"outside", second{60, 0}, breakerLimit},
		{"outside, mostly", second{60, 10}, breakerLimit},
	} {
		w := breakerWard(t, "hard memory.available 1000Mi")
		w.used(2000)
		w.look(time.Second)
		if gone := w.leak(900, 2000, c.of); len(gone) != c.want {
			t.Errorf("%s: %v went, want %d: %s", c.name, gone, c.want, w.why)
		}
	}
}

// What a soft threshold did in vain is not held against a hard one.
func TestTheBreakerCountsPerThreshold(t *testing.T) {
	w := breakerWard(t, "hard memory.available 500Mi", "soft memory.available 2000Mi", "grace memory.available 1s")
	w.look(time.Second)
	if gone := w.leak(1500, 2000, second{60, 0}); len(gone) != breakerLimit {
		t.Errorf("%v went, want 3 for the soft threshold: %s", gone, w.why)
	}
	if gone := w.leak(490, 2000, second{60, 0}); len(gone) != breakerLimit {
		t.Errorf("%v went, want 3 more for the hard threshold: %s", gone, w.why)
	}
}

// Once it has stopped, it acts again where the first in the ranking is new, or has grown: once, and not for those that were there.
func TestTheBreakerIsArmedAgain(t *testing.T) {
	stopped := func() *ward {
		w := breakerWard(t, "hard memory.available 1000Mi")
		w.look(time.Second)
		if gone := w.leak(900, 2000, second{40, 0}); len(gone) != breakerLimit || !strings.Contains(w.why, "stopped") {
			t.Fatalf("%v went: %s", gone, w.why)
		}
		return w
	}
	w := stopped()
	w.pod("new", 35, 0, 1)
	if gone := w.leak(600, 2000, second{40, 0}); !slices.Equal(gone, []string{"new"}) {
		t.Errorf("%v went, want the new one: %s", gone, w.why)
	}
	w = stopped()
	grown := w.pods[2].PodRef.UID
	w.pods[2].Memory.WorkingSetBytes, w.pods[2].Memory.AnonBytes = stats.Some(uint64(200<<20)), stats.Some(uint64(200<<20))
	if gone := w.leak(600, 2000, second{40, 0}); len(gone) == 0 || gone[0] != grown {
		t.Errorf("%v went, want %s, which has grown: %s", gone, grown, w.why)
	}
	w = stopped()
	w.pods[2].Memory.WorkingSetBytes = stats.Some(uint64(21 << 20)) // that is nothing
	if gone := w.leak(600, 2000, second{40, 0}); len(gone) != 0 {
		t.Errorf("%v went: %s", gone, w.why)
	}
	saved, again := onFile(t, w.m.Save()), managerOf(t, 0, "own x", "hard memory.available 1000Mi") // over a restart, too
	again.config.Replay, again.config.Breaker = false, true
	if dropped := again.Resume(w.now, saved); len(dropped) > 0 {
		t.Fatal(dropped)
	}
	w.m = again
	if gone := w.leak(600, 2000, second{40, 0}); len(gone) != 0 {
		t.Errorf("after a restart %v went: %s", gone, w.why)
	}
	w.pod("new", 35, 0, 1)
	if gone := w.leak(600, 2000, second{40, 0}); !slices.Equal(gone, []string{"new"}) {
		t.Errorf("after a restart %v went, want the new one: %s", gone, w.why)
	}
}
