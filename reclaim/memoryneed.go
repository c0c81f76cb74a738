package reclaim

import (
	"time"

	"jettison/stats"
)

// Bounds of when memory is reclaimed.
const (
	// NearMemory times the highest threshold is where it begins, and where it is content.
	NearMemory = 2
	// soon: what will not be short within this time is no concern yet.
	soon = time.Minute
)

// MemoryNeed is how a node stands, by one signal of memory.
type MemoryNeed struct {
	Available uint64            // bytes
	Hard      stats.Opt[uint64] // the highest hard threshold, in bytes; absent: none
	Soft      stats.Opt[uint64] // the highest soft one
	// Grace is what is left of a soft threshold's grace period, the least of them. Absent: none is
	// met.
	Grace  stats.Opt[time.Duration]
	Fill   float64       // bytes a second by which Available was seen to fall lately
	Margin time.Duration // for the reaction to a hard threshold
}

// Wish is how much should come back and how long there is for it. ok is false where nothing is to
// be reclaimed: enough is available, no more is taken and no pod is about to be evicted for what is
// taken already, or it is too late: a hard threshold is met.
func (n *MemoryNeed) Wish() (w MemoryWish, ok bool) {
	limit := max(n.Hard.V, n.Soft.V) // 0 where absent
	if limit == 0 || n.Available/NearMemory >= limit || n.Hard.OK && n.Available < n.Hard.V {
		return w, false
	}
	// no plan asks for more
	w.Bytes = max(worthBytes, NearMemory*min(MaxMemoryBytes, limit-n.Available/NearMemory))
	w.Time = MaxMemoryTime
	if n.Hard.OK {
		w.Time = MemoryTime(n.Available-n.Hard.V, n.Fill, n.Margin)
	}
	if n.Grace.OK {
		w.Time = min(w.Time, n.Grace.V-n.Margin)
		return w, w.Time >= minMemoryTime
	}
	short := !(n.Fill > 0) || float64(n.Available-min(limit, n.Available))/n.Fill > soon.Seconds()
	return w, !short && w.Time >= minMemoryTime
}
