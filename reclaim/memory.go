package reclaim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// Limits of one plan for memory.
const (
	// MaxMemoryTime limits the execution of one plan, even if memory fills slowly, because the plan's
	// observations become stale.
	MaxMemoryTime = 2 * time.Second
	// MaxMemoryBytes limits the bytes that one plan requests.
	MaxMemoryBytes = 512 << 20

	minMemoryTime = 50 * time.Millisecond // in less time, reading every pod is not worth its cost
	minMemoryAsk  = 1 << 20               // from one pod
	// a smaller plan, if more is needed, is not worth its page faults
	minPlanBytes = 16 << 20
	// from this share of time stalled on memory, a pod counts as having no cold memory
	stallLimit = 0.05
)

// MemoryKind is a kind of reclaimable memory.
type MemoryKind uint8

// Kinds of memory. Page cache counts as available before it is reclaimed: its inactive part in the
// kubelet's formula, almost all of it in the kernel's estimate. Reclaiming page cache therefore
// rarely raises a signal.
const (
	Anonymous MemoryKind = iota // memory that is swapped out
	PageCache
	memoryKinds
)

// String returns "anonymous memory" or "page cache".
func (k MemoryKind) String() string {
	if k == PageCache {
		return "page cache"
	}
	return "anonymous memory"
}

// MemoryLists holds the sizes of the kernel's LRU lists in bytes, from memory.stat.
type MemoryLists struct{ InactiveAnon, ActiveAnon, InactiveFile, ActiveFile uint64 }

// MemoryPod holds the observations of one pod's cgroup. Absent values are unknown. The plan skips a
// pod if a value that it needs is absent.
type MemoryPod struct {
	UID            string
	Cgroup         string // path below the root of the hierarchy
	QOSClass       stats.QOSClass
	Exempt         bool // the agent itself, critical, or ending: never reclaimed from
	CurrentBytes   stats.Opt[uint64]
	ProtectedBytes stats.Opt[uint64] // the larger of memory.min and memory.low
	SwapLeftBytes  stats.Opt[uint64] // swap that the pod may still use, up to memory.swap.max
	Lists          stats.Opt[MemoryLists]
	// StallShare is the share of the last 10 s in which some of the pod's tasks stalled on memory, 0
	// to 1. Absent: the kernel does not report it, and the plan ignores it.
	StallShare stats.Opt[float64]
	Above      []string // paths of the cgroups above the pod's, without the root
}

// MemoryGroup is a cgroup above pods.
type MemoryGroup struct {
	CurrentBytes   stats.Opt[uint64]
	ProtectedBytes stats.Opt[uint64] // the larger of memory.min and memory.low
}

// MemoryLook is a snapshot of the memory of pods.
type MemoryLook struct {
	Pods  []MemoryPod
	Above map[string]MemoryGroup // by path
	// SwapFreeBytes is the free swap of the node, of which SwapKeepBytes must stay free for a
	// threshold.
	SwapFreeBytes stats.Opt[uint64]
	SwapKeepBytes uint64
	// Generations: the multi-generational LRU is enabled. Anonymous memory is then on the active
	// lists until the kernel has searched for idle pages, which it does only while it reclaims.
	Generations bool
}

// MemoryTarget is the goal of a plan.
type MemoryTarget struct {
	Kind  MemoryKind
	Bytes uint64        // amount that would help
	Time  time.Duration // available time, see MemoryTime
	Rate  float64       // recent rate of reclaim, bytes per second
}

// MemoryRequest is the amount to reclaim from one pod. The caller must open the same cgroup that
// was observed.
type MemoryRequest struct {
	UID, Cgroup string
	Bytes       uint64
	ColdShare   float64 // cold share of the pod's usage, 0 to 1; defines the order
}

// MemoryPlan lists the pods to reclaim from, with amounts, in order.
type MemoryPlan struct {
	Kind     MemoryKind
	Requests []MemoryRequest
	Bytes    uint64 // sum of Requests
	Why      string // reason for an empty plan; empty: the plan has Requests
}

// MemoryTime returns the time in which memory may be reclaimed before an eviction is necessary:
// headroom, in bytes above the threshold, divided by the recent fill rate in bytes per second,
// minus a margin for the reaction to a crossing.
func MemoryTime(headroom uint64, fill float64, margin time.Duration) time.Duration {
	if !(fill > 0) {
		return max(0, MaxMemoryTime-margin)
	}
	seconds := float64(headroom) / fill
	if seconds >= (MaxMemoryTime + margin).Seconds() {
		return MaxMemoryTime
	}
	return max(0, time.Duration(seconds*float64(time.Second))-margin)
}

// MemoryKindFor returns the kind that helps: anonymous memory if enough swap is free, else page
// cache. ok reports whether the free swap is known. On a node without swap it is known to be 0.
func MemoryKindFor(free stats.Opt[uint64], keep uint64) (kind MemoryKind, ok bool) {
	if spareSwap(free, keep) >= minPlanBytes {
		return Anonymous, true
	}
	return PageCache, free.OK
}

// spareSwap returns the bytes of swap that may be used; 0 if unknown.
func spareSwap(free stats.Opt[uint64], keep uint64) uint64 {
	if !free.OK {
		return 0
	}
	return free.V - min(keep, free.V)
}

// PlanMemory plans the proactive reclaim of cold memory: from BestEffort pods, then from Burstable
// ones, never from others, the coldest first. It does not change the look.
func PlanMemory(look *MemoryLook, w MemoryTarget) MemoryPlan {
	plan := MemoryPlan{Kind: w.Kind}
	left, why := bound(look, w)
	if why != "" {
		plan.Why = why
		return plan
	}
	wish := left
	room := map[string]uint64{} // bytes reclaimable from each cgroup above pods
	for path, g := range look.Above {
		if g.CurrentBytes.OK && g.ProtectedBytes.OK {
			room[path] = g.CurrentBytes.V - min(g.ProtectedBytes.V, g.CurrentBytes.V)
		}
	}
	for _, p := range coldest(look, w.Kind) {
		bytes := min(p.bytes, left)
		for _, path := range p.Above {
			bytes = min(bytes, room[path])
		}
		if bytes < minMemoryAsk {
			continue
		}
		for _, path := range p.Above {
			room[path] -= bytes
		}
		left -= bytes
		plan.Bytes += bytes
		plan.Requests = append(plan.Requests, MemoryRequest{UID: p.UID, Cgroup: p.Cgroup, Bytes: bytes,
			ColdShare: p.share})
	}
	if plan.Bytes < min(minPlanBytes, wish) {
		plan.Why = fmt.Sprintf("only %dMi of %v are cold and not protected", plan.Bytes>>20, w.Kind)
		plan.Requests, plan.Bytes = nil, 0
	}
	return plan
}

// bound returns the number of bytes that a plan may request in total, or the reason for an empty
// plan.
func bound(look *MemoryLook, w MemoryTarget) (bytes uint64, why string) {
	if w.Time < minMemoryTime {
		return 0, fmt.Sprintf("memory fills too fast: only %v left to reclaim",
			w.Time.Round(time.Millisecond))
	}
	bytes = min(max(w.Bytes, minMemoryAsk), MaxMemoryBytes)
	if in := w.Rate * min(w.Time, MaxMemoryTime).Seconds(); in >= 0 && in < float64(bytes) {
		bytes = uint64(in)
	}
	if w.Kind == Anonymous {
		kind, known := MemoryKindFor(look.SwapFreeBytes, look.SwapKeepBytes)
		switch {
		case !known:
			return 0, "the amount of free swap is unknown"
		case kind != Anonymous:
			return 0, "too little free swap"
		}
		bytes = min(bytes, spareSwap(look.SwapFreeBytes, look.SwapKeepBytes))
	}
	if bytes < minMemoryAsk {
		return 0, fmt.Sprintf("at %.0fMi/s too little can be reclaimed in %v", w.Rate/(1<<20),
			w.Time.Round(time.Millisecond))
	}
	return bytes, ""
}

// cold is a pod to reclaim from.
type cold struct {
	*MemoryPod
	bytes uint64  // of the requested kind
	share float64 // cold share of the pod's usage
}

// coldest returns the pods to reclaim from, in order.
func coldest(look *MemoryLook, kind MemoryKind) []cold {
	out := make([]cold, 0, len(look.Pods))
	swap := spareSwap(look.SwapFreeBytes, look.SwapKeepBytes) > 0
	for i := range look.Pods {
		p := &look.Pods[i]
		if !p.reclaimable() {
			continue
		}
		anon := uint64(0)
		if swap && p.SwapLeftBytes.OK {
			anon = min(idleAnon(p.Lists.V, look.Generations), p.SwapLeftBytes.V)
		}
		c := cold{MemoryPod: p, bytes: p.Lists.V.InactiveFile}
		if kind == Anonymous {
			c.bytes = anon
		}
		c.bytes = min(c.bytes, p.CurrentBytes.V-min(p.ProtectedBytes.V, p.CurrentBytes.V))
		if c.bytes < minMemoryAsk {
			continue
		}
		c.share = min(1, (float64(anon)+float64(p.Lists.V.InactiveFile))/float64(p.CurrentBytes.V))
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b cold) int {
		return cmp.Or(cmp.Compare(classOrder(a.QOSClass), classOrder(b.QOSClass)),
			cmp.Compare(b.share, a.share), cmp.Compare(b.bytes, a.bytes),
			strings.Compare(a.UID, b.UID), strings.Compare(a.Cgroup, b.Cgroup))
	})
	return out
}

// reclaimable reports whether memory may be reclaimed from the pod, and all needed values are
// known.
func (p *MemoryPod) reclaimable() bool {
	known := p.Cgroup != "" && p.CurrentBytes.OK && p.ProtectedBytes.OK && p.Lists.OK
	stalled := p.StallShare.OK && p.StallShare.V >= stallLimit
	return known && !stalled && !p.Exempt && classOrder(p.QOSClass) != 0
}

// idleAnon estimates the idle anonymous memory. With generations, the lists are a poor estimate, so
// half of all anonymous memory counts as idle. If that is too much, MemoryGovernor notices the
// memory read back from swap.
func idleAnon(l MemoryLists, generations bool) uint64 {
	if generations {
		return max(l.InactiveAnon, l.InactiveAnon/2+l.ActiveAnon/2)
	}
	return l.InactiveAnon
}

// classOrder returns 0 for classes that memory is never reclaimed from: Guaranteed and unknown.
func classOrder(c stats.QOSClass) int {
	switch c {
	case stats.BestEffort:
		return 1
	case stats.Burstable:
		return 2
	}
	return 0
}

// Sizes of the chunks of a plan. A plan can be stopped only between chunks, and a chunk in progress
// delays a kill, because it blocks the removal of the cgroup.
const (
	FirstMemoryChunk = 1 << 20
	minChunk         = 256 << 10
	maxChunk         = 4 << 20
	chunkTime        = 10 * time.Millisecond
)

// NextMemoryChunk returns the size of the next request after a chunk of this size and duration.
func NextMemoryChunk(bytes uint64, took time.Duration) uint64 {
	switch {
	case took > 2*chunkTime:
		bytes /= 2
	case took < chunkTime/2 && bytes <= math.MaxUint64/2:
		bytes *= 2
	}
	return min(max(bytes, minChunk), maxChunk)
}
