package limits

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/reclaim"
	"jettison/stats"
)

const (
	// reclaimLimit is how long a pass has page cache taken, at most.
	reclaimLimit = Every / 2
	// leastCache is how much page cache there is to be before any is taken.
	leastCache = leastStep
	// slack is how much more is taken than memory.max needs to reach its target, for pods read on.
	slack = 16 << 20
)

// makeRoom takes page cache that was not used of late from the cgroup above all pods, as far as it
// keeps memory.max away from its target. memory.current counts it, and where pods read files it
// grows up to any limit. A write to memory.max would take it too, but may kill where that goes
// wrong; memory.reclaim never does. The kernel has no such file before v5.19: there the limit stays
// above what is used. Where all of it would not do, none is taken: pods that hold more for good
// would lose what they read in each pass, for nothing.
func (p *pass) makeRoom(g *cgroup.Group, now cgroup.Limit, target uint64) error {
	current, err := g.MemoryCurrent(p.buf[:])
	if _, reached := lower(target, now, current); err != nil || reached {
		return nil // who writes the limit says what is wrong
	}
	var s cgroup.MemoryStat
	if err := g.MemoryStat(make([]byte, 16<<10), &s); err != nil {
		return nil // what can be taken is not known
	}
	if stats.SaturatingAdd(current-min(s.InactiveFile, current), raceMargin) > target {
		return nil // out of reach
	}
	// current is above target - raceMargin
	bytes := min(s.InactiveFile, stats.SaturatingAdd(current-target, raceMargin+slack))
	if current < target {
		bytes = min(s.InactiveFile, raceMargin+slack)
	}
	if bytes < leastCache || !p.allowed() {
		return nil
	}
	p.until = time.Time{} // that takes seconds, in which a kubelet may come
	if p.takeCache != nil {
		return p.takeCache(g, bytes)
	}
	return takeCache(p.ctx, g, bytes)
}

// takeCache has the kernel take page cache.
func takeCache(ctx context.Context, g *cgroup.Group, bytes uint64) error {
	r, err := g.OpenReclaim()
	if err != nil {
		return nil // an old kernel
	}
	defer r.Close()
	return takeFrom(ctx, r, bytes, hasSwap())
}

// reclaimer is memory.reclaim of a cgroup.
type reclaimer interface {
	Reclaim(bytes uint64, s cgroup.Swappiness) error
	Plain() bool
}

// takeFrom takes a little at a time. A kernel that cannot be told to take page cache alone (6.1)
// would have memory of pods go to swap: where there is any, nothing is taken.
func takeFrom(ctx context.Context, r reclaimer, bytes uint64, swap bool) error {
	// 0 bytes tell which kernel it is, and take nothing (v6.1, v6.12 mm/memcontrol.c memory_reclaim)
	if swap {
		if err := r.Reclaim(0, cgroup.SwappinessFile); err != nil || r.Plain() {
			return err
		}
	}
	chunk, end := uint64(1<<20), time.Now().Add(reclaimLimit)
	for taken := uint64(0); taken < bytes && ctx.Err() == nil && time.Now().Before(end); {
		size, began := min(chunk, bytes-taken), time.Now()
		if err := r.Reclaim(size, cgroup.SwappinessFile); err != nil {
			if errors.Is(err, cgroup.ErrNothingLeft) {
				return nil
			}
			return err
		}
		taken += size
		chunk = reclaim.NextMemoryChunk(chunk, time.Since(began))
	}
	return nil
}

// hasSwap reports whether the node has swap space, or does not tell.
func hasSwap() bool {
	var info unix.Sysinfo_t
	return unix.Sysinfo(&info) != nil || info.Totalswap > 0
}
