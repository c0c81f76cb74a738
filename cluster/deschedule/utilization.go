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

// use is figures of real use, which move with the pods. A pod without figures is unknown.
type use struct {
	nodes map[string]map[v1.ResourceName]int64
	pods  map[string]map[v1.ResourceName]int64
}

func newUse(s *Snapshot) *use {
	if s.NodeUse == nil && s.PodUse == nil {
		return nil
	}
	figures := func(in map[string]v1.ResourceList) map[string]map[v1.ResourceName]int64 {
		out := make(map[string]map[v1.ResourceName]int64, len(in))
		for key, list := range in {
			out[key] = make(map[v1.ResourceName]int64, len(list))
			for name, q := range list {
				out[key][name] = model.ValueOf(name, q)
			}
		}
		return out
	}
	return &use{figures(s.NodeUse), figures(s.PodUse)}
}

// answers are those to queries, as figures of MetricResource. Of pods they tell nothing.
func answers(s *Snapshot) map[string]*use {
	out := make(map[string]*use, len(s.Queried))
	for query, nodes := range s.Queried {
		u := &use{nodes: make(map[string]map[v1.ResourceName]int64, len(nodes))}
		for node, percent := range nodes {
			u.nodes[node] = map[v1.ResourceName]int64{MetricResource: percent}
		}
		out[query] = u
	}
	return out
}

// move takes a pod's figures off its node; its successor is taken to use as much where it is.
func (u *use) move(p, successor *model.Pod, to *model.Node) {
	figures := u.pods[p.Key()]
	for name, value := range figures {
		if node := u.nodes[p.Node.Name]; node != nil {
			node[name] -= value
		}
		if successor != nil && to != nil && u.nodes[to.Name] != nil {
			u.nodes[to.Name][name] += value
		}
	}
	delete(u.pods, p.Key())
	if successor != nil && figures != nil {
		u.pods[successor.Key()] = figures
	}
}

// leads gives the figures back as they came.
func (u *use) leads() (nodes, pods map[string]v1.ResourceList) {
	lists := func(in map[string]map[v1.ResourceName]int64) map[string]v1.ResourceList {
		out := make(map[string]v1.ResourceList, len(in))
		for key, figures := range in {
			out[key] = v1.ResourceList{}
			for name, value := range figures {
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

// meter measures nodes and pods: by what is requested, or by real use.
type meter struct {
	// figures of the nodes' agents
	agent func(node string, name v1.ResourceName) (figure int64, known bool)
	real  *use // nil: by requests
	// of real use, in words
	source string
	// that have to have room, sorted
	names []v1.ResourceName
	// percent that a node may be filled to; else whole
	high Thresholds
	// what the destinations have left until there
	available map[v1.ResourceName]int64
}

// metered are the resources of thresholds, and those that every pod takes of.
func metered(t Thresholds) []v1.ResourceName {
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
	if ofAgent(name) {
		figure, _ := m.agent(n.Name, name)
		return figure
	}
	if m.real != nil && name != v1.ResourcePods {
		return m.real.nodes[n.Name][name]
	}
	return n.Requested(name)
}

// of is how much of a resource a pod takes; false: nobody knows.
func (m *meter) of(p *model.Pod, name v1.ResourceName) (int64, bool) {
	if ofAgent(name) {
		return 0, false
	}
	if m.real == nil || name == v1.ResourcePods {
		return p.Request(name), true
	}
	value, ok := m.real.pods[p.Key()][name]
	return value, ok
}

// taken is how much a pod takes of each of the resources, in their order.
func (m *meter) taken(p *model.Pod) []int64 {
	out := make([]int64, len(m.names))
	for i, name := range m.names {
		out[i], _ = m.of(p, name)
	}
	return out
}

// known reports whether all that counts of a pod is known.
func (m *meter) known(p *model.Pod) bool {
	return !slices.ContainsFunc(m.names, func(name v1.ResourceName) bool {
		_, ok := m.of(p, name)
		return !ok
	})
}

func (m *meter) whole(n *model.Node, name v1.ResourceName) (int64, bool) {
	switch {
	case name == MetricResource:
		return 100, true
	case ofAgent(name):
		_, known := m.agent(n.Name, name)
		return agentWhole, known
	}
	return n.Allocatable(name)
}

// percent of a node that is used; what the node does not say that it has is not used.
func (m *meter) percent(n *model.Node, name v1.ResourceName) float64 {
	whole, _ := m.whole(n, name)
	return model.Percent(m.used(n, name), whole)
}

// unbounded is more than any node has, and little enough to be added up.
const unbounded = 1 << 50

// most is what of a node may be used. Of what no threshold names a node that does not say how much
// it has has enough.
func (m *meter) most(n *model.Node, name v1.ResourceName) int64 {
	whole, known := m.whole(n, name)
	if percent, ok := m.high[name]; ok {
		return int64(percent * 0.01 * float64(whole))
	}
	if !known {
		return unbounded
	}
	return whole
}

// over names a resource of which more is used than may be; empty: none is.
func (m *meter) over(n *model.Node) v1.ResourceName {
	for _, name := range m.names {
		if m.used(n, name) > m.most(n, name) {
			return name
		}
	}
	return ""
}

// takes reports whether a node is not over once a pod is there.
func (m *meter) takes(n *model.Node, p *model.Pod) bool {
	for _, name := range m.names {
		if ofAgent(name) {
			if figure, known := m.agent(n.Name, name); !known || figure > m.most(n, name) {
				return false
			}
		}
		if plus, _ := m.of(p, name); plus > 0 && m.used(n, name)+plus > m.most(n, name) {
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

// open reckons what destinations have left.
func (m *meter) open(nodes []*model.Node) {
	m.available = map[v1.ResourceName]int64{}
	for _, n := range nodes {
		for _, name := range m.names {
			m.available[name] += m.most(n, name) - m.used(n, name)
		}
	}
}

// exhausted names a resource of which destinations have nothing left; empty: none.
func (m *meter) exhausted() v1.ResourceName {
	for _, name := range m.names {
		if m.available[name] <= 0 {
			return name
		}
	}
	return ""
}

// sortByUse orders nodes by the sum of what is used of everything, in the units of Amount, as
// 0.36.0 does.
func (m *meter) sortByUse(nodes []*model.Node, sign int) {
	sum := func(n *model.Node) (total int64) {
		for _, name := range m.names {
			total += m.used(n, name)
		}
		return total
	}
	slices.SortFunc(nodes, func(a, b *model.Node) int {
		return cmp.Or(sign*cmp.Compare(sum(a), sum(b)), strings.Compare(a.Name, b.Name))
	})
}

// drain is what moving pods from nodes to others wants to know.
type drain struct {
	*meter
	from, to []*model.Node
	excluded *Namespaces
	limit    *uint // evictions from one node
	wanted   func(*model.Pod) bool
	goesOn   func(*model.Node) bool // whether more has to go from a node
	wish     func(*model.Pod) *wish
}

// drain evicts pods from nodes, the first to go first, until enough has gone or the others have no
// room left.
func (r *run) drain(d *drain) {
	d.open(d.to)
nodes:
	for _, n := range d.from {
		pods := leaving(n, func(p *model.Pod) bool { return !p.Ended && d.wanted(p) && r.may(p) })
		for _, p := range pods {
			if !d.goesOn(n) || d.exhausted() != "" {
				break
			}
			if d.limit != nil && r.done(n.Name, 0) >= *d.limit {
				r.capped = true
				r.skip(p, "evictionLimits: node %d is reached", *d.limit)
				break
			}
			if !d.lets(r, p) {
				continue
			}
			known := d.known(p)
			if !known && d.limit == nil && r.done(n.Name, 0) > 0 {
				break // nobody knows what one eviction has done, so there is one a time
			}
			r.capped = r.capped || !known // what is to be done then the next figures tell
			takes := d.taken(p)
			switch r.evict(d.wish(p)) {
			case full:
				return
			case nodeFull:
				continue nodes
			case evicted:
				r.done(n.Name, 1)
				for i, name := range d.names {
					d.available[name] -= takes[i]
				}
			}
		}
	}
}

// lets reports whether a pod may go as far as the strategy itself says: its namespace, the taints
// of the destinations, and the evictor.
func (d *drain) lets(r *run, p *model.Pod) bool {
	if d.excluded != nil && slices.Contains(d.excluded.Exclude, p.Namespace) {
		r.skip(p, "evictableNamespaces excludes its namespace")
		return false
	}
	if !slices.ContainsFunc(d.to, func(n *model.Node) bool {
		return model.Untolerated(n.Node, p.Spec.Tolerations, model.Keeps) == nil
	}) {
		r.skip(p, "it tolerates the taints of none of the nodes with room")
		return false
	}
	return r.fits(p)
}

// done counts evictions of a run by node.
func (r *run) done(node string, plus uint) uint {
	if r.ended[r] == nil {
		r.ended[r] = map[string]uint{}
	}
	r.ended[r][node] += plus
	return r.ended[r][node]
}

// percents are the percentages of a node that a set of thresholds is about, one line. above: only
// those that are.
func (m *meter) percents(n *model.Node, t Thresholds, above bool) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		is := m.percent(n, name)
		if above && is <= t[name] {
			continue
		}
		text := fmt.Sprintf("%s %.1f%% of %g%%", name, is, t[name])
		switch {
		case ofAgent(name):
			text += " (told by its agent)"
		case m.real != nil && name != v1.ResourcePods:
			text += " (" + m.source + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// measured are real figures in the place of requests, where a strategy goes by them; missing says
// which there are not; empty: all are.
func (r *run) measured(m *meter, by *MetricsUtilization) (missing string) {
	if by == nil {
		return ""
	}
	m.real, m.source = r.use, "metrics API"
	if by.Source == PrometheusMetrics {
		m.real, m.source = r.queried[by.Prometheus.Query], "Prometheus"
	}
	return r.unmeasured(m)
}
