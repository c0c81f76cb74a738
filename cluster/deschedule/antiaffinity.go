package deschedule

import (
	"fmt"

	"jettison/cluster/model"
)

// antiAffinity evicts pods that violate their own required anti-affinity, node by node, in eviction
// order. One eviction may resolve the conflicts of other pods.
func antiAffinity(r *run, args any) {
	a := args.(*AntiAffinityArgs)
	selects := a.filter()
	counts := func(p *model.Pod) bool { return selects(p) && r.selected[p.Node] }
nodes:
	for _, n := range r.nodes {
		for _, p := range candidatesOn(n, func(p *model.Pod) bool {
			return !p.Ended && p.HasAntiAffinity() && selects(p)
		}) {
			other := r.cluster.AntiAffinityConflict(p, counts)
			if other == nil || !r.evictable(p) || !r.preEvictable(p) {
				continue
			}
			if !r.fitsElsewhere(p, r.cluster.Nodes) {
				continue
			}
			w := &proposal{pod: p, reason: fmt.Sprintf("anti-affinity conflicts with %s",
				other.Key()), against: []string{other.Key()}}
			switch r.evict(w) {
			case totalLimitReached:
				return
			case nodeLimitReached:
				continue nodes
			}
		}
	}
}
