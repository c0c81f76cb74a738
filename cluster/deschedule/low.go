package deschedule

import (
	"fmt"
	"maps"
	"slices"

	"jettison/cluster/model"
)

// lowNodeUtilization evicts pods from overutilized nodes while other nodes are underutilized.
func lowNodeUtilization(r *run, args any) {
	a := args.(*LowNodeUtilizationArgs)
	m := &meter{agentValue: r.agentValue, resources: meteredResources(a.Thresholds), target: a.TargetThresholds}
	nodes := r.comparableNodes(m, a.MetricsUtilization, a.Thresholds)
	if len(nodes) == 0 {
		return
	}
	low := a.Thresholds
	if a.UseDeviationThresholds {
		low, m.target = m.deviationThresholds(nodes, a.Thresholds, a.TargetThresholds)
	}
	high := m.target
	var under, over []*model.Node
	for _, n := range nodes {
		switch {
		case !n.Spec.Unschedulable && m.below(n, low):
			under = append(under, n)
		case m.above(n, high):
			over = append(over, n)
		}
	}
	if why := a.idleReason(len(under), len(over), len(nodes)); why != "" {
		r.stop("%s", why)
		return
	}
	m.sortByUsage(over, -1)
	d := &drain{
		meter: m, from: over, to: under, excluded: a.EvictableNamespaces,
		selects:   func(*model.Pod) bool { return true },
		needsMore: func(n *model.Node) bool { return m.exceededResource(n) != "" },
		propose: func(p *model.Pod) *proposal {
			from := p.Node
			w := &proposal{
				pod:      p,
				improves: func(to *model.Node) bool { return to != from && m.fits(to, p) },
				noGain:   "other nodes would exceed targetThresholds",
			}
			w.explain = func(w *proposal) {
				w.reason = fmt.Sprintf("%s is over targetThresholds: %s", from.Name,
					m.describe(from, high, true))
				w.addAgainst(len(under), func(i int) string {
					return fmt.Sprintf("%s is under thresholds: %s", under[i].Name,
						m.describe(under[i], low, false))
				})
			}
			return w
		},
	}
	if a.EvictionLimits != nil {
		d.limit = a.EvictionLimits.Node
	}
	r.drain(d)
}

// idleReason returns the reason to evict no pod; empty: the strategy has work.
func (a *LowNodeUtilizationArgs) idleReason(under, over, nodes int) string {
	switch {
	case under == 0:
		return "no schedulable node is under thresholds"
	case under <= a.NumberOfNodes:
		return fmt.Sprintf("%d nodes are under thresholds, numberOfNodes requires more than %d", under,
			a.NumberOfNodes)
	case under == nodes:
		return "all nodes are under thresholds"
	case over == 0:
		return "no node is over targetThresholds"
	}
	return ""
}

// deviationThresholds returns thresholds relative to the average of all nodes.
func (m *meter) deviationThresholds(nodes []*model.Node, below, above Thresholds) (low, high Thresholds) {
	low, high = Thresholds{}, Thresholds{}
	for _, name := range slices.Sorted(maps.Keys(below)) {
		sum, count := 0.0, 0
		for _, n := range nodes {
			if m.capacity(n, name) > 0 {
				sum += m.percent(n, name)
				count++
			}
		}
		average := sum / float64(max(count, 1))
		low[name] = min(max(average-below[name], 0), 100)
		high[name] = min(max(average+above[name], 0), 100)
	}
	return low, high
}
