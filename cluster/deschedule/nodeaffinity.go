package deschedule

import (
	"fmt"

	"jettison/cluster/model"
)

// nodeAffinity evicts pods whose node is none that they require (any more) while another one is,
// and pods that would likely go to one that they prefer.
func nodeAffinity(r *run, args any) {
	a := args.(*NodeAffinityArgs)
	for _, kind := range a.NodeAffinityType {
		judge := r.required
		if kind == PreferredAffinity {
			judge = r.preferred
		}
		if r.affine(a.filter(), judge) == full {
			return
		}
	}
}

func (r *run) affine(wanted func(*model.Pod) bool, judge func(*model.Pod) *wish) outcome {
nodes:
	for _, n := range r.nodes {
		for _, p := range leaving(n, func(p *model.Pod) bool {
			return !p.Ended && p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil && wanted(p)
		}) {
			w := judge(p)
			if w == nil || !r.may(p) || !r.fits(p) {
				continue
			}
			if to, why := r.cluster.Fits(p, r.nodes); to == nil {
				r.skip(p, "no other node takes it: %s", why)
				continue
			}
			switch r.evict(w) {
			case full:
				return full
			case nodeFull:
				continue nodes
			}
		}
	}
	return kept
}

func (r *run) required(p *model.Pod) *wish {
	if p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		p.Belongs(p.Node) {
		return nil
	}
	return &wish{pod: p, reason: "its required node affinity or node selector leaves " + p.Node.Name +
		" out"}
}

func (r *run) preferred(p *model.Pod) *wish {
	here, best := p.Preference(p.Node), int64(0)
	for _, n := range r.nodes {
		best = max(best, p.Preference(n))
	}
	if best <= here {
		return nil
	}
	return &wish{
		pod: p, reason: fmt.Sprintf("its preferred node affinity gives %s %d, another node up to %d",
			p.Node.Name, here, best),
		helps:  func(to *model.Node) bool { return p.Preference(to) > here },
		undone: "it prefers none of them more than where it is",
	}
}
