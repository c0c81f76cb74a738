package deschedule

import (
	"fmt"

	"jettison/cluster/model"
)

// nodeAffinity evicts pods whose node no longer matches their required node affinity while
// another node does, and pods that would likely get a node they prefer more.
func nodeAffinity(r *run, args any) {
	a := args.(*NodeAffinityArgs)
	for _, kind := range a.NodeAffinityType {
		propose := r.proposeRequired
		if kind == PreferredAffinity {
			propose = r.proposePreferred
		}
		if r.evictByAffinity(a.filter(), propose) == totalLimitReached {
			return
		}
	}
}

func (r *run) evictByAffinity(selects func(*model.Pod) bool, propose func(*model.Pod) *proposal) outcome {
nodes:
	for _, n := range r.nodes {
		for _, p := range candidatesOn(n, func(p *model.Pod) bool {
			return !p.Ended && p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil && selects(p)
		}) {
			w := propose(p)
			if w == nil || !r.evictable(p) || !r.preEvictable(p) {
				continue
			}
			if !r.fitsElsewhere(p, r.nodes) {
				continue
			}
			switch r.evict(w) {
			case totalLimitReached:
				return totalLimitReached
			case nodeLimitReached:
				continue nodes
			}
		}
	}
	return podKept
}

func (r *run) proposeRequired(p *model.Pod) *proposal {
	if p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		p.MatchesNodeAffinity(p.Node) {
		return nil
	}
	return &proposal{pod: p, reason: "required node affinity or node selector does not match " + p.Node.Name}
}

func (r *run) proposePreferred(p *model.Pod) *proposal {
	current, best := p.Preference(p.Node), int64(0)
	for _, n := range r.nodes {
		best = max(best, p.Preference(n))
	}
	if best <= current {
		return nil
	}
	return &proposal{
		pod: p, reason: fmt.Sprintf("preferred node affinity scores %s %d, another node up to %d",
			p.Node.Name, current, best),
		improves: func(to *model.Node) bool { return p.Preference(to) > current },
		noGain:   "preferred node affinity scores none of them higher",
	}
}
