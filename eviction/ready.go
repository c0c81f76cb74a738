package eviction

import (
	"time"

	"jettison/stats"
)

// Ready is what an observation asks of the caller, in the order in which it has to be done. Its
// slices are valid until the next Observe, Step or Ready.
type Ready struct {
	// At once, before a line is logged: from the observation to the kill every millisecond counts.

	// Met are the thresholds that are met, whatever their grace periods, most urgent first; nil: none
	// is.
	Met []Met
	// HardMet: a hard one is met of what processes take. Whatever stands in a kill's way stops now.
	HardMet bool
	// Look at pods that is worth its price now. One at memory is made now, and Ready asked again after
	// it. A full one is made after the evictions were seen to, unless one was begun meanwhile.
	Look Look
	// Periodic: the full look is due whatever is met.
	Periodic bool
	// Stopped: the breaker holds back evictions.
	Stopped bool
	// Growth: it does, or will after one more in vain, so that Input.Growing is worth its price: the
	// first word of it has to name who grows.
	Growth bool
	// DiskFresh is since when pods' disk usage must have been measured, or Input.Measuring is to be
	// set; zero: any will do.
	DiskFresh time.Time
	// DiskWhole is since when walks of pods that were cut off at the end of their turn must have
	// begun, or they are to be made again, in a longer one: what pods hold does not explain what a
	// disk is short of. No look waits for that. Zero: no such walk is wanted.
	DiskWhole time.Time

	// Then, to be logged and published.

	// Conditions of the node that are true, sorted. The slice must not be changed.
	Conditions []Condition
	// Outcomes are the evictions whose outcome has become known since Advance was called last.
	Outcomes []*Life
	// Finished are those of which nothing more is to come, likewise. One may be in both.
	Finished []*Life

	// Then what else the agent does, which makes way for all of this.

	// Evicting: an eviction is under way that garbage collection and the reclaim of memory make way
	// for: not one whose victim does not die, nor one that takes long.
	Evicting bool
	// DisksShort: a disk is near a threshold that acts, so that pods' usage is to be measured fast.
	DisksShort bool
	// Near is how near memory.available is to a threshold.
	Near Nearness

	// At last, when to look again.

	// Headroom of each of Quick, in that order.
	Headroom [len(Quick)]Headroom
	// Within: no later than that, however much headroom there is.
	Within time.Duration
}

// Nearness is how near a signal is to its nearest threshold.
type Nearness uint8

// How near. Each includes those after it.
const (
	// enoughTimes the threshold, or more: a pod that stalls does so at a limit of its own
	Plenty Nearness = iota
	Enough          // a pod that stalls may do so for what the node is short of soon
	// less than nearTimes the threshold: a decision may be due soon, so that all it takes is kept at
	// hand
	NearShort
	Short
)

const (
	nearTimes   = 2
	enoughTimes = 4
)

// Headroom of a signal.
type Headroom struct {
	Observed stats.Observation
	// above the nearest threshold that is not met; as much as there may be, without one or while it is
	// not observed
	Left uint64
}

// Quick are the signals that may be used up within less than a second.
var Quick = [...]stats.Signal{stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable,
	stats.SignalPIDAvailable}

// Observe is the cheap half of Step: it judges what is known of the node, remembers since when
// thresholds are met and which conditions hold, and says what is to be done. A signal that was not
// observed is neither met nor unmet: what was known of it stays. It does not allocate.
func (m *Manager) Observe(now time.Time, node *stats.NodeStats, s Situation) Ready {
	m.looks.situation = s
	m.cheap.Node = *node
	m.watch.arrange(node)
	m.watch.judge(now, &m.cheap)
	m.settle(now, &m.cheap)
	m.conditions.hold(now, m.watch.all, m.config.PressureTransitionPeriod)
	m.explain.watchQuiet(now, &m.watch, s.ObserveDisks)
	return m.Ready(now)
}

// Ready is the answer of the last Observe, with what became of things since.
func (m *Manager) Ready(now time.Time) Ready {
	r := Ready{
		Met: m.watch.met(&m.seen), Stopped: m.breakers.stops(),
		Growth:     m.breakers.futile(breakerLimit - 1),
		DiskFresh:  m.explain.diskFresh(now, m.watch.all, m.evictions.diskCleaned),
		DiskWhole:  m.explain.diskWhole(&m.watch),
		Conditions: m.conditions.held, Near: m.watch.near(&m.cheap.Node), Within: pollCalm,
		Periodic: m.looks.periodic(now, m.explain.pending, m.causes.uses != nil, m.config.LocalStorage),
	}
	for i := range r.Met {
		r.HardMet = r.HardMet || r.Met[i].Threshold.Hard() && !r.Met[i].Disk()
	}
	memory, full := m.asks(now)
	r.Look = m.looks.due(now, memory, full, r.Periodic)
	for i, signal := range Quick {
		short := false
		if r.Headroom[i], short = m.watch.headroom(signal); short {
			r.Within = pollShort
		}
	}
	r.DisksShort = !m.looks.situation.ObserveDisks && m.watch.disksNear()
	m.evictions.report(now, &r)
	return r
}

// Meets reports whether a threshold is met. Another one for the same signal, softer, may well be.
func (r *Ready) Meets(t *Threshold) bool {
	for i := range r.Met {
		if r.Met[i].Threshold.same(t) {
			return true
		}
	}
	return false
}

// asks tells whether some threshold asks for a victim that a look at memory will find, or for one
// that only a full look will. What has to wait for evictions under way asks for none.
func (m *Manager) asks(now time.Time) (memory, full bool) {
	var hard, soft bool
	for i := range m.watch.all {
		w := &m.watch.all[i]
		if !w.observed.OK || !w.met || m.looks.situation.ObserveDisks && w.info.kind.disk() ||
			now.Sub(w.since) < w.Grace ||
			m.evictions.blocked(now, w, &m.watch) != "" && !m.evictions.doubtful(now, w, &m.watch) {
			continue
		}
		switch {
		case !w.info.kind.memoryView():
			full = true
		case w.Hard():
			hard = true
		default:
			soft = true
		}
	}
	// a hard threshold for a disk comes before a soft one for memory
	return hard || soft && !full, full
}
