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
		"little of it":               {15 * gib, 15*gib + 100*mib, never, 100 * mib},
		"next to none":               {15 * gib, 15*gib + 10*mib, never, 0},
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
