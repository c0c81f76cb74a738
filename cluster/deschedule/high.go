package deschedule

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// highNodeUtilization evicts pods from nodes that are used little, so that others are used more and
// these not at all. It is made for clusters whose scheduler fills nodes, and its model of one does.
func highNodeUtilization(r *run, args any) {
	a := args.(*HighNodeUtilizationArgs)
	r.packing = model.Fuller
	m := &meter{agent: r.agent, names: metered(a.Thresholds), high: Thresholds{}}
	nodes := r.judged(m, a.MetricsUtilization, a.Thresholds)
	if len(nodes) == 0 {
		return
	}
	for name := range a.Thresholds {
		m.high[name] = 100
	}
	var under, others []*model.Node
	for _, n := range nodes {
		switch {
		case m.below(n, a.Thresholds):
			under = append(under, n)
		case !n.Spec.Unschedulable:
			others = append(others, n)
		}
	}
	if why := a.nothing(len(under), len(others), len(nodes)); why != "" {
		r.stop("%s", why)
		return
	}
	m.sortByUse(under, 1)
	r.drain(&drain{
		meter: m, from: under, to: others, excluded: a.EvictableNamespaces,
		wanted: func(p *model.Pod) bool {
			return !slices.Contains(a.EvictionModes, OnlyThresholdingResources) || a.requests(p.Pod)
		},
		goesOn: func(*model.Node) bool { return true },
		wish: func(p *model.Pod) *wish {
			return &wish{
				pod: p, reason: fmt.Sprintf("%s is under thresholds: %s", p.Node.Name,
					m.percents(p.Node, a.Thresholds, false)),
				helps:  func(to *model.Node) bool { return slices.Contains(others, to) },
				undone: "they are used little, too",
			}
		},
	})
}

// nothing says why there is nothing to do; empty: there is.
func (a *HighNodeUtilizationArgs) nothing(under, others, nodes int) string {
	switch {
	case under == 0:
		return "no node is under thresholds"
	case under <= a.NumberOfNodes:
		return fmt.Sprintf("%d nodes are under thresholds, not more than numberOfNodes %d", under,
			a.NumberOfNodes)
	case under == nodes:
		return "all nodes are under thresholds"
	case others == 0:
		return "no other node is schedulable"
	}
	return ""
}

// requests reports whether any container of a pod requests any of the resources of thresholds.
func (a *HighNodeUtilizationArgs) requests(p *v1.Pod) bool {
	for _, containers := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			for name := range a.Thresholds {
				if _, ok := containers[i].Resources.Requests[name]; ok {
					return true
				}
			}
		}
	}
	return false
}
