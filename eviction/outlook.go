package eviction

import (
	"time"

	"jettison/stats"
)

// Outlook is the eviction that a threshold would cause by the last look, if it asked for a victim
// now.
type Outlook struct {
	Threshold Threshold
	Observed  stats.Observation // last observation of its signal
	// the threshold's value for the observed capacity; 0: not observed
	Limit     uint64
	Met       bool
	Ranking   []Ranked    // the first is the victim
	Protected []Candidate // pods that are never victims
	// why no pod would be evicted; empty: the first pod of Ranking would be
	NoEvictionReason string
}

// DiskUsageTime returns when the oldest disk usage was measured that the ranking is based on. Zero:
// the threshold is not for a disk, or the disk usage of no ranked pod is known.
func (o *Outlook) DiskUsageTime() (oldest time.Time) {
	if !signals[o.Threshold.Signal].kind.disk() {
		return oldest
	}
	for i := range o.Ranking {
		c := &o.Ranking[i].Candidate
		if at := c.Pod.EphemeralStorage.Time; c.Keys.Measured && !at.IsZero() &&
			(oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	return oldest
}

// Outlook returns the eviction that each threshold would cause. It follows the order and the
// exceptions of Step, but changes no state. It serves queries by people, and allocates. The results
// point into the Summary.
func (m *Manager) Outlook(now time.Time, in Input) []Outlook {
	out := make([]Outlook, 0, len(m.watch.all))
	for i := range m.watch.all {
		out = append(out, m.outlook(now, in, &m.watch.all[i]))
	}
	return out
}

func (m *Manager) outlook(now time.Time, in Input, w *watched) Outlook {
	defer m.breakers.snapshot(w)() // a query changes nothing
	defer m.explain.snapshot(w)()
	o := Outlook{Threshold: w.Threshold, Observed: w.observed, Met: w.met}
	if w.observed.OK {
		o.Limit = w.limit
	}
	l := &lists{}
	causes := m.candidates(now, in, w, l)
	var v verdict
	o.Ranking, v = m.judge(now, in, w, l, causes)
	o.Protected, o.NoEvictionReason = l.protected, v.reason
	return o
}
