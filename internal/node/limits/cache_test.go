package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"jettison/cgroup"
)

// caches is a cgroup above pods of which an eighth is held, and which page cache fills up to its limit, or to what the node has.
type caches struct {
	*node
	capacity, held, used, taken uint64
}

func newCaches(t *testing.T, capacity uint64) *caches {
	c := &caches{node: newNode(t, "kubepods"), capacity: capacity, held: capacity / 8}
	c.use(capacity - capacity/50)
	return c
}

func (c *caches) use(bytes uint64) {
	c.used = bytes
	c.write("kubepods/memory.current", fmt.Sprintln(bytes))
	c.write("kubepods/memory.stat", fmt.Sprintf("anon %d\nfile %d\nshmem 0\ninactive_file %d\n", c.held, bytes-c.held, bytes-c.held))
}

// max is memory.max; 0: there is none.
func (c *caches) max() (limit uint64) {
	c.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, "kubepods/memory.max"))
	if err != nil {
		c.Fatal(err)
	}
	_, _ = fmt.Sscan(string(b), &limit)
	return limit
}

func (c *caches) take(g *cgroup.Group, bytes uint64) error {
	c.taken += bytes
	c.use(c.used - bytes)
	return nil
}

// Page cache keeps memory.max from its target for one pass at most, however much there is of it, and none is taken once that is reached.
func TestPageCacheKeepsNoLimitAway(t *testing.T) {
	for _, gib := range []uint64{1, 16, 256} {
		capacity := gib << 30
		target := capacity - capacity/16
		c := newCaches(t, capacity)
		w := c.writer(never)
		w.takeCache = c.take
		for range 20 {
			if r := w.Limit(t.Context(), Targets{MemoryMax: some(target)}); r.Err != nil || c.used > c.max() {
				t.Fatalf("%d GiB: %d used of %d, %v", gib, c.used, c.max(), r.Err)
			}
			c.use(min(capacity-capacity/50, c.max())) // pods read on
		}
		if need := capacity - capacity/50 - target + raceMargin + slack; c.max() != target || c.taken != need {
			t.Errorf("%d GiB: memory.max %d, want %d; %d taken, want %d", gib, c.max(), target, c.taken, need)
		}
	}
}

// No more than there is of it is taken, none beside a kubelet, and none where it would make no difference.
func TestPageCacheIsTakenOnlyForTheLimit(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		held, used uint64
		kubelet    func() bool
		want       uint64
	}{
		"pods hold more for good":    {15 * gib, 15*gib + 700*mib, never, 0},
		"a page too many is held":    {14*gib - raceMargin + 4096, 15 * gib, never, 0},
		"just enough":                {14*gib - raceMargin, 15 * gib, never, gib + raceMargin},
		"next to none":               {14*gib - raceMargin, 14*gib - raceMargin + 10*mib, never, 0},
		"a kubelet has come":         {gib, 15 * gib, always, 0},
		"the limit is at its target": {gib, 13 * gib, never, 0},
		"right below it, not enough": {gib, 14*gib - 10*mib, never, raceMargin + slack},
		"the node is full of it":     {gib, 16 * gib, never, 2*gib + raceMargin + slack},
	} {
		c := newCaches(t, 16*gib)
		c.held = test.held
		c.use(test.used)
		w := c.writer(test.kubelet)
		w.takeCache = c.take
		if r := w.Limit(t.Context(), Targets{MemoryMax: some(14 * gib)}); r.Err != nil || c.taken != test.want {
			t.Errorf("%s: %d taken, want %d, %v", name, c.taken, test.want, r.Err)
		}
	}
}

// Pods that hold more than the target keep their page cache, however many passes there are.
func TestPageCacheIsNotTakenForATargetOutOfReach(t *testing.T) {
	const gib = 1 << 30
	c := newCaches(t, 16*gib)
	c.held = 15 * gib
	c.use(16*gib - 256*mib)
	w := c.writer(never)
	w.takeCache = c.take
	for range 6 {
		if r := w.Limit(t.Context(), Targets{MemoryMax: some(14 * gib)}); r.Err != nil {
			t.Fatal(r.Err)
		}
		if c.use(16*gib - 256*mib); c.max() > 0 {
			c.use(min(c.used, c.max()-4096)) // pods read on
		}
	}
	if c.taken > 0 {
		t.Errorf("%d MiB taken, memory.max %d MiB", c.taken/mib, c.max()/mib)
	}
}

// Page cache is taken for seconds: a kubelet that comes meanwhile is seen before anything is written.
func TestAKubeletThatComesWhilePageCacheIsTaken(t *testing.T) {
	const gib = 1 << 30
	c, here := newCaches(t, 16*gib), false
	w := c.writer(func() bool { return here })
	w.takeCache = func(g *cgroup.Group, bytes uint64) error { here = true; return c.take(g, bytes) }
	r := w.Limit(t.Context(), Targets{MemoryMax: some(14 * gib), PIDsMax: some(1000)})
	if !r.Beside || len(r.Limited) > 0 || c.max() > 0 || c.taken == 0 || r.Err != nil {
		t.Errorf("memory.max %d MiB, %d MiB taken, %+v", c.max()/mib, c.taken/mib, r)
	}
	if left := c.notes(); len(left) > 0 {
		t.Errorf("notes: %v", left)
	}
}

// reclaimed is memory.reclaim of a kernel that knows swappiness, or takes bytes alone.
type reclaimed struct {
	old, plain bool
	bytes      uint64
}

func (r *reclaimed) Reclaim(bytes uint64, _ cgroup.Swappiness) error {
	r.plain = r.old
	r.bytes += bytes
	return nil
}

func (r *reclaimed) Plain() bool { return r.plain }

// A kernel that takes bytes alone (6.1) would have memory of pods go to swap for them: where there is any, nothing is taken.
func TestNoPageCacheIsTakenWhereMemoryOfPodsWouldGoToSwap(t *testing.T) {
	for name, test := range map[string]struct {
		old, swap bool
		want      uint64
	}{
		"a kernel that knows swappiness":           {false, false, 64 * mib},
		"a kernel that knows swappiness, and swap": {false, true, 64 * mib},
		"bytes alone":           {true, false, 64 * mib},
		"bytes alone, and swap": {true, true, 0},
	} {
		r := &reclaimed{old: test.old}
		if err := takeFrom(t.Context(), r, 64*mib, test.swap); err != nil || r.bytes != test.want {
			t.Errorf("%s: %d taken, want %d, %v", name, r.bytes, test.want, err)
		}
	}
}
