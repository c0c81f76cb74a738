package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// setActivity sets a pod's memory in MiB, its refaults, and its hits of a limit.
func (w *testNode) setActivity(uid string, memory, refaulted, hits uint64) {
	for i := range w.pods {
		if p := &w.pods[i]; p.PodRef.UID == uid {
			p.Memory.WorkingSetBytes, p.Memory.AnonBytes = stats.Some(memory<<20), stats.Some(memory<<20)
			p.Memory.RefaultBytes, p.Events = stats.Some(refaulted<<20), stats.Some(stats.MemoryEvents{Max: hits})
		}
	}
}

// setCache sets the memory of the node and of pods including page cache, in MiB.
func (w *testNode) setCache(node uint64, pods ...uint64) {
	w.node.Memory.UsageBytes = stats.Some(node << 20)
	for i, mib := range pods {
		w.pods[i].Memory.UsageBytes = stats.Some(mib << 20)
	}
}

// calmNode returns a node without pressure so far, with that much left and pods of that size.
func calmNode(t *testing.T, left uint64, pods map[string]uint64) *testNode {
	w := newTestNode(t, "hard memory.pressure.full 20%/1s")
	w.setLeft(stats.SignalMemoryAvailable, left)
	for _, uid := range []string{"redis", "idle", "thrasher", "hog"} {
		if mib, ok := pods[uid]; ok {
			w.addPod(uid, mib, 0, 1)
			w.setActivity(uid, mib, 0, 0)
		}
	}
	w.setCache(3000, 900, 200)
	if v := w.fullLook(time.Second, 0.1); v != "" {
		t.Fatalf("victim on a calm node = %q, want none", v)
	}
	return w
}

// Growth outside of pods, or of other pods' page cache, makes an innocent pod refault: no pod is
// evicted for that.
func TestPodSufferingFromOutsideIsNotEvicted(t *testing.T) {
	for _, c := range []struct {
		name string
		// MiB: available, and including page cache of the node, of redis and of another pod
		left, node, redis, other uint64
		want                     string
	}{
		{"a daemon takes it", 300, 6700, 900, 200, ""},
		{"a daemon takes what is no memory of processes", 300, 3000, 900, 200, ""},
		{"a daemon reads a stream of files", 4000, 6700, 500, 200, ""},
		{"another pod reads a stream of files", 4000, 6700, 500, 4300, ""},
		{"it only takes from other pods", 4000, 3000, 800, 350, ""},
		{"no pod took memory", 4000, 3000, 900, 200, "redis"},
		{"it read files in itself", 4000, 6700, 4600, 200, "redis"},
	} {
		w := calmNode(t, 4000, map[string]uint64{"redis": 500, "idle": 100})
		w.setLeft(stats.SignalMemoryAvailable, c.left)
		w.setCache(c.node, c.redis, c.other)
		w.setActivity("redis", 500, 50, 0)
		if got := w.fullLook(time.Second, 0.5); got != c.want {
			t.Errorf("%s: victim = %q, want %q: %s", c.name, got, c.want, w.reason)
		}
	}
}

// A pod that thrashes at its own limit is the cause, even if others grew a little. A pod that
// others took memory from is not, because it is nearly always below its limit. Nor is any if the
// growth of others left next to nothing.
func TestPodAtOwnLimitCausesPressureDespiteGrowth(t *testing.T) {
	for _, c := range []struct {
		name                              string
		left, grew, before, again, events uint64
		want                              string
	}{
		{"a neighbour grew a little", 3900, 100, 4000, 2000, 50000, "thrasher"},
		{"that is not what the node lost", 4000, 100, 4000, 2000, 50000, "thrasher"},
		{"a slow disk", 3900, 100, 4000, 3, 300, "thrasher"},
		{"large folios: fewer hits", 3900, 100, 4000, 2000, 200, "thrasher"},
		{"a slow disk, and it grew more", 3000, 1000, 4000, 3, 300, "thrasher"},
		{"520 KiB a hit, at memory.high, and it grew more", 3000, 1000, 4000, 2000, 3940, "thrasher"},
		{"it grew, and a daemon took more", 400, 1000, 4000, 20, 1, ""},
		{"it grew more", 3000, 1000, 4000, 2000, 50000, "thrasher"},
		{"it took all, the other one suffers", 100, 3900, 4000, 500, 50, "hog"},
		{"it took all, both at their limits", 100, 3900, 4000, 500, 50000, "hog"},
	} {
		w := calmNode(t, c.before, map[string]uint64{"thrasher": 500, "hog": 100})
		w.setLeft(stats.SignalMemoryAvailable, c.left)
		w.setCache(3000, 900, 200)
		w.setActivity("thrasher", 500, c.again, c.events)
		w.setActivity("hog", 100+c.grew, 0, 0)
		if got := w.fullLook(time.Second, 0.5); got != c.want {
			t.Errorf("%s: victim = %q, want %q: %s", c.name, got, c.want, w.reason)
		}
	}
}

// A look in which a pod's memory could not be read, or only its working set, does not make all of
// its memory growth.
func TestUnreadMemoryIsNoGrowth(t *testing.T) {
	for _, c := range []struct {
		name string
		lost func(p *stats.PodStats)
	}{
		{"nothing", func(p *stats.PodStats) {
			p.Memory.WorkingSetBytes, p.Memory.AnonBytes = stats.Opt[uint64]{}, stats.Opt[uint64]{}
		}},
		{"no parts", func(p *stats.PodStats) { p.Memory.AnonBytes = stats.Opt[uint64]{} }},
	} {
		w := calmNode(t, 1000, map[string]uint64{"idle": 3000, "hog": 100})
		p := &w.pods[0]
		p.Memory.AnonBytes = stats.Some(uint64(1000 << 20)) // the rest is page cache
		w.fullLook(time.Second, 0.1)
		was := *p
		c.lost(p)
		for range 2 {
			if got := w.fullLook(time.Second, 0.5); got != "" {
				t.Errorf("%s: victim = %q, want none: %s", c.name, got, w.reason)
			}
			*p = was
		}
		if c.lost(p); w.fullLook(time.Second, 0.1) != "" {
			t.Fatal("victim in the calm look before the test, want none")
		}
		*p = was
		if got := w.fullLook(time.Second, 0.5); got != "" {
			t.Errorf("%s in a calm look: victim = %q, want none: %s", c.name, got, w.reason)
		}
	}
}

// Memory of a pod that is gone returned to the node: something else took it.
func TestFreedMemoryTakenOutsidePods(t *testing.T) {
	w := calmNode(t, 1000, map[string]uint64{"redis": 500, "hog": 3000})
	w.setActivity("redis", 500, 50, 0)
	w.pods = w.pods[:1] // 3000 MiB returned, and a daemon took them
	if got := w.fullLook(time.Second, 0.5); got != "" {
		t.Errorf("victim = %q, want none: a daemon took the memory: %s", got, w.reason)
	}
	w.fullLook(time.Second, 0.1)
	w.setActivity("redis", 500, 100, 0)
	if got := w.fullLook(time.Second, 0.5); got != "redis" {
		t.Errorf("victim after a calm look = %q, want redis: %s", got, w.reason)
	}
}
