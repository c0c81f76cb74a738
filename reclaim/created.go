package reclaim

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// creation returns when the runtime created a container, or the nearest known time if the runtime
// does not report it: of the attempt before, of its sandbox, or of the next attempt. Containers with
// equal times are ordered by attempt. known is false if all of these are unknown.
//
// A runtime may be unable to load a container after a crash, and then reports the state unknown and
// no creation time.
func (w *planner) creation(c *Container) (at time.Time, known bool) {
	if !c.CreatedAt.IsZero() {
		return c.CreatedAt, true
	}
	if w.inferred == nil {
		w.inferCreation()
	}
	at, known = w.inferred[c.ID]
	return at, known
}

// inferCreation sets inferred: the times of the containers without a creation time, by ID.
func (w *planner) inferCreation() {
	w.inferred = map[string]time.Time{}
	all := make([]*Container, 0, len(w.look.Containers))
	for i := range w.look.Containers {
		all = append(all, &w.look.Containers[i])
	}
	same := func(a, b *Container) int {
		return cmp.Or(strings.Compare(a.SandboxID, b.SandboxID), strings.Compare(a.Name, b.Name))
	}
	slices.SortFunc(all, func(a, b *Container) int { return cmp.Or(same(a, b), cmp.Compare(a.Attempt, b.Attempt)) })
	for first := 0; first < len(all); {
		end := first + 1
		for end < len(all) && same(all[first], all[end]) == 0 {
			end++
		}
		w.inferAttempts(all[first:end])
		first = end
	}
}

// inferAttempts infers the times of the attempts of one container, lowest first.
func (w *planner) inferAttempts(attempts []*Container) {
	last := time.Time{}
	if s := w.sandboxes[attempts[0].SandboxID]; s != nil {
		last = s.CreatedAt
	}
	for _, c := range attempts {
		if c.CreatedAt.IsZero() && !last.IsZero() {
			w.inferred[c.ID] = last
		} else if !c.CreatedAt.IsZero() {
			last = c.CreatedAt
		}
	}
	next := time.Time{}
	for _, c := range slices.Backward(attempts) {
		if !c.CreatedAt.IsZero() {
			next = c.CreatedAt
		} else if _, known := w.inferred[c.ID]; !known && !next.IsZero() {
			w.inferred[c.ID] = next
		}
	}
}
