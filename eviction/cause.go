package eviction

import (
	"maps"
	"math"
	"time"

	"jettison/stats"
)

// Pressure names sufferers, not causes: a thrashing pod slows its neighbours. So a pressure signal
// evicts only a pod that causes it. The counters of pods between two steps tell.
//
//	memory  it reads in again at least half of all that is, and lost that at a limit of its own
//	        (atOwnLimit), unless pods' growth left the node next to nothing: the pressure is that
//	        pod's alone, then. Else at least half of what all pods grew by came from this one, if
//	        pods grew by at least what all else did. Where they grew by next to nothing, or nothing
//	        beside what the node has left, and nothing else grew either, at least half of what was
//	        read in again, if others did not gain more of the node's memory than this one; where
//	        that is next to nothing, too, it hit a limit of its own since the step before:
//	        memory.events high or max rose
//	io      at least half of what all pods grew by came from this one, and it is beyond an equal
//	        share
//	cpu     the same, and it is beyond what it requested
//
// Growth of memory is in what a pod's end returns: anonymous and shared memory, and what the kernel
// keeps for it. Page cache, dentries and inodes stay, and the kernel takes them back when it needs
// them. It is against the last step in which that kind of pressure was calm, by all of its
// thresholds. A pod that suffers reads in again what it lost to another one, or to what grows
// outside of pods, and hits its limit for what is taken from it: so growth counts first. A pod that
// is known to be within its request never goes for memory pressure.

// use is one counter of a pod, as a rate a second.
type use struct {
	counter uint64
	known   bool
	rate    float64 // between the last two steps
	calm    float64 // while the signal was calm last
}

// useKey tells the cgroups of pods apart: of one UID there may be two.
type useKey struct {
	uid string
	id  stats.CgroupID // zero: not known
}

func useOf(p *stats.PodStats) useKey { return useKey{p.PodRef.UID, p.CgroupID} }

// podUse is what a pod did between the last two steps.
type podUse struct {
	at       time.Time
	events   uint64 // memory.events high and max
	known    bool   // events is
	hitLimit bool
	hits     float64 // of a limit, a second
	io, cpu  use
	refault  use
	held     level // what made is made of
	made     made
	usage    level   // with page cache
	share    float64 // of a core that it requested a second; negative: unknown
	seen     bool
}

// pressed is what was done to the node's memory, as of the last look.
type pressed struct {
	calmAt   time.Time // when it was calm last; zero: never
	capacity uint64    // of the node; 0: not known
	left     level     // by the kernel's estimate, which page cache does not lower
	usage    level     // with page cache
	gone     uint64    // bytes that pods held when it was calm which are gone now
	grown    uint64    // bytes that pods grew by since it was calm
	outside  float64   // the same of all else; 0: nothing, or it is not known
	refaults uint64    // bytes a second, more than while it was calm
	alone    bool      // a pod causes it at a limit of its own
}

// causes remembers what pods did between the last two steps, to tell which of them cause a
// pressure.
type causes struct {
	uses    map[useKey]*podUse // nil: no pressure threshold is set
	pressed pressed
}

// What is next to nothing of a node's memory: growth, and what is read in again in a second.
const (
	leastGrowth   = 100  // a hundredth
	leastRefaults = 1024 // a thousandth
)

// reclaimedAHit is what a cgroup loses at most, with pages of 4 KiB, each time that it hits a limit
// of its own. At memory.max 32 pages are asked for (v6.12 mm/vmscan.c try_to_free_mem_cgroup_pages,
// SWAP_CLUSTER_MAX), and with the multi-generational LRU a batch of 64 goes (MIN_LRU_BATCH); at
// memory.high what a task has charged beyond it, up to two batches of 64 (mm/memcontrol.c
// try_charge_memcg, MEMCG_CHARGE_BATCH). Measured of a pod that reads a file over and over, in a
// hit (e2e TestWhatAHitOfALimitReclaims): on 6.12 245 to 285 KiB at either; on 6.1, with the LRU of
// before, 151 to 210 at memory.max, 304 to 421 at memory.high. Half of it counts, so that a pod's
// own limit explains up to twice as much.
const reclaimedAHit = 128 * 4096

// usePressure has it noted what each pod suffers, where a threshold is for pressure.
func (cs *causes) usePressure(all []watched) {
	for i := range all {
		if all[i].info.kind.pressure() && cs.uses == nil {
			cs.uses = map[useKey]*podUse{}
		}
	}
}

// grew is what a pod's memory grew by.
func (u *podUse) grew() uint64 { return uint64(max(u.held.gained(), 0)) }

// again is how much more it reads in again in a second.
func (u *podUse) again() uint64 {
	return uint64(min(max(u.refault.rate-u.refault.calm, 0), math.MaxInt64/2))
}

// atOwnLimit reports whether a pod reads in again at least half of all that is, and lost at least
// half of that at a limit of its own: what others take of a pod keeps it below its limit.
func (cs *causes) atOwnLimit(u *podUse) bool {
	all := &cs.pressed
	return u.hitLimit && u.again() >= all.refaults-all.refaults/2 &&
		u.hits*reclaimedAHit >= float64(u.again())/2
}

// made is what the memory that a pod holds is made of, by what of it is known.
type made uint8

const (
	madeWorkingSet made = iota
	madeOwn             // anonymous and shared memory
	// these, and what the kernel keeps for it and cannot take back: sockets and pipes, not dentries
	madeKernel
)

// hold takes what a pod has of memory. One that was made after memory was calm last had nothing
// then.
func (u *podUse) hold(p *stats.PodStats, calm bool, calmAt time.Time) {
	mem := &p.Memory
	has, of := mem.WorkingSetBytes, madeWorkingSet
	if canBe(mem.AnonBytes) && canBe(mem.ShmemBytes) {
		has, of = stats.Some(stats.SaturatingAdd(mem.AnonBytes.V, mem.ShmemBytes.V)), madeOwn
		if canBe(mem.KernelBytes) {
			has.V, of = stats.SaturatingAdd(has.V, mem.KernelBytes.V), madeKernel
		}
	}
	if canBe(has) && of != u.made {
		u.held.based = u.held.based && u.held.calm == 0 // one figure does not grow into the other
		u.made = of
	}
	isNew := !calmAt.IsZero() && p.StartTime.After(calmAt)
	u.held.step(has, calm, isNew)
	u.usage.step(p.Memory.UsageBytes, calm, isNew)
}

// presses reports whether a pod causes pressure of memory.
func (cs *causes) presses(u *podUse) bool {
	all := &cs.pressed
	few := float64(all.capacity / leastGrowth)
	switch {
	case all.alone:
		return cs.atOwnLimit(u)
	case all.grown > all.capacity/leastGrowth && (!all.left.known || all.grown >= all.left.now/dip):
		return float64(all.grown) >= all.outside && u.grew() >= all.grown-all.grown/2
	case all.outside > few:
		return false
	case all.refaults > all.capacity/leastRefaults:
		others := 0.0 // what they gained of the node's memory
		if all.usage.known && u.usage.known {
			others = all.usage.gained() - u.usage.gained()
		}
		return u.again() >= all.refaults-all.refaults/2 && (others <= few || others <= u.usage.gained())
	}
	return u.hitLimit
}

// sum takes what all pods did together, and what the node lost.
func (cs *causes) sum(s *stats.Summary, calm bool) {
	all := &cs.pressed
	n := &s.Node.Memory
	left, usage := n.Available(stats.MemoryAvailableKernel), n.UsageBytes
	if brokenMemory(&s.Node) { // a recording has no part of a reading that cannot be true
		left, usage = stats.Observation{}, stats.Opt[uint64]{}
	} else {
		all.capacity = n.CapacityBytes.V
	}
	all.left.step(stats.Opt[uint64]{V: left.Value, OK: left.OK}, calm, false)
	all.usage.step(usage, calm, false)
	if calm {
		all.gone = 0
	}
	maps.DeleteFunc(cs.uses, func(_ useKey, u *podUse) bool {
		if !u.seen && u.held.based && !calm {
			all.gone = stats.SaturatingAdd(all.gone, u.held.calm)
		}
		return !u.seen
	})
	shrunk := all.gone
	for _, u := range cs.uses {
		all.grown, all.refaults = stats.SaturatingAdd(all.grown, u.grew()),
			stats.SaturatingAdd(all.refaults, u.again())
		shrunk = stats.SaturatingAdd(shrunk, uint64(max(-u.held.gained(), 0)))
	}
	least := all.capacity / leastRefaults
	if all.left.known {
		all.outside = max(0, float64(shrunk)-float64(all.grown)-all.left.gained())
		switch {
		case all.left.now <= all.grown/dip:
			return
		case all.left.now > all.grown: // nobody's growth presses then
			least = 0
		}
	}
	for _, u := range cs.uses {
		all.alone = all.alone || all.refaults > least && cs.atOwnLimit(u)
	}
}

// follow takes a look into account. It runs only where a pressure threshold is set.
func (cs *causes) follow(now time.Time, s *stats.Summary, ws *watchlist) {
	if cs.uses == nil {
		return
	}
	calm := ws.calmKinds()
	for _, u := range cs.uses {
		u.seen = false
	}
	all := &cs.pressed
	all.capacity, all.grown, all.outside, all.refaults, all.alone = 0, 0, 0, 0, false
	for i := range s.Pods {
		p := &s.Pods[i]
		u := cs.uses[useOf(p)]
		isNew := u == nil
		if isNew {
			u = &podUse{}
			cs.uses[useOf(p)] = u
		}
		u.seen = true
		span := now.Sub(u.at)
		u.hit(p, span)
		u.io.step(stats.Opt[uint64]{V: stats.SaturatingAdd(p.IO.V.ReadBytes, p.IO.V.WriteBytes),
			OK: p.IO.OK}, span, calm[kindIOPressure])
		u.cpu.step(stats.Opt[uint64]{V: uint64(max(p.CPU.Usage.V, 0)), OK: p.CPU.Usage.OK}, span,
			calm[kindCPUPressure])
		u.refault.step(p.Memory.RefaultBytes, span, calm[kindMemoryPressure])
		u.hold(p, calm[kindMemoryPressure], cs.pressed.calmAt)
		if isNew { // it was not there for a look
			cs.pressed.gone -= min(cs.pressed.gone, u.held.calm)
		}
		u.share = -1
		if p.CPURequestMillis.OK {
			u.share = float64(p.CPURequestMillis.V.Max) / 1000 * float64(time.Second)
		}
		u.at = now
	}
	if cs.sum(s, calm[kindMemoryPressure]); calm[kindMemoryPressure] {
		cs.pressed.calmAt = now
	}
}

// hit takes how often a pod hit a limit.
func (u *podUse) hit(p *stats.PodStats, span time.Duration) {
	u.hits, u.hitLimit = 0, false
	hits := stats.SaturatingAdd(p.Events.V.High, p.Events.V.Max)
	if p.Events.OK && u.known && hits > u.events && span > 0 {
		u.hits, u.hitLimit = float64(hits-u.events)/span.Seconds(), true
	}
	u.events, u.known = hits, p.Events.OK
}

func (u *use) step(counter stats.Opt[uint64], span time.Duration, calm bool) {
	if !counter.OK || counter.V >= implausible {
		u.rate, u.known = 0, false
		return
	}
	grown := counter.V >= u.counter // else another cgroup has the name now
	if u.known && grown && span > 0 {
		u.rate = float64(counter.V-u.counter) / span.Seconds()
	} else {
		u.rate = 0
	}
	u.counter, u.known = counter.V, true
	if calm {
		u.calm = u.rate
	}
}

// caused is what a pod did to the pressure that the threshold is for: bytes or nanoseconds of a
// core a second that it grew by. Absent: it did not cause it.
func (cs *causes) caused(w *watched, p *stats.PodStats) stats.Opt[uint64] {
	of := func(u *podUse) *use {
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
		return stats.Opt[uint64]{OK: cs.presses(u)}
	}
	var growth, total float64
	for _, other := range cs.uses {
		growth += max(0, of(other).rate-of(other).calm)
		total += of(other).rate
	}
	share := total / float64(len(cs.uses))
	if w.info.kind == kindCPUPressure && u.share >= 0 {
		share = u.share
	}
	own := of(u).rate - of(u).calm
	if !(own > 0 && own >= growth/2 && of(u).rate > share) {
		return stats.Opt[uint64]{}
	}
	return stats.Some(uint64(min(own, math.MaxInt64/2)))
}
