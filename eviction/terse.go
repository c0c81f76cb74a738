package eviction

import "slices"

// scratch is memory that steps reuse, so that a step that finds a victim allocates nothing: memory
// may be exhausted at that time.
type scratch struct {
	met      []Met
	lists    [2]lists
	eviction [1]Eviction
}

// freeLists returns the lists that the decision does not hold. With several thresholds, the
// decision keeps the ranking of the first.
func (s *scratch) freeLists(d *Decision) *lists {
	for i := range s.lists {
		l := &s.lists[i]
		if !sameArray(d.Ranking, l.ranked) && !sameArray(d.Protected, l.protected) {
			return l
		}
	}
	return &lists{} // not reached: a decision holds only one
}

// sameArray reports whether two slices begin at the same place.
func sameArray[T any](a, b []T) bool { return cap(a) > 0 && cap(b) > 0 && &a[:1][0] == &b[:1][0] }

// AddTexts completes the decision of a terse step with its reason, the victim's message and the
// event's annotations. It must be called before the step's Summary is overwritten. On any other
// decision it does nothing.
func (d *Decision) AddTexts() {
	if len(d.Evictions) != 1 || d.Evictions[0].Message != "" || len(d.Ranking) == 0 {
		return
	}
	e, v := &d.Evictions[0], &d.Ranking[0].Candidate
	e.Pod = clonePod(v.Pod, v.Object)
	e.Message, e.Annotations = message(&d.Signal, v)
	d.Reason = v.Explain()
	d.Evictions = slices.Clone(d.Evictions) // the next step overwrites the scratch
}

// Inexact reports whether the victim was chosen by an upper bound of its memory usage.
func (e *Eviction) Inexact() bool { return e.Pod.Memory.Quick && e.kind == kindMemory }
