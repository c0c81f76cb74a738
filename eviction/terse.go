package eviction

import "slices"

// scratch is what the Manager keeps of one step for the next, so that a step that finds a victim
// needs no memory: when it is made, there may be none.
type scratch struct {
	met      []Met
	lists    [2]lists
	eviction [1]Eviction
}

// next is the pair of lists that the decision does not hold: of several thresholds the first one's
// ranking stays in it.
func (s *scratch) next(d *Decision) *lists {
	for i := range s.lists {
		l := &s.lists[i]
		if !same(d.Ranking, l.ranked) && !same(d.Protected, l.mayNot) {
			return l
		}
	}
	return &lists{} // not reached: a decision holds one
}

// same reports whether two slices begin at the same place.
func same[T any](a, b []T) bool { return cap(a) > 0 && cap(b) > 0 && &a[:1][0] == &b[:1][0] }

// Words completes the decision of a terse step: why the victim is the victim, and what it and
// others are told. To be called before the step's Summary is written again. On any other decision
// it does nothing.
func (d *Decision) Words() {
	if len(d.Evictions) != 1 || d.Evictions[0].Message != "" || len(d.Ranking) == 0 {
		return
	}
	e, v := &d.Evictions[0], &d.Ranking[0].Candidate
	e.Pod = clonePod(v.Pod, v.Object)
	e.Message, e.Annotations = message(&d.Signal, v)
	d.Reason = v.Explain()
	d.Evictions = slices.Clone(d.Evictions) // the scratch is written again
}

// Inexact: the pod was chosen by an upper bound of its memory.
func (e *Eviction) Inexact() bool { return e.Pod.Memory.Quick && e.kind == kindMemory }
