package stats

import (
	"testing"
	"time"
)

// Huge pages are part of MemTotal and of no other figure, and the kernel does not count a cache of
// ZFS as available. None of both may be taken for free or used memory.
func TestAvailableWithHugePagesAndZFS(t *testing.T) {
	const gib = 1 << 30
	some := Some[uint64]
	for _, c := range []struct {
		what            string
		m               NodeMemoryStats
		by              MemoryAvailable
		value, capacity uint64
	}{
		{"240 of 256 GiB in huge pages, 11 of 16 left, workingSet",
			NodeMemoryStats{CapacityBytes: some(256 * gib), HugePagesBytes: some(240 * gib), WorkingSetBytes: some(5 * gib)}, MemoryAvailableWorkingSet, 11 * gib, 16 * gib},
		{"the same, lower",
			NodeMemoryStats{CapacityBytes: some(256 * gib), HugePagesBytes: some(240 * gib), WorkingSetBytes: some(5 * gib), KernelAvailableBytes: some(11 * gib)}, MemoryAvailableLower, 11 * gib, 16 * gib},
		{"300 MiB left, workingSet",
			NodeMemoryStats{CapacityBytes: some(256 * gib), HugePagesBytes: some(240 * gib), WorkingSetBytes: some(16*gib - 300<<20)}, MemoryAvailableWorkingSet, 300 << 20, 16 * gib},
		{"more huge pages than memory",
			NodeMemoryStats{CapacityBytes: some(gib), HugePagesBytes: some(2 * gib), WorkingSetBytes: some(gib)}, MemoryAvailableWorkingSet, 0, 0},
		{"half of 32 GiB in a cache of ZFS, lower",
			NodeMemoryStats{CapacityBytes: some(32 * gib), WorkingSetBytes: some(15 * gib), KernelAvailableBytes: some(gib), ShrinkableBytes: some(15 * gib)}, MemoryAvailableLower, 16 * gib, 32 * gib},
		{"the same, without its statistics",
			NodeMemoryStats{CapacityBytes: some(32 * gib), WorkingSetBytes: some(15 * gib), KernelAvailableBytes: some(gib)}, MemoryAvailableLower, gib, 32 * gib},
		{"statistics above the capacity, kernel",
			NodeMemoryStats{CapacityBytes: some(32 * gib), KernelAvailableBytes: some(gib), ShrinkableBytes: some(1 << 63)}, MemoryAvailableKernel, 32 * gib, 32 * gib},
	} {
		c.m.Time = time.Unix(1, 0)
		if o := c.m.Available(c.by); !o.OK || o.Value != c.value || o.Capacity != c.capacity {
			t.Errorf("%s: observation = %+v, want %d of %d", c.what, o, c.value, c.capacity)
		}
	}
}
