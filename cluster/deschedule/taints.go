package deschedule

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// nodeTaints evicts pods that do not tolerate a taint which would keep them away were they new,
// node by node. Taints NoExecute are taint eviction's. One that only rather keeps pods away is
// worth it where the successor likely goes to a node without such a taint.
func nodeTaints(r *run, args any) {
	a := args.(*NodeTaintsArgs)
	wanted := a.filter()
nodes:
	for _, n := range r.nodes {
		if !slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return a.counts(&t) }) {
			continue
		}
		for _, p := range leaving(n, func(p *model.Pod) bool { return !p.Ended && wanted(p) }) {
			t := model.Untolerated(n.Node, p.Spec.Tolerations, a.counts)
			if t == nil || !r.may(p) || !r.fits(p) {
				continue
			}
			w := &wish{pod: p, reason: "does not tolerate the taint " + t.ToString() + " of " + n.Name}
			if model.Untolerated(n.Node, p.Spec.Tolerations, func(t *v1.Taint) bool {
				return a.counts(t) && model.Keeps(t)
			}) == nil {
				w.helps = func(to *model.Node) bool {
					return model.Untolerated(to.Node, p.Spec.Tolerations, a.counts) == nil
				}
				w.undone = "they have such a taint, too"
			}
			switch r.evict(w) {
			case full:
				return
			case nodeFull:
				continue nodes
			}
		}
	}
}

// counts reports whether the strategy is for a taint.
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
