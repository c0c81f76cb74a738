package deschedule

import (
	"cmp"
	"fmt"
	"slices"

	"jettison/cluster/model"
)

// maxEnablers limits the pods that enabler tries, and the violating pods that each may enable.
const maxEnablers = 8

// enabler returns a pod whose move lets a node accept one that violates a constraint; nil: none. It
// has one of the violated constraints, too. Its own move makes counts more even and violates
// nothing more.
func (b *balancing) enabler() *spreadPod {
	violated := make([]bool, len(b.counts))
	for i := range b.counts {
		violated[i] = b.counts[i].total() > 0
	}
	stuck := b.distinct(func(p *spreadPod) bool {
		return slices.ContainsFunc(p.own, func(i int) bool { return b.counts[i].violated(p.Node) })
	})
	if len(stuck) == 0 || len(b.constraints) < 2 {
		return nil
	}
	movable := b.distinct(func(p *spreadPod) bool {
		return slices.ContainsFunc(p.own, func(i int) bool { return violated[i] })
	})
	for _, p := range movable {
		if b.evictable(p.Pod) && b.preEvictable(p.Pod) && b.enables(p, stuck) {
			return p
		}
	}
	return nil
}

// distinct returns candidates that a function selects, one of each owner and node, those in the
// fullest domains first.
func (b *balancing) distinct(selects func(*spreadPod) bool) (out []*spreadPod) {
	type place struct {
		node  *model.Node
		owner int32
	}
	seen, fullness := map[place]bool{}, map[*spreadPod]int{}
	for _, p := range b.candidates {
		at := place{p.Node, p.OwnerNumber}
		if !b.isOpen(p) || seen[at] || isReplacement(p.Pod) || !selects(p) {
			continue
		}
		seen[at] = true
		for _, i := range p.counted {
			_, full := b.counts[i].leaving(p.Node)
			fullness[p] += full
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(x, y *spreadPod) int { return cmp.Compare(fullness[y], fullness[x]) })
	return out[:min(len(out), maxEnablers)]
}

// enables reports whether one of the pods in violation could move with progress after a pod moved.
func (b *balancing) enables(p *spreadPod, stuck []*spreadPod) bool {
	from := p.Node
	to := b.proposeEnabler(p).best(slices.Clone(b.cluster.FitCheck(p.Pod).TopNodes(b.schedulers.of(p.Pod.Pod))))
	if to == nil {
		return false
	}
	moves, counts := b.cluster.Moves(), slices.Clone(b.counts)
	defer func() {
		b.cluster.Undo(moves)
		b.counts = counts
	}()
	made := b.replacement(p.Pod, to)
	if made == nil {
		return false
	}
	before := b.progress(p, from, to)
	b.cluster.Remove(p.Pod)
	b.cluster.Put(made, to)
	b.count(p.counted...)
	return slices.ContainsFunc(stuck, func(other *spreadPod) bool {
		if other == p {
			return false
		}
		top := b.cluster.FitCheck(other.Pod).TopNodes(b.schedulers.of(other.Pod.Pod))
		return slices.ContainsFunc(top, func(n *model.Node) bool { return before+b.progress(other, other.Node, n) < 0 })
	})
}

// proposeEnabler returns the proposal to evict an enabler.
func (b *balancing) proposeEnabler(p *spreadPod) *proposal {
	from := p.Node
	return &proposal{pod: p.Pod, hard: b.constraints[0].Hard,
		reason: fmt.Sprintf("moves from %s so that a pod which violates a spread constraint can move", from.Name),
		noGain: "the spread would not improve",
		rank:   func(to *model.Node) int { return b.unevenness(p, from, to) },
		improves: func(to *model.Node) bool {
			return b.progress(p, from, to) <= 0 && b.unevenness(p, from, to) < 0
		},
	}
}

// unevenness returns by how much the sum of the squares of counts grows if a pod moves.
func (b *balancing) unevenness(p *spreadPod, from, to *model.Node) (growth int) {
	for _, i := range p.counted {
		s := &b.counts[i]
		if was, is := s.domainOf(from), s.domainOf(to); was != is {
			growth += 2 * (s.domains[is] - s.domains[was] + 1)
		}
	}
	return growth
}
