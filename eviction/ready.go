package eviction

import (
	"time"

	"jettison/stats"
)

// Ready lists the work that an observation requires of the caller, in order. Its slices are valid
// until the next Observe, Step or Ready.
type Ready struct {
	// First, before anything is logged: from the observation to the kill every millisecond counts.

	// Met lists the thresholds that are met, in or after their grace periods, most urgent first; nil
	// if no threshold is met.
	Met []Met
	// HardMet reports that a hard threshold is met for a resource that processes use up. The caller
	// must now stop all work that would delay a kill.
	HardMet bool
	// Look is the kind of look at pods that is due. The caller makes a look at memory immediately and
	// then calls Ready again. It makes a full look after it has handled the evictions in progress,
	// unless an eviction began meanwhile.
	Look Look
	// Periodic reports that the full look is due even if no threshold is met.
	Periodic bool
	// BreakerOpen reports that the breaker of a threshold is open.
	BreakerOpen bool
	// NeedsGrowth reports that a breaker is open or opens after one more futile eviction, so that
	// Input.Growing is worth its cost. The first report of an open breaker has to name the cgroup
	// that grows.
	NeedsGrowth bool
	// DiskMeasuredSince is the time since which pods' disk usage must have been measured; otherwise
	// the caller sets Input.Measuring. Zero: any measurement is recent enough.
	DiskMeasuredSince time.Time
	// DiskWalkedSince requests longer walks, because pods do not explain a disk's shortage. The
	// caller repeats, with more time, each walk that was cut off and began before this time. No look
	// waits for the repeated walks. Zero: no walk is repeated.
	DiskWalkedSince time.Time

	// Then, to be logged and published.

	// Conditions of the node that are true, sorted. The slice must not be changed.
	Conditions []Condition
	// Outcomes lists the evictions whose outcome became known since the last call of Acknowledge.
	Outcomes []*Life
	// Finished lists the evictions that ended completely since the last Acknowledge. An eviction may
	// be in Outcomes too.
	Finished []*Life

	// Then the agent's other work, which yields to all of the above.

	// Evicting reports that garbage collection and proactive reclaim must pause for an eviction in
	// progress. Evictions of undying victims and those that exceed busyLimit do not count.
	Evicting bool
	// DisksShort reports that a disk is near a threshold that can evict, so that pods' disk usage
	// must be measured quickly.
	DisksShort bool
	// Near compares memory.available with its nearest threshold.
	Near Nearness

	// Last, when to look again.

	// Headroom of each signal in Quick, in that order.
	Headroom [len(Quick)]Headroom
	// Within is the maximum time until the next look, even with plenty of headroom.
	Within time.Duration
}

// Nearness compares a signal with its nearest threshold.
type Nearness uint8

// The values of Nearness. Each includes those after it.
const (
	// enoughTimes the threshold or more is available: a pod stalls only at its own limit
	Plenty Nearness = iota
	Enough          // less than enoughTimes: a pod may stall because the node will soon be short
	// less than nearTimes the threshold is available: a decision may be due soon, so its data is kept
	// current
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
	// amount above the nearest threshold that is not met; math.MaxUint64 without such a threshold or
	// an observation
	Left uint64
}

// Quick lists the signals that may be used up in less than a second.
var Quick = [...]stats.Signal{stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable,
	stats.SignalPIDAvailable}

// Observe is the cheap half of Step. It evaluates the node, stores since when thresholds are met
// and which conditions are true, and returns what to do. A signal that was not observed is neither
// met nor unmet: its last state stays. Observe does not allocate.
func (m *Manager) Observe(now time.Time, node *stats.NodeStats, s Situation) Ready {
	m.looks.situation = s
	m.lastCheap.Node = *node
	m.watch.applyLayout(node)
	m.watch.evaluate(now, &m.lastCheap)
	m.settle(now, &m.lastCheap)
	m.conditions.update(now, m.watch.all, m.config.PressureTransitionPeriod)
	if m.config.Explain && !s.ObserveDisks {
		m.explain.rates.note(m.watch.all)
	}
	m.explain.scheduleQuietLook(now, &m.watch, s.ObserveDisks)
	return m.Ready(now)
}

// Ready returns the result of the last Observe, updated with later looks and reports.
func (m *Manager) Ready(now time.Time) Ready {
	r := Ready{
		Met: m.watch.met(&m.readyMet), BreakerOpen: m.breakers.anyOpen(),
		NeedsGrowth:       m.breakers.anyFutile(breakerLimit - 1),
		DiskMeasuredSince: m.explain.measuredSince(now, m.watch.all, m.evictions.diskCleaned),
		DiskWalkedSince:   m.explain.walkedSince(&m.watch),
		Conditions:        m.conditions.current, Near: m.watch.near(&m.lastCheap.Node), Within: pollCalm,
	}
	// A disk threshold that is nearly met needs an earlier value of what pods have written.
	counters := m.causes.uses != nil ||
		m.config.Explain && !m.looks.situation.ObserveDisks && m.watch.disksNear(true)
	r.Periodic = m.looks.periodic(now, m.explain.quietLookDue, counters, m.config.LocalStorage)
	for i := range r.Met {
		r.HardMet = r.HardMet || r.Met[i].Threshold.Hard() && !r.Met[i].Disk()
	}
	memory, full := m.looksNeeded(now)
	r.Look = m.looks.due(now, memory, full, r.Periodic)
	for i, signal := range Quick {
		short := false
		if r.Headroom[i], short = m.watch.headroom(signal); short {
			r.Within = pollShort
		}
	}
	r.DisksShort = !m.looks.situation.ObserveDisks && m.watch.disksNear(false)
	m.evictions.report(now, &r)
	return r
}

// Meets reports whether this threshold is met, not another one of the same signal.
func (r *Ready) Meets(t *Threshold) bool {
	for i := range r.Met {
		if r.Met[i].Threshold.same(t) {
			return true
		}
	}
	return false
}

// looksNeeded reports whether a threshold asks for a victim that a look at memory finds, or for one
// that only a full look finds. A threshold that waits for evictions in progress asks for none.
func (m *Manager) looksNeeded(now time.Time) (memory, full bool) {
	var hard, soft bool
	for i := range m.watch.all {
		w := &m.watch.all[i]
		if !w.observed.OK || !w.met || m.looks.situation.ObserveDisks && w.info.kind.disk() ||
			now.Sub(w.metSince) < w.Grace ||
			m.evictions.blocked(now, w, &m.watch) != "" && !m.evictions.worthRemeasuring(now, w, &m.watch) {
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
