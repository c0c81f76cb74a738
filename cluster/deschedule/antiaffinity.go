package deschedule

import (
	"fmt"

	"jettison/cluster/model"
)

// antiAffinity evicts pods that are with others whom their own required anti-affinity keeps them
// from: node by node, the first to go first. One that has gone is in nobody's way any more.
func antiAffinity(r *run, args any) {
	a := args.(*AntiAffinityArgs)
	wanted := a.filter()
	among := func(p *model.Pod) bool { return wanted(p) && r.looked[p.Node] }
nodes:
	for _, n := range r.nodes {
		for _, p := range leaving(n, func(p *model.Pod) bool {
			return !p.Ended && p.Repels() && wanted(p)
		}) {
			other := r.cluster.Offends(p, among)
			if other == nil || !r.may(p) || !r.fits(p) {
				continue
			}
			w := &wish{pod: p, reason: fmt.Sprintf("its anti-affinity keeps it from where %s is",
				other.Key()), against: []string{other.Key()}}
			switch r.evict(w) {
			case full:
				return
			case nodeFull:
				continue nodes
			}
		}
	}
}
