package eviction

import (
	"fmt"
	"time"

	"jettison/stats"
)

// The breaker stops evictions that do not help: something else than pods takes what is short, and each further victim dies for nothing.

// breakerLimit is after how many evictions in a row for one threshold that did not lower the pressure the breaker stops. One that did
// not because other pods grew is none of them: the next pod's end may help.
const breakerLimit = 3

// Growth of a cgroup.
type Growth struct {
	Cgroup string // path below the root
	Bytes  int64  // memory that it uses more than before
}

// breaker is kept per threshold: what a soft one did in vain says nothing of a hard one.
type breaker struct {
	futile int // evictions in a row that did not lower the pressure
	// known are the pods that could have gone when it stopped, and what each used; nil: it has not looked since. What was there then is
	// not what will help now.
	known map[string]uint64
}

// breakerKey tells thresholds apart.
type breakerKey struct {
	signal stats.Signal
	hard   bool
}

func (w *watched) key() breakerKey { return breakerKey{w.Signal, w.Hard()} }

// together is what all pods used of an amount at one moment, and what was left of it then.
type together struct {
	at         time.Time // zero: it was not read
	pods, left uint64
}

// notes takes a new reading of what all pods use together, with what is left at the same moment.
func (w *watched) notes(p *stats.PodsTotal) {
	used := stats.Opt[uint64]{}
	switch w.info.kind {
	case kindMemory:
		used = p.WorkingSetBytes
	case kindSwap:
		used = p.SwapBytes
	case kindPID:
		used = p.Tasks
	}
	if used.OK && used.V <= implausible && w.observed.OK && !p.Time.Equal(w.together.at) {
		w.together = together{at: p.Time, pods: used.V, left: w.observed.Value}
	}
}

// outside reports whether what took what a victim gave back grew outside of the pods, by what all pods used when the eviction began and
// what they use now: at least half of what grew, and of what the victim gave back. What is not known counts as outside, as for disks and
// pressure. known is false while no reading is newer than the victim's end.
func (l *Life) outside(now time.Time, w *watched) (outside, known bool) {
	then, is := l.together, w.together
	if then.at.IsZero() || is.at.IsZero() || now.Sub(is.at) > stats.MaxAge {
		return true, true
	}
	if !is.at.After(l.emptied.Time) {
		return false, false
	}
	fell := int64(then.left) - int64(is.left)
	grew := fell + int64(then.pods) - int64(is.pods)
	returned := int64(l.e.Returns)
	return grew > 0 && grew >= returned/2 && grew >= (fell+returned)/2, true
}

// count takes whether an eviction that is over lowered the pressure. false: that is not observed yet.
func (m *Manager) count(now time.Time, l *Life) bool {
	w := m.watchedBy(&l.e, &l.met.Threshold)
	if l.e.Local() || !m.config.Breaker || w == nil {
		return true
	}
	if !w.observed.OK {
		return false
	}
	if !w.met || w.observed.Better(l.level) {
		delete(m.breakers, w.key())
		return true
	}
	outside, known := l.outside(now, w)
	if outside && known {
		b := m.breakers[w.key()]
		b.futile++
		m.breakers[w.key()] = b
	}
	return known
}

// calm lets the breaker act again for what is not short any more.
func (m *Manager) calm() {
	for i := range m.watched {
		if w := &m.watched[i]; w.observed.OK && w.since.IsZero() {
			delete(m.breakers, w.key())
		}
	}
}

// stops reports whether evictions are held back for something that is short.
func (m *Manager) stops() bool {
	for _, b := range m.breakers {
		if m.config.Breaker && b.futile >= breakerLimit {
			return true
		}
	}
	return false
}

// holdsBack reports whether the breaker holds back a threshold's victim. Where the first in the ranking is one that was not there when it
// stopped, or has grown since, it is tried once.
func (m *Manager) holdsBack(w *watched, ranked []Ranked) bool {
	b := m.breakers[w.key()]
	if !m.config.Breaker || b.futile < breakerLimit {
		return false
	}
	if b.known == nil {
		b.known = make(map[string]uint64, len(ranked))
		for i := range ranked[:min(len(ranked), maxRemembered)] {
			b.known[ranked[i].Pod.PodRef.UID] = ranked[i].Keys.Usage
		}
		m.breakers[w.key()] = b
		return true
	}
	if len(ranked) == 0 {
		return true
	}
	first := &ranked[0].Candidate
	had, was := b.known[first.Pod.PodRef.UID]
	enough := had/dip + 1
	if w.Amount() {
		enough = max(enough, w.limit/dip)
	}
	if was && first.Keys.Usage < add(had, enough) {
		return true
	}
	m.breakers[w.key()] = breaker{futile: breakerLimit - 1}
	return false
}

// stoppedBecause names what grows instead.
func (m *Manager) stoppedBecause(w *watched, growing []Growth) string {
	reason := fmt.Sprintf("%d evictions did not lower the pressure on %s: stopped", m.breakers[w.key()].futile, w.Signal)
	var most Growth
	for _, g := range growing {
		if g.Bytes > most.Bytes {
			most = g
		}
	}
	if most.Bytes > 0 {
		reason += fmt.Sprintf(", %s grows instead, by %s", most.Cgroup, bytesQuantity(uint64(most.Bytes)))
	}
	return reason
}
