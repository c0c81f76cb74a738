package deschedule

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// highNodeUtilization evicts pods from underutilized nodes so that these become empty. It suits
// clusters whose scheduler fills nodes, with MostAllocated in schedulerProfiles.
func highNodeUtilization(r *run, args any) {
	a := args.(*HighNodeUtilizationArgs)
	m := &meter{agentValue: r.agentValue, resources: meteredResources(a.Thresholds), target: Thresholds{}}
	nodes := r.comparableNodes(m, a.MetricsUtilization, a.Thresholds)
	if len(nodes) == 0 {
		return
	}
	for name := range a.Thresholds {
		m.target[name] = 100
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
	if why := a.idleReason(len(under), len(others), len(nodes)); why != "" {
		r.stop("%s", why)
		return
	}
	m.sortByUsage(under, 1)
	r.drain(&drain{
		meter: m, from: under, to: others, excluded: a.EvictableNamespaces,
		selects: func(p *model.Pod) bool {
			return !slices.Contains(a.EvictionModes, OnlyThresholdingResources) || a.requestsThresholds(p.Pod)
		},
		needsMore: func(*model.Node) bool { return true },
		propose: func(p *model.Pod) *proposal {
			hint := ""
			if r.schedulers.of(p.Pod).Packing != model.MostAllocated {
				hint = ": schedulerProfiles has no MostAllocated for it"
			}
			return &proposal{
				pod: p, hint: hint, reason: fmt.Sprintf("%s is under thresholds: %s", p.Node.Name,
					m.describe(p.Node, a.Thresholds, false)),
				improves: func(to *model.Node) bool { return slices.Contains(others, to) },
				noGain:   "other nodes are underutilized, too",
			}
		},
	})
}

// idleReason returns the reason to evict no pod; empty: the strategy has work.
func (a *HighNodeUtilizationArgs) idleReason(under, others, nodes int) string {
	switch {
	case under == 0:
		return "no node is under thresholds"
	case under <= a.NumberOfNodes:
		return fmt.Sprintf("%d nodes are under thresholds, numberOfNodes requires more than %d", under,
			a.NumberOfNodes)
	case under == nodes:
		return "all nodes are under thresholds"
	case others == 0:
		return "no other node is schedulable"
	}
	return ""
}

// requestsThresholds reports whether any container of a pod requests a resource of thresholds.
func (a *HighNodeUtilizationArgs) requestsThresholds(p *v1.Pod) bool {
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
