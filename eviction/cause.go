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
//	memory  the pod hit a limit of its own since the step before: memory.events high or max rose
//	io      at least half of what all pods grew by came from this one, and it is beyond an equal share
//	cpu     the same, and it is beyond what it requested
//
// Growth is against the last step in which the signal was calm.

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
	share    float64 // of a core that it requested a second; negative: unknown
	seen     bool
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
		u.share = -1
		if p.CPURequestMillis.OK {
			u.share = float64(p.CPURequestMillis.V.Max) / 1000 * float64(time.Second)
		}
		u.at = now
	}
	maps.DeleteFunc(m.uses, func(_ string, u *podUse) bool { return !u.seen })
}

func (u *use) step(counter stats.Opt[uint64], span time.Duration, calm bool) {
	if !counter.OK {
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
		return stats.Opt[uint64]{OK: u.hitLimit}
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
