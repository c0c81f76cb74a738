package reclaim

import (
	"time"

	"jettison/stats"
)

// Limits for the start of proactive reclaim.
const (
	// NearMemory times the highest threshold is the amount of available memory below which reclaim
	// begins, and that it aims for.
	NearMemory = 2
	// shortageHorizon is the time up to which an expected shortage matters.
	shortageHorizon = time.Minute
)

// MemoryNeed is the state of one memory signal of a node.
type MemoryNeed struct {
	Available uint64            // bytes
	Hard      stats.Opt[uint64] // the highest hard threshold, in bytes; absent: none
	Soft      stats.Opt[uint64] // the highest soft threshold, in bytes; absent: none
	// Grace is the shortest remaining grace period of soft thresholds that are met. Absent: no such
	// threshold.
	Grace  stats.Opt[time.Duration]
	Fill   float64       // recent decrease of Available, bytes per second
	Margin time.Duration // time reserved for the reaction to a hard threshold
}

// Wish returns the amount to reclaim and the time for it. ok is false in these cases: enough is
// available; usage does not grow and no eviction is imminent; or it is too late, because a hard
// threshold is met.
func (n *MemoryNeed) Wish() (w MemoryTarget, ok bool) {
	limit := max(n.Hard.V, n.Soft.V) // 0 where absent
	if limit == 0 || n.Available/NearMemory >= limit || n.Hard.OK && n.Available < n.Hard.V {
		return w, false
	}
	// at most the limit of one plan
	w.Bytes = max(minPlanBytes, NearMemory*min(MaxMemoryBytes, limit-n.Available/NearMemory))
	w.Time = MaxMemoryTime
	if n.Hard.OK {
		w.Time = MemoryTime(n.Available-n.Hard.V, n.Fill, n.Margin)
	}
	if n.Grace.OK {
		w.Time = min(w.Time, n.Grace.V-n.Margin)
		return w, w.Time >= minMemoryTime
	}
	short := !(n.Fill > 0) ||
		float64(n.Available-min(limit, n.Available))/n.Fill > shortageHorizon.Seconds()
	return w, !short && w.Time >= minMemoryTime
}
