package eviction

import (
	"maps"
	"math"
	"time"

	"jettison/stats"
)

// Pressure names sufferers, not causes: a thrashing pod slows its neighbours. So a pressure signal evicts only a pod that
// causes it. The counters of pods between two steps tell.
//
//	memory  at least half of what all pods grew by came from this one; where they grew by next to nothing, at least half of what was
//	        reclaimed and read in again; where that is next to nothing, too, it hit a limit of its own since the step before:
//	        memory.events high or max rose
//	io      at least half of what all pods grew by came from this one, and it is beyond an equal share
//	cpu     the same, and it is beyond what it requested
//
// Growth is against the last step in which the signal was calm. A pod that suffers reads in again what it lost to another one, and hits its
// limit for what is taken from it: so growth counts first. A pod that is known to be within its request never goes for memory pressure.

// use is one counter of a pod, as a rate a second.
type use struct {
	counter uint64
	known   bool
	rate    float64 // between the last two steps
	calm    float64 // while the signal was calm last
}

// podUse is what a pod did between the last two steps.
type podUse struct {
	at       time.Time
	events   uint64 // memory.events high and max
	known    bool   // events is
	hitLimit bool
	io, cpu  use
	refault  use
	held     uint64  // anonymous and shared memory
	calm     uint64  // that while memory was calm last
	share    float64 // of a core that it requested a second; negative: unknown
	seen     bool
}

// pressed is what all pods did to the node's memory, as of the last look.
type pressed struct {
	calmAt   time.Time // when it was calm last; zero: never
	capacity uint64    // of the node; 0: not known
	grown    uint64    // bytes since it was calm
	refaults uint64    // bytes a second, more than while it was calm
}

// What is next to nothing of a node's memory: growth, and what is read in again in a second.
const (
	leastGrowth   = 100  // a hundredth
	leastRefaults = 1024 // a thousandth
)

// grew is what a pod's memory grew by.
func (u *podUse) grew() uint64 { return u.held - min(u.held, u.calm) }

// again is how much more it reads in again in a second.
func (u *podUse) again() uint64 {
	return uint64(min(max(u.refault.rate-u.refault.calm, 0), math.MaxInt64/2))
}

// hold takes what a pod has of memory. One that was made after memory was calm last had nothing then.
func (u *podUse) hold(p *stats.PodStats, calm bool, calmAt time.Time) {
	has := p.Memory.WorkingSetBytes
	if p.Memory.AnonBytes.OK && p.Memory.ShmemBytes.OK {
		has.V, has.OK = add(p.Memory.AnonBytes.V, p.Memory.ShmemBytes.V), true
	}
	if !has.OK || has.V >= implausible {
		u.held, u.calm = 0, 0
		return
	}
	isNew := u.at.IsZero()
	if u.held = has.V; calm || isNew && (calmAt.IsZero() || !p.StartTime.After(calmAt)) {
		u.calm = has.V
	}
}

// presses reports whether a pod causes pressure of memory.
func (m *Manager) presses(u *podUse) bool {
	all := &m.pressed
	switch {
	case all.grown > all.capacity/leastGrowth:
		return u.grew() >= all.grown-all.grown/2
	case all.refaults > all.capacity/leastRefaults:
		return u.again() >= all.refaults-all.refaults/2
	}
	return u.hitLimit
}

// follow takes a look into account. It runs only where a pressure threshold is set.
func (m *Manager) follow(now time.Time, s *stats.Summary) {
	if m.uses == nil {
		return
	}
	calm := [kinds]bool{}
	for i := range m.watched {
		if w := &m.watched[i]; w.info.kind.pressure() {
			calm[w.info.kind] = w.observed.OK && !w.met
		}
	}
	for _, u := range m.uses {
		u.seen = false
	}
	all := pressed{calmAt: m.pressed.calmAt}
	if !brokenMemory(&s.Node) { // a recording has no part of a reading that cannot be true
		all.capacity = s.Node.Memory.CapacityBytes.V
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		u := m.uses[p.PodRef.UID]
		if u == nil {
			u = &podUse{}
			m.uses[p.PodRef.UID] = u
		}
		u.seen = true
		if hits := add(p.Events.V.High, p.Events.V.Max); p.Events.OK {
			u.hitLimit = u.known && hits > u.events
			u.events, u.known = hits, true
		} else {
			u.hitLimit = false
		}
		span := now.Sub(u.at)
		u.io.step(stats.Opt[uint64]{V: add(p.IO.V.ReadBytes, p.IO.V.WriteBytes), OK: p.IO.OK}, span, calm[kindIOPressure])
		u.cpu.step(stats.Opt[uint64]{V: uint64(max(p.CPU.Usage.V, 0)), OK: p.CPU.Usage.OK}, span, calm[kindCPUPressure])
		u.refault.step(p.Memory.RefaultBytes, span, calm[kindMemoryPressure])
		u.hold(p, calm[kindMemoryPressure], all.calmAt)
		all.grown, all.refaults = add(all.grown, u.grew()), add(all.refaults, u.again())
		u.share = -1
		if p.CPURequestMillis.OK {
			u.share = float64(p.CPURequestMillis.V.Max) / 1000 * float64(time.Second)
		}
		u.at = now
	}
	if m.pressed = all; calm[kindMemoryPressure] {
		m.pressed.calmAt = now
	}
	maps.DeleteFunc(m.uses, func(_ string, u *podUse) bool { return !u.seen })
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

// caused is what a pod did to the pressure that the threshold is for: bytes or nanoseconds of a core a second that it grew by.
// Absent: it did not cause it.
func (m *Manager) caused(w *watched, uid string) stats.Opt[uint64] {
	of := func(u *podUse) *use {
		if w.info.kind == kindIOPressure {
			return &u.io
		}
		return &u.cpu
	}
	u := m.uses[uid]
	if u == nil {
		return stats.Opt[uint64]{}
	}
	if w.info.kind == kindMemoryPressure {
		return stats.Opt[uint64]{OK: m.presses(u)}
	}
	var growth, total float64
	for _, other := range m.uses {
		growth += max(0, of(other).rate-of(other).calm)
		total += of(other).rate
	}
	share := total / float64(len(m.uses))
	if w.info.kind == kindCPUPressure && u.share >= 0 {
		share = u.share
	}
	own := of(u).rate - of(u).calm
	if !(own > 0 && own >= growth/2 && of(u).rate > share) {
		return stats.Opt[uint64]{}
	}
	return stats.Some(uint64(min(own, math.MaxInt64/2)))
}
