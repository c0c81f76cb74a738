package deschedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/cluster/model"
)

// usage is measured usage of nodes and pods. It follows pods that the plan moves. A pod that is
// absent has unknown usage.
type usage struct {
	nodes map[string]map[v1.ResourceName]int64
	pods  map[string]map[v1.ResourceName]int64
}

func newUsage(s *Snapshot) *usage {
	if s.NodeUsage == nil && s.PodUsage == nil {
		return nil
	}
	amounts := func(in map[string]v1.ResourceList) map[string]map[v1.ResourceName]int64 {
		out := make(map[string]map[v1.ResourceName]int64, len(in))
		for key, list := range in {
			out[key] = make(map[v1.ResourceName]int64, len(list))
			for name, q := range list {
				out[key][name] = model.ValueOf(name, q)
			}
		}
		return out
	}
	return &usage{amounts(s.NodeUsage), amounts(s.PodUsage)}
}

// queryUsageOf returns the answers to queries as usage of MetricResource. They cover nodes only.
func queryUsageOf(s *Snapshot) map[string]*usage {
	out := make(map[string]*usage, len(s.Queried))
	for query, nodes := range s.Queried {
		u := &usage{nodes: make(map[string]map[v1.ResourceName]int64, len(nodes))}
		for node, percent := range nodes {
			u.nodes[node] = map[v1.ResourceName]int64{MetricResource: percent}
		}
		out[query] = u
	}
	return out
}

// move subtracts a pod's usage from its node and adds it to the node of its replacement.
func (u *usage) move(p, replacement *model.Pod, to *model.Node) {
	amounts := u.pods[p.Key()]
	for name, value := range amounts {
		if node := u.nodes[p.Node.Name]; node != nil {
			node[name] -= value
		}
		if replacement != nil && to != nil && u.nodes[to.Name] != nil {
			u.nodes[to.Name][name] += value
		}
	}
	delete(u.pods, p.Key())
	if replacement != nil && amounts != nil {
		u.pods[replacement.Key()] = amounts
	}
}

// lists returns the usage in the format of Snapshot.NodeUsage and Snapshot.PodUsage.
func (u *usage) lists() (nodes, pods map[string]v1.ResourceList) {
	lists := func(in map[string]map[v1.ResourceName]int64) map[string]v1.ResourceList {
		out := make(map[string]v1.ResourceList, len(in))
		for key, amounts := range in {
			out[key] = v1.ResourceList{}
			for name, value := range amounts {
				q := resource.NewQuantity(value, resource.DecimalSI)
				if name == v1.ResourceCPU {
					q = resource.NewMilliQuantity(value, resource.DecimalSI)
				}
				out[key][name] = *q
			}
		}
		return out
	}
	return lists(u.nodes), lists(u.pods)
}

// meter measures nodes and pods, by requests or by measured usage.
type meter struct {
	// load reported by the agents
	agentValue func(node string, name v1.ResourceName) (value int64, known bool)
	usage      *usage // nil: by requests
	// source of usage, for the text of reasons
	source string
	// resources that are compared and must fit, sorted
	resources []v1.ResourceName
	// maximum usage of a node in percent; absent: the whole node
	target Thresholds
	// capacity of the destination nodes below target
	available map[v1.ResourceName]int64
}

// meteredResources returns the resources of thresholds, plus cpu, memory and pods unless the
// thresholds name MetricResource.
func meteredResources(t Thresholds) []v1.ResourceName {
	names := map[v1.ResourceName]bool{}
	for name := range t {
		names[name] = true
	}
	if !names[MetricResource] {
		names[v1.ResourceCPU], names[v1.ResourceMemory], names[v1.ResourcePods] = true, true, true
	}
	return slices.Sorted(maps.Keys(names))
}

func (m *meter) used(n *model.Node, name v1.ResourceName) int64 {
	if isAgentResource(name) {
		value, _ := m.agentValue(n.Name, name)
		return value
	}
	if m.usage != nil && name != v1.ResourcePods {
		return m.usage.nodes[n.Name][name]
	}
	return n.Requested(name)
}

// podUsage returns how much of a resource a pod uses; false: unknown.
func (m *meter) podUsage(p *model.Pod, name v1.ResourceName) (int64, bool) {
	if isAgentResource(name) {
		return 0, false
	}
	if m.usage == nil || name == v1.ResourcePods {
		return p.Request(name), true
	}
	value, ok := m.usage.pods[p.Key()][name]
	return value, ok
}

// podUsages returns how much a pod uses of each of the resources, in their order.
func (m *meter) podUsages(p *model.Pod) []int64 {
	out := make([]int64, len(m.resources))
	for i, name := range m.resources {
		out[i], _ = m.podUsage(p, name)
	}
	return out
}

// podUsageKnown reports whether usage of a pod is known for all resources.
func (m *meter) podUsageKnown(p *model.Pod) bool {
	return !slices.ContainsFunc(m.resources, func(name v1.ResourceName) bool {
		_, ok := m.podUsage(p, name)
		return !ok
	})
}

func (m *meter) capacity(n *model.Node, name v1.ResourceName) (int64, bool) {
	switch {
	case name == MetricResource:
		return 100, true
	case isAgentResource(name):
		_, known := m.agentValue(n.Name, name)
		return agentScale, known
	}
	return n.Allocatable(name)
}

// percent returns the used part of a node; 0 if the node's capacity is unknown.
func (m *meter) percent(n *model.Node, name v1.ResourceName) float64 {
	whole, _ := m.capacity(n, name)
	return model.Percent(m.used(n, name), whole)
}

// unbounded exceeds the capacity of any node, and is small enough to be summed up.
const unbounded = 1 << 50

// ceiling returns how much of a node may be used. A resource without threshold and without known
// capacity is unbounded.
func (m *meter) ceiling(n *model.Node, name v1.ResourceName) int64 {
	whole, known := m.capacity(n, name)
	if percent, ok := m.target[name]; ok {
		return int64(percent * 0.01 * float64(whole))
	}
	if !known {
		return unbounded
	}
	return whole
}

// exceededResource returns a resource with usage above the ceiling; empty: none.
func (m *meter) exceededResource(n *model.Node) v1.ResourceName {
	for _, name := range m.resources {
		if m.used(n, name) > m.ceiling(n, name) {
			return name
		}
	}
	return ""
}

// fits reports whether a node stays within its ceilings with a pod added.
func (m *meter) fits(n *model.Node, p *model.Pod) bool {
	for _, name := range m.resources {
		if isAgentResource(name) {
			if value, known := m.agentValue(n.Name, name); !known || value > m.ceiling(n, name) {
				return false
			}
		}
		if added, _ := m.podUsage(p, name); added > 0 && m.used(n, name)+added > m.ceiling(n, name) {
			return false
		}
	}
	return true
}

func (m *meter) below(n *model.Node, t Thresholds) bool {
	for name, percent := range t {
		if percent < m.percent(n, name) {
			return false
		}
	}
	return true
}

func (m *meter) above(n *model.Node, t Thresholds) bool {
	for name, percent := range t {
		if percent < m.percent(n, name) {
			return true
		}
	}
	return false
}

// sumAvailable computes the remaining capacity of the destination nodes.
func (m *meter) sumAvailable(nodes []*model.Node) {
	m.available = map[v1.ResourceName]int64{}
	for _, n := range nodes {
		for _, name := range m.resources {
			m.available[name] += m.ceiling(n, name) - m.used(n, name)
		}
	}
}

// exhaustedResource returns a resource of which the destination nodes have nothing left; empty:
// none.
func (m *meter) exhaustedResource() v1.ResourceName {
	for _, name := range m.resources {
		if m.available[name] <= 0 {
			return name
		}
	}
	return ""
}

// sortByUsage orders nodes by the sum of their usage of all resources in the units of
// model.Amount, as in 0.36.0.
func (m *meter) sortByUsage(nodes []*model.Node, sign int) {
	sum := func(n *model.Node) (total int64) {
		for _, name := range m.resources {
			total += m.used(n, name)
		}
		return total
	}
	slices.SortFunc(nodes, func(a, b *model.Node) int {
		return cmp.Or(sign*cmp.Compare(sum(a), sum(b)), strings.Compare(a.Name, b.Name))
	})
}

// drain describes how to move pods from some nodes to others.
type drain struct {
	*meter
	from, to  []*model.Node
	excluded  *Namespaces
	limit     *uint // evictions from one node
	selects   func(*model.Pod) bool
	needsMore func(*model.Node) bool // reports whether the node must lose more pods
	propose   func(*model.Pod) *proposal
}

// drain evicts pods from nodes in eviction order until needsMore returns false or the
// destinations are full.
func (r *run) drain(d *drain) {
	d.sumAvailable(d.to)
nodes:
	for _, n := range d.from {
		pods := candidatesOn(n, func(p *model.Pod) bool { return !p.Ended && d.selects(p) && r.evictable(p) })
		for _, p := range pods {
			if !d.needsMore(n) || d.exhaustedResource() != "" {
				break
			}
			if d.limit != nil && r.countOnNode(n.Name, 0) >= *d.limit {
				r.capped = true
				r.skip(p, "evictionLimits: limit of %d evictions per node reached", *d.limit)
				break
			}
			if !d.allows(r, p) {
				continue
			}
			known := d.podUsageKnown(p)
			if !known && d.limit == nil && r.countOnNode(n.Name, 0) > 0 {
				break // the effect of an eviction is unknown until usage is measured again
			}
			r.capped = r.capped || !known // the next measurement may require more evictions
			used := d.podUsages(p)
			switch r.evict(d.propose(p)) {
			case totalLimitReached:
				return
			case nodeLimitReached:
				continue nodes
			case podEvicted:
				r.countOnNode(n.Name, 1)
				for i, name := range d.resources {
					d.available[name] -= used[i]
				}
			}
		}
	}
}

// allows reports whether the strategy and the evictor permit an eviction: namespace, taints of
// the destinations, preEvictionFilter.
func (d *drain) allows(r *run, p *model.Pod) bool {
	if d.excluded != nil && slices.Contains(d.excluded.Exclude, p.Namespace) {
		r.skip(p, "namespace is excluded by evictableNamespaces")
		return false
	}
	if !slices.ContainsFunc(d.to, func(n *model.Node) bool {
		return model.Untolerated(n.Node, p.Spec.Tolerations, model.HardTaint) == nil
	}) {
		r.skip(p, "pod tolerates the taints of no destination node")
		return false
	}
	return r.preEvictable(p)
}

// countOnNode adds increment to the number of evictions of this run on a node and returns the sum.
func (r *run) countOnNode(node string, increment uint) uint {
	if r.evictedByRun[r] == nil {
		r.evictedByRun[r] = map[string]uint{}
	}
	r.evictedByRun[r][node] += increment
	return r.evictedByRun[r][node]
}

// describe returns the percentages of a node for the resources of thresholds, on one line. above:
// only those above the threshold.
func (m *meter) describe(n *model.Node, t Thresholds, above bool) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		percent := m.percent(n, name)
		if above && percent <= t[name] {
			continue
		}
		text := fmt.Sprintf("%s %.1f%% of %g%%", name, percent, t[name])
		switch {
		case isAgentResource(name):
			text += " (reported by the agent)"
		case m.usage != nil && name != v1.ResourcePods:
			text += " (" + m.source + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// useMetrics makes m use measured usage if by is set. It returns a description of missing usage;
// empty: usage is complete.
func (r *run) useMetrics(m *meter, by *MetricsUtilization) (missing string) {
	if by == nil {
		return ""
	}
	m.usage, m.source = r.usage, "metrics API"
	if by.Source == PrometheusMetrics {
		m.usage, m.source = r.queryUsage[by.Prometheus.Query], "Prometheus"
	}
	return r.missingUsage(m)
}
