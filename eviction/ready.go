package eviction

import (
	"math"
	"time"

	"jettison/stats"
)

// Situation is what decides whether a look at pods is worth its price, beside what is observed.
type Situation struct {
	ObserveDisks bool // as Input.ObserveDisks
	Limited      bool // some pod's object has limits on local storage
	Recording    bool // frames are wanted, also of a node that is calm
}

// Ready is what an observation asks of the caller, in the order in which it has to be done. Its slices are valid until the next Observe,
// Step or Ready.
type Ready struct {
	// At once, before a line is logged: from the observation to the kill every millisecond counts.

	// Met are the thresholds that are met, whatever their grace periods, most urgent first; nil: none is.
	Met []Met
	// HardMet: a hard one is met of what processes take. Whatever stands in a kill's way stops now.
	HardMet bool
	// Look at pods that is worth its price now. One at memory is made now, and Ready asked again after it. A full one is made after the
	// evictions were seen to, unless one was begun meanwhile.
	Look Look
	// Periodic: the full look is due whatever is met.
	Periodic bool
	// Stopped: the breaker holds back evictions.
	Stopped bool
	// Growth: it does, or will after one more in vain, so that Input.Growing is worth its price: the first word of it has to name who grows.
	Growth bool
	// DiskFresh is since when pods' disk usage must have been measured, or Input.Measuring is to be set; zero: any will do.
	DiskFresh time.Time
	// DiskWhole is since when walks of pods that were cut off at the end of their turn must have begun, or they are to be made again, in a
	// longer one: what pods hold does not explain what a disk is short of. No look waits for that. Zero: no such walk is wanted.
	DiskWhole time.Time

	// Then, to be logged and published.

	// Conditions of the node that are true, sorted. The slice must not be changed.
	Conditions []Condition
	// Outcomes are the evictions whose outcome has become known since Advance was called last.
	Outcomes []*Life
	// Finished are those of which nothing more is to come, likewise. One may be in both.
	Finished []*Life

	// Then what else the agent does, which makes way for all of this.

	// Evicting: an eviction is under way that garbage collection and the reclaim of memory make way for: not one whose victim does not
	// die, nor one that takes long.
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

// Look at pods.
type Look uint8

// The looks.
const (
	LookNone   Look = iota
	LookMemory      // at the memory and tasks of pods, with Input.MemoryOnly
	LookFull
)

// Nearness is how near a signal is to its nearest threshold.
type Nearness uint8

// How near. Each includes those after it.
const (
	Plenty    Nearness = iota // enoughTimes the threshold, or more: a pod that stalls does so at a limit of its own
	Enough                    // a pod that stalls may do so for what the node is short of soon
	NearShort                 // less than nearTimes the threshold: a decision may be due soon, so that all it takes is kept at hand
	Short
)

const (
	nearTimes   = 2
	enoughTimes = 4
)

// Headroom of a signal.
type Headroom struct {
	Observed stats.Observation
	Left     uint64 // above the nearest threshold that is not met; as much as there may be, without one or while it is not observed
}

// Quick are the signals that may be used up within less than a second.
var Quick = [...]stats.Signal{stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable, stats.SignalPIDAvailable}

// When a look is worth its price again, and is made at the latest.
const (
	pollReturn  = 5 * time.Millisecond   // between two observations while the memory of a victim is on its way back
	pollShort   = 100 * time.Millisecond // while a quick signal is short; and between two looks at memory that led to no eviction
	pollCalm    = time.Second            // else
	fullAgain   = 2 * time.Second        // between two full looks that led to no eviction
	fullRegular = 10 * time.Second       // between two full looks that are made whatever is met
)

// Observe is the cheap half of Step: it judges what is known of the node, remembers since when thresholds are met and which
// conditions hold, and says what is to be done. A signal that was not observed is neither met nor unmet: what was known of it stays. It
// does not allocate.
func (m *Manager) Observe(now time.Time, node *stats.NodeStats, s Situation) Ready {
	m.situation = s
	m.cheap.Node = *node
	m.arrange(node)
	m.judge(now, &m.cheap)
	m.settle(now, &m.cheap)
	m.hold(now)
	m.watchQuiet(now)
	return m.Ready(now)
}

// Ready is the answer of the last Observe, with what became of things since.
func (m *Manager) Ready(now time.Time) Ready {
	r := Ready{
		Met: m.met(&m.seen), Stopped: m.stops(), Growth: m.futile(breakerLimit - 1), DiskFresh: m.diskFresh(now),
		DiskWhole:  m.diskWhole(),
		Conditions: m.conditions, Near: m.near(&m.cheap.Node), Periodic: m.periodic(now), Within: pollCalm,
	}
	for i := range r.Met {
		r.HardMet = r.HardMet || r.Met[i].Threshold.Hard() && !r.Met[i].Disk()
	}
	r.Look = m.look(now, r.Periodic)
	for i, signal := range Quick {
		short := false
		if r.Headroom[i], short = m.headroom(signal); short {
			r.Within = pollShort
		}
	}
	for i := range m.watched {
		w := &m.watched[i]
		if w.info.kind.disk() && w.info.fs != containerFs && w.observed.OK && !m.situation.ObserveDisks {
			r.DisksShort = r.DisksShort || w.observed.Near(w.limit, nearTimes)
		}
	}
	m.report(now, &r)
	return r
}

// report tells of the evictions.
func (m *Manager) report(now time.Time, r *Ready) {
	m.known, m.finished = m.known[:0], m.finished[:0]
	for _, l := range m.lives {
		if l.outcome != OutcomeUnknown && !l.told {
			l.shown = true
			m.known = append(m.known, l)
		}
		if l.outcome != OutcomeUnknown && l.clean && !l.ended && !l.gone {
			l.ending = true
			m.finished = append(m.finished, l)
		}
		hit := l.began.Time
		if !l.killed.Time.IsZero() {
			hit = l.killed.Time
		}
		r.Evicting = r.Evicting || l.Leaving() && now.Sub(hit) < busyLimit
		switch {
		case l.returns(now):
			r.Within = pollReturn
		case l.sharedAwaited(now) && !l.settled: // others fill tmpfs meanwhile: between two looks that hides what is gone
			r.Within = min(r.Within, pollShort)
		}
	}
	r.Outcomes, r.Finished = m.known, m.finished
}

// returns reports whether the memory of a victim is on its way back, so that each millisecond counts.
func (l *Life) returns(now time.Time) bool {
	return l.outcome == OutcomeUnknown && !l.gone && (l.e.Urgent() || !l.killed.Time.IsZero()) &&
		(!l.Dead() || now.Sub(l.emptied.Time) < settleLimit)
}

// Advance takes that the Outcomes and Finished of the last Ready were seen to: they are not told again.
func (m *Manager) Advance() {
	for _, l := range m.lives {
		l.told, l.ended = l.told || l.shown, l.ended || l.ending
		l.shown, l.ending = false, false
	}
	m.forget()
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

// look finds the look that is worth its price. One that led to no eviction is not repeated at once.
func (m *Manager) look(now time.Time, periodic bool) Look {
	memory, full := m.asks(now)
	switch {
	case memory && now.Sub(m.fruitless[LookMemory]) >= pollShort:
		return LookMemory
	case periodic || full && now.Sub(m.fruitless[LookFull]) >= fullAgain:
		return LookFull
	}
	return LookNone
}

// asks tells whether some threshold asks for a victim that a look at memory will find, or for one that only a full look will. What has
// to wait for evictions under way asks for none.
func (m *Manager) asks(now time.Time) (memory, full bool) {
	var hard, soft bool
	for i := range m.watched {
		w := &m.watched[i]
		if !w.observed.OK || !w.met || m.situation.ObserveDisks && w.info.kind.disk() || now.Sub(w.since) < w.Grace ||
			m.blocked(now, w) != "" && !m.doubtful(now, w) {
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
	return hard || soft && !full, full // a hard threshold for a disk comes before a soft one for memory
}

// looked remembers that a look was made, which leads to no eviction unless one is begun.
func (m *Manager) looked(now time.Time, look Look) {
	m.lastLook, m.fruitless[look] = look, now
	if look == LookFull {
		m.lastFull = now
	}
}

// periodic reports whether a full look is due whatever is met: pods have limits of their own to be held against, or counters that tell
// who causes a pressure, and files that tell who fills a disk, only against what they were before. Of these nothing is known until the
// first look after they were measured: the disk may be short soon.
func (m *Manager) periodic(now time.Time) bool {
	s, since := &m.situation, now.Sub(m.lastFull)
	return m.explain.pending && since >= fullAgain ||
		since >= fullRegular && (m.uses != nil || s.Recording || s.Limited && m.config.LocalStorage && !s.ObserveDisks)
}

// LooksShort reports whether memory.available is below a threshold by what was read of a node: then what a cheap look does not count is
// worth being read before it is observed.
func (m *Manager) LooksShort(node *stats.NodeStats) bool { return m.near(node) == Short }

// near is how near memory.available is to a threshold. One whose minimum reclaim is not there yet is met.
func (m *Manager) near(node *stats.NodeStats) (n Nearness) {
	o := m.Memory(node)
	for i := range m.watched {
		w := &m.watched[i]
		if w.Signal != stats.SignalMemoryAvailable || !o.OK {
			continue
		}
		limit := w.Value.Of(o.Capacity)
		switch {
		case o.Short(limit) || w.held && o.Short(w.enough(o.Capacity)):
			return Short
		case o.Near(limit, nearTimes):
			n = NearShort
		case o.Near(limit, enoughTimes):
			n = max(n, Enough)
		}
	}
	return n
}

// headroom is how much is left of a signal by what was last observed. short: some threshold of it is met.
func (m *Manager) headroom(signal stats.Signal) (h Headroom, short bool) {
	h.Left = math.MaxUint64
	for i := range m.watched {
		w := &m.watched[i]
		if w.Signal != signal {
			continue
		}
		h.Observed = w.observed
		switch {
		case !w.observed.OK:
		case w.met:
			short = true
		default:
			h.Left = min(h.Left, w.observed.Left(w.limit))
		}
	}
	return h, short
}
