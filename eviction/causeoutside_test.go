package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// did sets what a pod has of memory in MiB, what it has read in again, and how often it hit a limit.
func (w *ward) did(uid string, memory, refaulted, hits uint64) {
	for i := range w.pods {
		if p := &w.pods[i]; p.PodRef.UID == uid {
			p.Memory.WorkingSetBytes, p.Memory.AnonBytes = stats.Some(memory<<20), stats.Some(memory<<20)
			p.Memory.RefaultBytes, p.Events = stats.Some(refaulted<<20), stats.Some(stats.MemoryEvents{Max: hits})
		}
	}
}

// cache sets what the node, and a pod, have with page cache: MiB.
func (w *ward) cache(node uint64, pods ...uint64) {
	w.node.Memory.UsageBytes = stats.Some(node << 20)
	for i, mib := range pods {
		w.pods[i].Memory.UsageBytes = stats.Some(mib << 20)
	}
}

// calmNode is a node that has had no pressure so far, with so much left, and pods of so much each.
func calmNode(t *testing.T, left uint64, pods map[string]uint64) *ward {
	w := newWard(t, "hard memory.pressure.full 20%/1s")
	w.left(stats.SignalMemoryAvailable, left)
	for _, uid := range []string{"redis", "idle", "thrasher", "hog"} {
		if mib, ok := pods[uid]; ok {
			w.pod(uid, mib, 0, 1)
			w.did(uid, mib, 0, 0)
		}
	}
	w.cache(3000, 900, 200)
	if v := w.full(time.Second, 0.1); v != "" {
		t.Fatalf("%s goes while all is well", v)
	}
	return w
}

// What grows outside of the pods, or as page cache of others, makes a pod read its files in again that has done nothing: nobody goes for that.
func TestWhoSuffersFromOutsideDoesNotGoForPressure(t *testing.T) {
	for _, c := range []struct {
		name                     string
		left, node, redis, other uint64 // MiB: left, and with page cache: of the node, of redis and of another pod
		want                     string
	}{
		{"a daemon takes it", 300, 6700, 900, 200, ""},
		{"a daemon takes what is no memory of processes", 300, 3000, 900, 200, ""},
		{"a daemon reads a stream of files", 4000, 6700, 500, 200, ""},
		{"another pod reads a stream of files", 4000, 6700, 500, 4300, ""},
		{"it only takes from others", 4000, 3000, 800, 350, ""},
		{"nobody took anything", 4000, 3000, 900, 200, "redis"},
		{"it read files in itself", 4000, 6700, 4600, 200, "redis"},
	} {
		w := calmNode(t, 4000, map[string]uint64{"redis": 500, "idle": 100})
		w.left(stats.SignalMemoryAvailable, c.left)
		w.cache(c.node, c.redis, c.other)
		w.did("redis", 500, 50, 0)
		if got := w.full(time.Second, 0.5); got != c.want {
			t.Errorf("%s: %q goes, want %q: %s", c.name, got, c.want, w.why)
		}
	}
}

// Who thrashes at a limit of its own causes it, whoever else grew a little; but not a pod that others took from, which is below its limit
// nearly always, and not where the growth of others left next to nothing.
func TestAPodAtItsOwnLimitIsTheCauseBesideAnyThatGrew(t *testing.T) {
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
		w.left(stats.SignalMemoryAvailable, c.left)
		w.cache(3000, 900, 200)
		w.did("thrasher", 500, c.again, c.events)
		w.did("hog", 100+c.grew, 0, 0)
		if got := w.full(time.Second, 0.5); got != c.want {
			t.Errorf("%s: %q goes, want %q: %s", c.name, got, c.want, w.why)
		}
	}
}

// A look in which a pod's memory could not be read, or in which only its working set could, is no growth by all that the pod has.
func TestMemoryThatWasNotReadForALookHasNotGrown(t *testing.T) {
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
		p.Memory.AnonBytes = stats.Some(uint64(1000 << 20)) // all else is page cache
		w.full(time.Second, 0.1)
		was := *p
		c.lost(p)
		for range 2 {
			if got := w.full(time.Second, 0.5); got != "" {
				t.Errorf("%s: %q goes: %s", c.name, got, w.why)
			}
			*p = was
		}
		if c.lost(p); w.full(time.Second, 0.1) != "" {
			t.Fatal("set up")
		}
		*p = was
		if got := w.full(time.Second, 0.5); got != "" {
			t.Errorf("%s while it was calm: %q goes: %s", c.name, got, w.why)
		}
	}
}

// What a pod held that is gone now came back to the node: else took it.
func TestWhatCameBackFromAPodHidesNothingThatGrowsOutside(t *testing.T) {
	w := calmNode(t, 1000, map[string]uint64{"redis": 500, "hog": 3000})
	w.did("redis", 500, 50, 0)
	w.pods = w.pods[:1] // 3000 MiB came back, and a daemon took them
	if got := w.full(time.Second, 0.5); got != "" {
		t.Errorf("%q goes: %s", got, w.why)
	}
	w.full(time.Second, 0.1)
	w.did("redis", 500, 100, 0)
	if got := w.full(time.Second, 0.5); got != "redis" {
		t.Errorf("after it was calm %q goes, want redis: %s", got, w.why)
	}
}
