package eviction

import (
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

// Outlook says whom each threshold would have evicted: by the order and the exceptions of Step,
// with nothing done, decided or remembered. It is for people who ask, and allocates. What it points
// to is the Summary's.
func (m *Manager) Outlook(now time.Time, in Input) []Outlook {
	out := make([]Outlook, 0, len(m.watch.all))
	for i := range m.watch.all {
		out = append(out, m.outlook(now, in, &m.watch.all[i]))
	}
	return out
}

func (m *Manager) outlook(now time.Time, in Input, w *watched) Outlook {
	defer m.breakers.recollect(w)() // a question changes nothing
	defer m.explain.recollect(w)()
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
