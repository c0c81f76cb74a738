package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"jettison/cgroup"
)

// caches is a cgroup above pods with an eighth of its memory in use, and page cache that grows up
// to its limit or the node's memory.
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

// max returns memory.max; 0: no limit.
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

// Page cache keeps memory.max above its target for one pass at most, however large it is. Nothing
// is reclaimed after the target is reached.
func TestPageCacheAboveTarget(t *testing.T) {
	for _, gib := range []uint64{1, 16, 256} {
		capacity := gib << 30
		target := capacity - capacity/16
		c := newCaches(t, capacity)
		w := c.writer(never)
		w.reclaimPageCache = c.take
		for range 20 {
			if r := w.Limit(t.Context(), Targets{MemoryMax: some(target)}); r.Err != nil || c.used > c.max() {
				t.Fatalf("with %d GiB, usage is %d of limit %d, error %v", gib, c.used, c.max(), r.Err)
			}
			c.use(min(capacity-capacity/50, c.max())) // pods continue to read files
		}
		if need := capacity - capacity/50 - target + raceMargin + slack; c.max() != target || c.taken != need {
			t.Errorf("with %d GiB, memory.max = %d, want %d; reclaimed %d, want %d", gib, c.max(), target, c.taken, need)
		}
	}
}

// Not more than the page cache is reclaimed, nothing with a kubelet, and nothing if it makes no
// difference.
func TestPageCacheOnlyForLimit(t *testing.T) {
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
		w.reclaimPageCache = c.take
		if r := w.Limit(t.Context(), Targets{MemoryMax: some(14 * gib)}); r.Err != nil || c.taken != test.want {
			t.Errorf("page cache reclaimed in %s = %d, want %d, error %v", name, c.taken, test.want, r.Err)
		}
	}
}

// Pods with more other memory than the target keep their page cache in all passes.
func TestPageCacheUnreachableTarget(t *testing.T) {
	const gib = 1 << 30
	c := newCaches(t, 16*gib)
	c.held = 15 * gib
	c.use(16*gib - 256*mib)
	w := c.writer(never)
	w.reclaimPageCache = c.take
	for range 6 {
		if r := w.Limit(t.Context(), Targets{MemoryMax: some(14 * gib)}); r.Err != nil {
			t.Fatalf("pass with an unreachable target failed: %v", r.Err)
		}
		if c.use(16*gib - 256*mib); c.max() > 0 {
			c.use(min(c.used, c.max()-4096)) // pods continue to read files
		}
	}
	if c.taken > 0 {
		t.Errorf("reclaimed %d MiB for an unreachable target, memory.max %d MiB", c.taken/mib, c.max()/mib)
	}
}

// Reclaim takes seconds: a kubelet that starts meanwhile is found before the next write.
func TestKubeletStartsDuringReclaim(t *testing.T) {
	const gib = 1 << 30
	c, here := newCaches(t, 16*gib), false
	w := c.writer(func() bool { return here })
	w.reclaimPageCache = func(g *cgroup.Group, bytes uint64) error { here = true; return c.take(g, bytes) }
	r := w.Limit(t.Context(), Targets{MemoryMax: some(14 * gib), PIDsMax: some(1000)})
	if !r.KubeletFound || len(r.Limited) > 0 || c.max() > 0 || c.taken == 0 || r.Err != nil {
		t.Errorf("memory.max = %d MiB after reclaiming %d MiB with a kubelet, result %+v", c.max()/mib, c.taken/mib, r)
	}
	if left := c.notes(); len(left) > 0 {
		t.Errorf("notes with a kubelet = %v", left)
	}
}

// reclaimed is memory.reclaim of a kernel with or without the swappiness argument.
type reclaimed struct {
	old, plain bool
	bytes      uint64
}

func (r *reclaimed) Reclaim(bytes uint64, _ cgroup.Swappiness) error {
	r.plain = r.old
	r.bytes += bytes
	return nil
}

func (r *reclaimed) WithoutSwappiness() bool { return r.plain }

// A kernel without the swappiness argument (6.1) would swap out memory of pods: with swap nothing
// is reclaimed.
func TestNoReclaimWithSwapOnOldKernel(t *testing.T) {
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
		if err := reclaimInSteps(t.Context(), r, 64*mib, test.swap); err != nil || r.bytes != test.want {
			t.Errorf("reclaimed on a kernel with %s = %d, want %d, error %v", name, r.bytes, test.want, err)
		}
	}
}
