package deschedule

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// nodeTaints evicts pods that do not tolerate a taint of their node, node by node. NoExecute
// taints are left to taint eviction. For a PreferNoSchedule taint a pod is evicted only if its
// replacement likely gets a node without such a taint.
func nodeTaints(r *run, args any) {
	a := args.(*NodeTaintsArgs)
	selects := a.filter()
nodes:
	for _, n := range r.nodes {
		if !slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return a.counts(&t) }) {
			continue
		}
		for _, p := range candidatesOn(n, func(p *model.Pod) bool { return !p.Ended && selects(p) }) {
			tolerated := r.cluster.Tolerated(p)
			t := n.Untolerated(&tolerated, a.counts)
			if t == nil || !r.evictable(p) || !r.preEvictable(p) {
				continue
			}
			if !r.fitsElsewhere(p, r.cluster.Nodes) {
				continue
			}
			w := &proposal{pod: p, reason: "does not tolerate taint " + t.ToString() + " of " + n.Name}
			if n.Untolerated(&tolerated, func(t *v1.Taint) bool {
				return a.counts(t) && model.HardTaint(t)
			}) == nil {
				w.improves = func(to *model.Node) bool {
					return to.Untolerated(&tolerated, a.counts) == nil
				}
				w.noGain = "other nodes have such a taint, too"
			}
			switch r.evict(w) {
			case totalLimitReached:
				return
			case nodeLimitReached:
				continue nodes
			}
		}
	}
}

// counts reports whether the arguments include a taint.
func (a *NodeTaintsArgs) counts(t *v1.Taint) bool {
	if t.Effect != v1.TaintEffectNoSchedule && (!a.IncludePreferNoSchedule ||
		t.Effect != v1.TaintEffectPreferNoSchedule) {
		return false
	}
	named := func(list []string) bool {
		return slices.Contains(list, t.Key) || t.Value != "" && slices.Contains(list, t.Key+"="+t.Value)
	}
	return !named(a.ExcludedTaints) && (a.IncludedTaints == nil || named(a.IncludedTaints))
}
