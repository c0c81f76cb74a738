package eviction

import (
	"maps"
	"time"

	"jettison/stats"
)

// Outlook is whom a threshold would have evicted by the last look, if it asked for a victim now.
type Outlook struct {
	Threshold Threshold
	Observed  stats.Observation // of its signal, as last observed
	Limit     uint64            // its value for the observed capacity; 0: nothing was observed
	Met       bool
	Ranking   []Ranked    // the first one goes
	Protected []Candidate // those that are never victims
	Withheld  string      // why nobody would go all the same; empty: the first one would
}

// Outlook says whom each threshold would have evicted: by the order and the exceptions of Step, with nothing done, decided or remembered.
// It is for people who ask, and allocates. What it points to is the Summary's.
func (m *Manager) Outlook(now time.Time, in Input) []Outlook {
	out := make([]Outlook, 0, len(m.watched))
	for i := range m.watched {
		out = append(out, m.outlook(now, in, &m.watched[i]))
	}
	return out
}

func (m *Manager) outlook(now time.Time, in Input, w *watched) Outlook {
	defer m.recollect(w)()
	o := Outlook{Threshold: w.Threshold, Observed: w.observed, Met: w.met}
	if w.observed.OK {
		o.Limit = w.limit
	}
	l := &lists{}
	causes := m.candidates(now, in, w, l)
	o.Ranking, o.Protected = l.rank(), l.mayNot
	o.Withheld, _ = m.whyNot(now, in, w, o.Ranking, causes)
	return o
}

// recollect returns what puts back all that a question about a threshold may have changed: what the breaker remembers of a ranking, and
// since when a disk's shortage is doubted.
func (m *Manager) recollect(w *watched) func() {
	b, stopped := m.breakers[w.key()]
	b.known = maps.Clone(b.known)
	d, doubted := m.explain.doubts[w.Signal]
	fuller, unsaved := m.explain.fuller, m.explain.unsaved
	return func() {
		if stopped {
			m.breakers[w.key()] = b
		}
		if m.explain.fuller, m.explain.unsaved = fuller, unsaved; doubted {
			m.explain.doubts[w.Signal] = d
		} else {
			delete(m.explain.doubts, w.Signal)
		}
	}
}
