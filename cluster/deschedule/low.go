package deschedule

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// lowNodeUtilization evicts pods from nodes that are used more than they should be while others are
// used little.
func lowNodeUtilization(r *run, args any) {
	a := args.(*LowNodeUtilizationArgs)
	m := &meter{agent: r.agent, names: metered(a.Thresholds), high: a.TargetThresholds}
	nodes := r.judged(m, a.MetricsUtilization, a.Thresholds)
	if len(nodes) == 0 {
		return
	}
	low := a.Thresholds
	if a.UseDeviationThresholds {
		low, m.high = m.deviations(nodes, a.Thresholds, a.TargetThresholds)
	}
	high := m.high
	var under, over []*model.Node
	for _, n := range nodes {
		switch {
		case !n.Spec.Unschedulable && m.below(n, low):
			under = append(under, n)
		case m.above(n, high):
			over = append(over, n)
		}
	}
	if why := a.nothing(len(under), len(over), len(nodes)); why != "" {
		r.stop("%s", why)
		return
	}
	m.sortByUse(over, -1)
	d := &drain{
		meter: m, from: over, to: under, excluded: a.EvictableNamespaces,
		wanted: func(*model.Pod) bool { return true },
		goesOn: func(n *model.Node) bool { return m.over(n) != "" },
		wish: func(p *model.Pod) *wish {
			from := p.Node
			w := &wish{
				pod:    p,
				helps:  func(to *model.Node) bool { return to != from && m.takes(to, p) },
				undone: "they would be over targetThresholds with it",
			}
			w.tell = func(w *wish) {
				w.reason = fmt.Sprintf("%s is over targetThresholds: %s", from.Name,
					m.percents(from, high, true))
				w.weigh(len(under), func(i int) string {
					return fmt.Sprintf("%s is under thresholds: %s", under[i].Name,
						m.percents(under[i], low, false))
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

// nothing says why there is nothing to do; empty: there is.
func (a *LowNodeUtilizationArgs) nothing(under, over, nodes int) string {
	switch {
	case under == 0:
		return "no schedulable node is under thresholds"
	case under <= a.NumberOfNodes:
		return fmt.Sprintf("%d nodes are under thresholds, not more than numberOfNodes %d", under,
			a.NumberOfNodes)
	case under == nodes:
		return "all nodes are under thresholds"
	case over == 0:
		return "no node is over targetThresholds"
	}
	return ""
}

// judged are the nodes that thresholds can be compared with; none: the run has stopped, and said
// why.
func (r *run) judged(m *meter, by *MetricsUtilization, t Thresholds) []*model.Node {
	if missing := r.measured(m, by); missing != "" {
		r.stop("%s", missing)
		return nil
	}
	nodes, missing := r.heard(m, t)
	if len(nodes) == 0 {
		r.stop("%s", missing)
	}
	return nodes
}

// unmeasured says of which node a figure of real use is missing; empty: of none.
func (p *planner) unmeasured(m *meter) string {
	for _, n := range p.nodes {
		for _, name := range m.names {
			if name == v1.ResourcePods || ofAgent(name) {
				continue
			}
			if m.real == nil {
				return "there are no figures of real use"
			}
			if _, ok := m.real.nodes[n.Name][name]; !ok {
				return fmt.Sprintf("there is no figure of what %s really uses of %s", n.Name, name)
			}
		}
	}
	return ""
}

// deviations are thresholds as far below and above the average of all nodes as the policy says.
func (m *meter) deviations(nodes []*model.Node, below, above Thresholds) (low, high Thresholds) {
	low, high = Thresholds{}, Thresholds{}
	for _, name := range slices.Sorted(maps.Keys(below)) {
		sum, count := 0.0, 0
		for _, n := range nodes {
			if _, ok := m.whole(n, name); ok {
				sum += m.percent(n, name)
				count++
			}
		}
		if count == 0 {
			continue
		}
		average := sum / float64(count)
		low[name] = min(max(average-below[name], 0), 100)
		high[name] = min(max(average+above[name], 0), 100)
	}
	return low, high
}
