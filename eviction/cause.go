package eviction

import (
	"maps"
	"math"
	"time"

	"jettison/stats"
)

// A pressure signal shows which pods suffer, not which pod causes the pressure: a thrashing pod
// slows its neighbours. Only a pod that causes the pressure is therefore evicted. The pods'
// counters at two consecutive steps show the cause.
//
//	memory  The first of these cases that applies decides:
//	        1. A pod causes at least half of all refaults and lost that memory at its own limit
//	           (atOwnLimit). The pressure is that pod's alone. This does not apply if the growth of
//	           pods left the node next to nothing.
//	        2. Pods grew by at least as much as everything else: the pod with at least half of the
//	           growth of all pods.
//	        3. Neither pods nor anything else grew noticeably, or pods grew by next to nothing
//	           compared with the rest of the node: the pod with at least half of the refaults, if
//	           others did not gain more of the node's memory than this pod.
//	        4. There are next to no refaults either: a pod that hit its own limit since the
//	           previous step (memory.events high or max rose).
//	io      the pod with at least half of the growth of all pods, if it is above an equal share
//	cpu     the same, if it is above its request
//
// Growth of memory means growth of the memory that a pod's end returns: anonymous and shared
// memory, and kernel memory that cannot be reclaimed. Page cache, dentries and inodes stay, and the
// kernel reclaims them when necessary. Growth is measured from the last step in which all
// thresholds of that kind of pressure were calm. A pod that suffers refaults the memory that
// another pod, or something outside of pods, took from it, and hits its limit because of that.
// Growth therefore counts first. A pod that is known to be within its request is never evicted for
// memory pressure.

// counterRate is one counter of a pod, as a rate per second.
type counterRate struct {
	counter  uint64
	known    bool
	rate     uint64 // between the last two steps; whole, so that sums do not depend on their order
	calmRate uint64 // when the signal was last calm
}

// more returns how much the rate is above that of the calm.
func (u *counterRate) more() uint64 { return u.rate - min(u.calmRate, u.rate) }

// useKey identifies the cgroup of a pod. Two cgroups may have the same pod UID.
type useKey struct {
	uid string
	id  stats.CgroupID // zero: unknown
}

func useOf(p *stats.PodStats) useKey { return useKey{p.PodRef.UID, p.CgroupID} }

// podActivity is the activity of a pod between the last two steps.
type podActivity struct {
	at         time.Time
	events     uint64 // memory.events high and max
	known      bool   // events is known
	hitLimit   bool
	hitRate    float64 // times per second that the pod hit its own limit
	io, cpu    counterRate
	refault    counterRate
	ownMemory  level // the pod's memory, computed as figure states
	figure     memoryFigure
	usage      level   // with page cache
	cpuRequest float64 // requested CPU time per second, in nanoseconds; negative: unknown
	seen       bool
}

// nodeMemory is the state of the node's memory as of the last look.
type nodeMemory struct {
	calmAt        time.Time // when the pressure was last calm; zero: never
	capacity      uint64    // of the node; 0: unknown
	left          level     // the kernel's estimate, which page cache does not lower
	usage         level     // with page cache
	goneSinceCalm uint64    // bytes that pods held at calmAt and that are gone now
	grown         uint64    // growth of pods since calmAt, in bytes
	outside       float64   // growth of everything else; 0: none, or unknown
	refaults      uint64    // bytes per second more than at calmAt
	oneAtLimit    bool      // a pod causes the pressure at its own limit
}

// causes holds the pods' activity between the last two steps, to find which of them cause a
// pressure.
type causes struct {
	uses map[useKey]*podActivity // nil: no pressure threshold is set
	node nodeMemory
}

// Shares of the node's memory that count as next to nothing: growth, and refaults per second.
const (
	leastGrowth   = 100  // one hundredth
	leastRefaults = 1024 // about one thousandth
)

// reclaimedPerHit is the maximum amount that the kernel reclaims from a cgroup each time that the
// cgroup hits its own limit, with pages of 4 KiB.
//
// At memory.max the kernel asks for 32 pages (v6.12 mm/vmscan.c try_to_free_mem_cgroup_pages,
// SWAP_CLUSTER_MAX), and the multi-generational LRU reclaims a batch of 64 (MIN_LRU_BATCH). At
// memory.high it reclaims the charges of a task above the limit, up to two batches of 64
// (mm/memcontrol.c try_charge_memcg, MEMCG_CHARGE_BATCH). Measured per hit with a pod that reads a
// file repeatedly (e2e TestWhatAHitOfALimitReclaims): 245 to 285 KiB at either limit on 6.12; on
// 6.1, with the older LRU, 151 to 210 KiB at memory.max and 304 to 421 KiB at memory.high.
// atOwnLimit requires only half of the refaults, so a pod's own limit explains up to twice this
// amount.
const reclaimedPerHit = 128 * 4096

// enable starts to track the pods' activity if a threshold for pressure is set.
func (cs *causes) enable(all []watched) {
	for i := range all {
		if all[i].info.kind.pressure() && cs.uses == nil {
			cs.uses = map[useKey]*podActivity{}
		}
	}
}

// grew returns the growth of a pod's memory.
func (u *podActivity) grew() uint64 { return uint64(max(u.ownMemory.gained(), 0)) }

// refaultGrowth returns how much more the pod refaults per second.
func (u *podActivity) refaultGrowth() uint64 { return u.refault.more() }

// atOwnLimit reports whether a pod causes at least half of all refaults, and lost at least half of
// the refaulted memory at its own limit. A pod that loses memory to others stays below its limit.
func (cs *causes) atOwnLimit(u *podActivity) bool {
	all := &cs.node
	return u.hitLimit && u.refaultGrowth() >= all.refaults-all.refaults/2 &&
		u.hitRate*reclaimedPerHit >= float64(u.refaultGrowth())/2
}

// memoryFigure states which counters a pod's memory is computed from. Not all counters are always
// known.
type memoryFigure uint8

const (
	figureWorkingSet memoryFigure = iota
	figureOwn                     // anonymous and shared memory
	// anonymous, shared and unreclaimable kernel memory: sockets and pipes, not dentries
	figureKernel
)

// trackMemory stores a pod's memory. A pod that started after memory was last calm held nothing
// then.
func (u *podActivity) trackMemory(p *stats.PodStats, calm bool, calmAt time.Time) {
	mem := &p.Memory
	value, figure := mem.WorkingSetBytes, figureWorkingSet
	if plausible(mem.AnonBytes) && plausible(mem.ShmemBytes) {
		value, figure = stats.Some(stats.SaturatingAdd(mem.AnonBytes.V, mem.ShmemBytes.V)), figureOwn
		if plausible(mem.KernelBytes) {
			value.V, figure = stats.SaturatingAdd(value.V, mem.KernelBytes.V), figureKernel
		}
	}
	if plausible(value) && figure != u.figure {
		// values of different figures cannot be compared
		u.ownMemory.hasCalm = u.ownMemory.hasCalm && u.ownMemory.calm == 0
		u.figure = figure
	}
	isNew := !calmAt.IsZero() && p.StartTime.After(calmAt)
	u.ownMemory.update(value, calm, isNew)
	u.usage.update(p.Memory.UsageBytes, calm, isNew)
}

// causesMemoryPressure reports whether a pod causes memory pressure.
func (cs *causes) causesMemoryPressure(u *podActivity) bool {
	all := &cs.node
	negligible := float64(all.capacity / leastGrowth)
	switch {
	case all.oneAtLimit:
		return cs.atOwnLimit(u)
	case all.grown > all.capacity/leastGrowth && (!all.left.known || all.grown >= all.left.now/dip):
		return float64(all.grown) >= all.outside && u.grew() >= all.grown-all.grown/2
	case all.outside > negligible:
		return false
	case all.refaults > all.capacity/leastRefaults:
		othersGained := 0.0 // memory that the others gained
		if all.usage.known && u.usage.known {
			othersGained = all.usage.gained() - u.usage.gained()
		}
		return u.refaultGrowth() >= all.refaults-all.refaults/2 &&
			(othersGained <= negligible || othersGained <= u.usage.gained())
	}
	return u.hitLimit
}

// sumUp adds up the activity of all pods and the node's loss.
func (cs *causes) sumUp(s *stats.Summary, calm bool) {
	all := &cs.node
	n := &s.Node.Memory
	left, usage := n.Available(stats.MemoryAvailableKernel), n.UsageBytes
	if brokenMemory(&s.Node) { // a recording does not contain an implausible reading
		left, usage = stats.Observation{}, stats.Opt[uint64]{}
	} else {
		all.capacity = n.Ordinary().V
	}
	all.left.update(stats.Opt[uint64]{V: left.Value, OK: left.OK}, calm, false)
	all.usage.update(usage, calm, false)
	if calm {
		all.goneSinceCalm = 0
	}
	maps.DeleteFunc(cs.uses, func(_ useKey, u *podActivity) bool {
		if !u.seen && u.ownMemory.hasCalm && !calm {
			all.goneSinceCalm = stats.SaturatingAdd(all.goneSinceCalm, u.ownMemory.calm)
		}
		return !u.seen
	})
	shrunk := all.goneSinceCalm
	for _, u := range cs.uses {
		all.grown, all.refaults = stats.SaturatingAdd(all.grown, u.grew()),
			stats.SaturatingAdd(all.refaults, u.refaultGrowth())
		shrunk = stats.SaturatingAdd(shrunk, uint64(max(-u.ownMemory.gained(), 0)))
	}
	least := all.capacity / leastRefaults
	if all.left.known {
		all.outside = max(0, float64(shrunk)-float64(all.grown)-all.left.gained())
		switch {
		case all.left.now <= all.grown/dip:
			return
		case all.left.now > all.grown: // the growth of pods does not cause the pressure
			least = 0
		}
	}
	for _, u := range cs.uses {
		all.oneAtLimit = all.oneAtLimit || all.refaults > least && cs.atOwnLimit(u)
	}
}

// follow updates the activity of all pods with a look. It does nothing unless a pressure threshold
// is set.
func (cs *causes) follow(now time.Time, s *stats.Summary, ws *watchlist) {
	if cs.uses == nil {
		return
	}
	calm := ws.calmKinds()
	for _, u := range cs.uses {
		u.seen = false
	}
	all := &cs.node
	all.capacity, all.grown, all.outside, all.refaults, all.oneAtLimit = 0, 0, 0, 0, false
	for i := range s.Pods {
		p := &s.Pods[i]
		u := cs.uses[useOf(p)]
		isNew := u == nil
		if isNew {
			u = &podActivity{}
			cs.uses[useOf(p)] = u
		}
		u.seen = true
		span := now.Sub(u.at)
		u.trackHits(p, span)
		u.io.update(stats.Opt[uint64]{V: stats.SaturatingAdd(p.IO.V.ReadBytes, p.IO.V.WriteBytes),
			OK: p.IO.OK}, span, calm[kindIOPressure])
		u.cpu.update(stats.Opt[uint64]{V: uint64(max(p.CPU.Usage.V, 0)), OK: p.CPU.Usage.OK}, span,
			calm[kindCPUPressure])
		u.refault.update(p.Memory.RefaultBytes, span, calm[kindMemoryPressure])
		u.trackMemory(p, calm[kindMemoryPressure], cs.node.calmAt)
		if isNew { // an earlier look may have counted the pod as gone
			cs.node.goneSinceCalm -= min(cs.node.goneSinceCalm, u.ownMemory.calm)
		}
		u.cpuRequest = -1
		if p.CPURequestMillis.OK {
			u.cpuRequest = float64(p.CPURequestMillis.V.Max) / 1000 * float64(time.Second)
		}
		u.at = now
	}
	if cs.sumUp(s, calm[kindMemoryPressure]); calm[kindMemoryPressure] {
		cs.node.calmAt = now
	}
}

// trackHits stores how often a pod hit a limit.
func (u *podActivity) trackHits(p *stats.PodStats, span time.Duration) {
	u.hitRate, u.hitLimit = 0, false
	hits := stats.SaturatingAdd(p.Events.V.High, p.Events.V.Max)
	if p.Events.OK && u.known && hits > u.events && span > 0 {
		u.hitRate, u.hitLimit = float64(hits-u.events)/span.Seconds(), true
	}
	u.events, u.known = hits, p.Events.OK
}

func (u *counterRate) update(counter stats.Opt[uint64], span time.Duration, calm bool) {
	if !counter.OK || counter.V >= implausible {
		u.rate, u.known = 0, false
		return
	}
	grown := counter.V >= u.counter // false: another cgroup now has the name
	if u.known && grown && span > 0 {
		u.rate = uint64(min(float64(counter.V-u.counter)/span.Seconds(), math.MaxInt64/2))
	} else {
		u.rate = 0
	}
	u.counter, u.known = counter.V, true
	if calm {
		u.calmRate = u.rate
	}
}

// partIn returns a pod's part in the pressure of a threshold: its growth in bytes or nanoseconds of
// CPU time per second, or 0 for memory. It is absent if the pod does not cause the pressure.
func (cs *causes) partIn(w *watched, p *stats.PodStats) stats.Opt[uint64] {
	rateOf := func(u *podActivity) *counterRate {
		if w.info.kind == kindIOPressure {
			return &u.io
		}
		return &u.cpu
	}
	u := cs.uses[useOf(p)]
	if u == nil {
		return stats.Opt[uint64]{}
	}
	if w.info.kind == kindMemoryPressure {
		return stats.Opt[uint64]{OK: cs.causesMemoryPressure(u)}
	}
	var growth, total uint64
	for _, other := range cs.uses {
		growth = stats.SaturatingAdd(growth, rateOf(other).more())
		total = stats.SaturatingAdd(total, rateOf(other).rate)
	}
	share := float64(total) / float64(len(cs.uses))
	if w.info.kind == kindCPUPressure && u.cpuRequest >= 0 {
		share = u.cpuRequest
	}
	own := rateOf(u).more()
	if own == 0 || own < growth-growth/2 || float64(rateOf(u).rate) <= share {
		return stats.Opt[uint64]{}
	}
	return stats.Some(own)
}
