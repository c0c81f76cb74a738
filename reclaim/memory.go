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

// Bounds of one plan for memory.
const (
	// MaxMemoryTime bounds how long one plan is carried out, however slowly memory fills: what is
	// observed grows old meanwhile.
	MaxMemoryTime = 2 * time.Second
	// MaxMemoryBytes bounds what one plan asks for.
	MaxMemoryBytes = 512 << 20

	minMemoryTime = 50 * time.Millisecond // less is not worth a look at every pod
	minMemoryAsk  = 1 << 20               // of one pod
	// a plan for less, where more is wished for, is not worth its page faults
	worthBytes = 16 << 20
	// share of time in which a pod waits for memory, from which on nothing of it is cold
	stalls = 0.05
)

// MemoryKind is what pods are asked for.
type MemoryKind uint8

// The kinds. Page cache counts as available before it is reclaimed, in the kubelet's formula as far
// as it is inactive and in the kernel's estimate almost whole: to take it rarely raises a signal.
const (
	Anonymous MemoryKind = iota // memory that goes to swap
	PageCache
	memoryKinds
)

// String is "anonymous memory" or "page cache".
func (k MemoryKind) String() string {
	if k == PageCache {
		return "page cache"
	}
	return "anonymous memory"
}

// MemoryLists are the kernel's, in bytes, as memory.stat has them.
type MemoryLists struct{ InactiveAnon, ActiveAnon, InactiveFile, ActiveFile uint64 }

// MemoryPod is what was seen of one pod's cgroup. What is absent is not known, and where it matters
// the pod is not asked.
type MemoryPod struct {
	UID            string
	Cgroup         string // path below the root of the hierarchy
	QOSClass       stats.QOSClass
	Exempt         bool // the agent's own, critical, or on its way out: never asked
	CurrentBytes   stats.Opt[uint64]
	ProtectedBytes stats.Opt[uint64] // the larger of memory.min and memory.low
	SwapLeftBytes  stats.Opt[uint64] // what memory.swap.max leaves
	Lists          stats.Opt[MemoryLists]
	// StallShare is the share of the last 10 s in which some of its tasks waited for memory, 0 to 1.
	// Absent: the kernel does not say, and no pod is spared for it.
	StallShare stats.Opt[float64]
	Above      []string // paths of the cgroups above it, without the root
}

// MemoryGroup is a cgroup above pods.
type MemoryGroup struct {
	CurrentBytes   stats.Opt[uint64]
	ProtectedBytes stats.Opt[uint64] // the larger of memory.min and memory.low
}

// MemoryLook is what was seen of the memory of pods at one time.
type MemoryLook struct {
	Pods  []MemoryPod
	Above map[string]MemoryGroup // by path
	// SwapFreeBytes of the node, SwapKeepBytes of it to be left free: a threshold may be set for swap.
	SwapFreeBytes stats.Opt[uint64]
	SwapKeepBytes uint64
	// Generations: the multi-generational LRU is on. Then anonymous memory is on the active lists
	// until the kernel has looked for what is idle, which it does only when something is reclaimed.
	Generations bool
}

// MemoryWish is what is asked of a plan.
type MemoryWish struct {
	Kind  MemoryKind
	Bytes uint64        // that would help
	Time  time.Duration // that there is, see MemoryTime
	Rate  float64       // bytes a second that were reclaimed lately
}

// MemoryAsk is what one pod is asked for. The caller that carries it out opens the very cgroup that
// was looked at.
type MemoryAsk struct {
	UID, Cgroup string
	Bytes       uint64
	ColdShare   float64 // of what it uses, 0 to 1: the order
}

// MemoryPlan is which pods to ask for how much, in order.
type MemoryPlan struct {
	Kind  MemoryKind
	Asks  []MemoryAsk
	Bytes uint64 // of all asks
	Why   string // there is none, in words; empty: there is
}

// MemoryTime is for how long memory may be reclaimed before a pod has to go: until what is left
// above the threshold is gone at the rate, in bytes a second, at which it was seen to go lately,
// less a margin for the reaction to that.
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

// MemoryKindFor is the kind that can help: anonymous memory where swap has room for some of it. ok:
// it is known how much swap is free; without swap that is none.
func MemoryKindFor(free stats.Opt[uint64], keep uint64) (kind MemoryKind, ok bool) {
	if spareSwap(free, keep) >= worthBytes {
		return Anonymous, true
	}
	return PageCache, free.OK
}

// spareSwap is how much swap may be used; 0 where it is not known.
func spareSwap(free stats.Opt[uint64], keep uint64) uint64 {
	if !free.OK {
		return 0
	}
	return free.V - min(keep, free.V)
}

// PlanMemory plans which pods to ask for cold memory: BestEffort pods before Burstable ones, never
// others, and of these the coldest first. It reads the look only.
func PlanMemory(look *MemoryLook, w MemoryWish) MemoryPlan {
	plan := MemoryPlan{Kind: w.Kind}
	left, why := bound(look, w)
	if why != "" {
		plan.Why = why
		return plan
	}
	wish := left
	room := map[string]uint64{} // that reclaim may take of each cgroup above pods
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
		plan.Asks = append(plan.Asks, MemoryAsk{UID: p.UID, Cgroup: p.Cgroup, Bytes: bytes,
			ColdShare: p.share})
	}
	if plan.Bytes < min(worthBytes, wish) {
		plan.Why = fmt.Sprintf("only %d MiB of %v are cold and not protected", plan.Bytes>>20, w.Kind)
		plan.Asks, plan.Bytes = nil, 0
	}
	return plan
}

// bound is how much a plan may ask for in all, or why nothing.
func bound(look *MemoryLook, w MemoryWish) (bytes uint64, why string) {
	if w.Time < minMemoryTime {
		return 0, fmt.Sprintf("memory fills too fast: %v are left for it", w.Time.Round(time.Millisecond))
	}
	bytes = min(max(w.Bytes, minMemoryAsk), MaxMemoryBytes)
	if in := w.Rate * min(w.Time, MaxMemoryTime).Seconds(); in >= 0 && in < float64(bytes) {
		bytes = uint64(in)
	}
	if w.Kind == Anonymous {
		kind, known := MemoryKindFor(look.SwapFreeBytes, look.SwapKeepBytes)
		switch {
		case !known:
			return 0, "it is not known how much swap is free"
		case kind != Anonymous:
			return 0, "swap has no room"
		}
		bytes = min(bytes, spareSwap(look.SwapFreeBytes, look.SwapKeepBytes))
	}
	if bytes < minMemoryAsk {
		return 0, fmt.Sprintf("at %.0f MiB a second nothing of worth comes back in %v", w.Rate/(1<<20),
			w.Time.Round(time.Millisecond))
	}
	return bytes, ""
}

// cold is a pod that may be asked.
type cold struct {
	*MemoryPod
	bytes uint64  // of the kind asked for
	share float64 // cold, of what it uses
}

// coldest are the pods that may be asked, in order.
func coldest(look *MemoryLook, kind MemoryKind) []cold {
	out := make([]cold, 0, len(look.Pods))
	swap := spareSwap(look.SwapFreeBytes, look.SwapKeepBytes) > 0
	for i := range look.Pods {
		p := &look.Pods[i]
		if !p.mayBeAsked() {
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

// mayBeAsked: nothing speaks against it, and all is known that an ask is measured by.
func (p *MemoryPod) mayBeAsked() bool {
	known := p.Cgroup != "" && p.CurrentBytes.OK && p.ProtectedBytes.OK && p.Lists.OK
	stalled := p.StallShare.OK && p.StallShare.V >= stalls
	return known && !stalled && !p.Exempt && classOrder(p.QOSClass) != 0
}

// idleAnon is how much anonymous memory may be idle. With generations the lists say little of it:
// half is a guess, which what is read back from swap puts right (MemoryGovernor).
func idleAnon(l MemoryLists, generations bool) uint64 {
	if generations {
		return max(l.InactiveAnon, l.InactiveAnon/2+l.ActiveAnon/2)
	}
	return l.InactiveAnon
}

// classOrder is 0 for pods that are never asked: Guaranteed ones, and those that may be.
func classOrder(c stats.QOSClass) int {
	switch c {
	case stats.BestEffort:
		return 1
	case stats.Burstable:
		return 2
	}
	return 0
}

// Chunks of a plan, that it can be stopped between: each blocks the removal of the cgroup, and with
// it every kill.
const (
	FirstMemoryChunk = 1 << 20
	minChunk         = 256 << 10
	maxChunk         = 4 << 20
	chunkTime        = 10 * time.Millisecond
)

// NextMemoryChunk is how many bytes to ask for at once after a chunk that took so long.
func NextMemoryChunk(bytes uint64, took time.Duration) uint64 {
	switch {
	case took > 2*chunkTime:
		bytes /= 2
	case took < chunkTime/2 && bytes <= math.MaxUint64/2:
		bytes *= 2
	}
	return min(max(bytes, minChunk), maxChunk)
}
