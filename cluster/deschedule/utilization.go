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
	// capacity of the destination nodes below target; absent: none of them has the resource
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

// value returns how much of a resource is used on a node; false: unknown.
func (m *meter) value(n *model.Node, name v1.ResourceName) (used int64, known bool) {
	switch {
	case isAgentResource(name):
		return m.agentValue(n.Name, name)
	case m.usage != nil && name != v1.ResourcePods:
		used, known = m.usage.nodes[n.Name][name]
		return used, known
	}
	return n.Requested(name), true
}

func (m *meter) used(n *model.Node, name v1.ResourceName) int64 {
	used, _ := m.value(n, name)
	return used
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

// capacity returns how much of a resource a node has. 0: it has none, and the resource does not
// count for this node.
func (m *meter) capacity(n *model.Node, name v1.ResourceName) int64 {
	switch {
	case name == MetricResource:
		return 100
	case isAgentResource(name):
		return agentScale
	}
	whole, _ := n.Allocatable(name)
	return whole
}

// has reports whether a node has one of the resources of thresholds.
func (m *meter) has(n *model.Node, t Thresholds) bool {
	for name := range t {
		if m.capacity(n, name) > 0 {
			return true
		}
	}
	return false
}

// percent returns the used part of a node; 0 if the node does not have the resource.
func (m *meter) percent(n *model.Node, name v1.ResourceName) float64 {
	return model.Percent(m.used(n, name), m.capacity(n, name))
}

// ceiling returns how much of a node may be used; false: the node does not have the resource.
func (m *meter) ceiling(n *model.Node, name v1.ResourceName) (int64, bool) {
	whole := m.capacity(n, name)
	if percent, limited := m.target[name]; limited {
		return int64(percent * 0.01 * float64(whole)), whole > 0
	}
	return whole, whole > 0
}

// exceededResource returns a resource with usage above the ceiling; empty: none.
func (m *meter) exceededResource(n *model.Node) v1.ResourceName {
	for _, name := range m.resources {
		if limit, ok := m.ceiling(n, name); ok && m.used(n, name) > limit {
			return name
		}
	}
	return ""
}

// fits reports whether a node stays within its ceilings with a pod added. A node with unknown usage
// does not. Whether the node has what the pod requests is checked with its other requirements.
func (m *meter) fits(n *model.Node, p *model.Pod) bool {
	for _, name := range m.resources {
		limit, ok := m.ceiling(n, name)
		if !ok {
			continue
		}
		used, known := m.value(n, name)
		added, _ := m.podUsage(p, name)
		if !known || (added > 0 || isAgentResource(name)) && used+added > limit {
			return false
		}
	}
	return true
}

// below reports whether a node is under thresholds. A node without any of the resources is not.
func (m *meter) below(n *model.Node, t Thresholds) bool {
	for name, percent := range t {
		if percent < m.percent(n, name) {
			return false
		}
	}
	return m.has(n, t)
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
			if limit, ok := m.ceiling(n, name); ok {
				m.available[name] += limit - m.used(n, name)
			}
		}
	}
}

// exhaustedResource returns a resource of which the destination nodes have nothing left; empty:
// none.
func (m *meter) exhaustedResource() v1.ResourceName {
	for _, name := range m.resources {
		if left, ok := m.available[name]; ok && left <= 0 {
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
			if !d.needsMore(n) {
				break
			}
			if name := d.exhaustedResource(); name != "" {
				r.stopEarly("the nodes that could take more pods have no %s left", name)
				return
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
				// the effect of an eviction is unknown until usage is measured again
				r.stopEarly("usage of pods is unknown: one eviction from a node until the next measurement")
				break
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
					if _, ok := d.available[name]; ok {
						d.available[name] -= used[i]
					}
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
	tolerated := r.cluster.Tolerated(p)
	if !slices.ContainsFunc(d.to, func(n *model.Node) bool {
		return n.Untolerated(&tolerated, model.HardTaint) == nil
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

// describe returns the percentages of a node for those resources of thresholds that it has, on one
// line. above: only those above the threshold.
func (m *meter) describe(n *model.Node, t Thresholds, above bool) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		percent := m.percent(n, name)
		if m.capacity(n, name) <= 0 || above && percent <= t[name] {
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

// useMetrics makes m use measured usage if by is set.
func (r *run) useMetrics(m *meter, by *MetricsUtilization) {
	switch {
	case by == nil:
	case by.Source == PrometheusMetrics:
		m.usage, m.source = r.queryUsage[by.Prometheus.Query], "Prometheus"
	default:
		m.usage, m.source = r.usage, "metrics API"
	}
}

// comparableNodes returns the nodes with known values of all resources that the strategy compares
// and that they have. It records other nodes. If no node remains, it stops the strategy.
func (r *run) comparableNodes(m *meter, by *MetricsUtilization,
	t Thresholds) (nodes []*model.Node) {
	if r.useMetrics(m, by); by != nil && m.usage == nil {
		r.stop("measured usage is unavailable")
		return nil
	}
	unknown := ""
	for _, n := range r.nodes {
		if why := m.unknownValue(n); why == "" {
			nodes = append(nodes, n)
		} else if unknown == "" {
			unknown = why
		}
	}
	switch left := len(r.nodes) - len(nodes); {
	case len(nodes) == 0:
		r.stop("%s", unknown)
	case !slices.ContainsFunc(nodes, func(n *model.Node) bool { return m.has(n, t) }):
		r.stop("no node has a resource of thresholds")
		return nil
	case left > 0:
		r.leaveOut("%d of %d nodes left out: %s", left, len(r.nodes), unknown)
	}
	return nodes
}

// unknownValue describes a missing value of a resource that the node has; empty: all values are
// known.
func (m *meter) unknownValue(n *model.Node) string {
	for _, name := range m.resources {
		if _, known := m.value(n, name); known || m.capacity(n, name) <= 0 {
			continue
		}
		if isAgentResource(name) {
			return fmt.Sprintf("no agent has a recent %s in its Lease (annotation jettison/load), "+
				"for example node %s", name, n.Name)
		}
		return fmt.Sprintf("measured usage of node %s lacks %s", n.Name, name)
	}
	return ""
}
