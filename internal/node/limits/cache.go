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
	// reclaimLimit bounds the reclaim of page cache in a pass.
	reclaimLimit = Every / 2
	// minCache is the minimum amount of page cache to reclaim.
	minCache = minStep
	// slack is reclaimed in addition to the required amount, because pods continue to read files.
	slack = 16 << 20
)

// reclaimCache reclaims inactive page cache of the cgroup above all pods if it keeps memory.max
// above its target. memory.current includes page cache, which grows up to any limit where pods read
// files. A write to memory.max would reclaim it too, but may kill if reclaim fails; memory.reclaim
// never kills. Kernels before v5.19 have no memory.reclaim: there the limit stays above usage. If
// reclaiming all page cache would not suffice, the agent reclaims nothing. Otherwise pods with more other
// memory would lose their page cache in each pass, without effect.
func (p *pass) reclaimCache(g *cgroup.Group, now cgroup.Limit, target uint64) error {
	current, err := g.MemoryCurrent(p.buf[:])
	if _, reached := lower(target, now, current); err != nil || reached {
		return nil // the write of the limit returns the error
	}
	var s cgroup.MemoryStat
	if err := g.MemoryStat(make([]byte, 16<<10), &s); err != nil {
		return nil // the amount of page cache is unknown
	}
	if stats.SaturatingAdd(current-min(s.InactiveFile, current), raceMargin) > target {
		return nil // out of reach
	}
	// current is above target - raceMargin
	bytes := min(s.InactiveFile, stats.SaturatingAdd(current-target, raceMargin+slack))
	if current < target {
		bytes = min(s.InactiveFile, raceMargin+slack)
	}
	if bytes < minCache || !p.allowed() {
		return nil
	}
	p.searchValidUntil = time.Time{} // this takes seconds, in which a kubelet may start
	if p.reclaimPageCache != nil {
		return p.reclaimPageCache(g, bytes)
	}
	return reclaimPageCache(p.ctx, g, bytes)
}

// reclaimPageCache reclaims page cache with memory.reclaim.
func reclaimPageCache(ctx context.Context, g *cgroup.Group, bytes uint64) error {
	r, err := g.OpenReclaim()
	if err != nil {
		return nil // an old kernel
	}
	defer r.Close()
	return reclaimInSteps(ctx, r, bytes, hasSwap())
}

// reclaimer is memory.reclaim of a cgroup.
type reclaimer interface {
	Reclaim(bytes uint64, s cgroup.Swappiness) error
	WithoutSwappiness() bool
}

// reclaimInSteps reclaims in small steps. A kernel that cannot restrict reclaim to page cache (6.1) would
// swap out memory of pods, so with swap nothing is reclaimed there.
func reclaimInSteps(ctx context.Context, r reclaimer, bytes uint64, swap bool) error {
	// a request of 0 bytes detects the kernel's support and reclaims nothing (v6.1, v6.12
	// mm/memcontrol.c memory_reclaim)
	if swap {
		if err := r.Reclaim(0, cgroup.SwappinessFile); err != nil || r.WithoutSwappiness() {
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

// hasSwap reports whether the node has swap, or whether that is unknown.
func hasSwap() bool {
	var info unix.Sysinfo_t
	return unix.Sysinfo(&info) != nil || info.Totalswap > 0
}
