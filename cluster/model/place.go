package model

import (
	"hash/fnv"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Packing selects which nodes a scheduler prefers.
type Packing int

// LeastAllocated is the default strategy of NodeResourcesFit. HighNodeUtilization requires
// MostAllocated.
const (
	LeastAllocated Packing = iota
	MostAllocated
)

// Weights of scores: those of the default profile of kube-scheduler 1.37
// (pkg/scheduler/apis/config/v1/default_plugins.go).
const (
	weightTaints    = 3
	weightAffinity  = 2
	weightSpread    = 2
	weightResources = 1
)

// In large clusters the scheduler stops after this number of feasible nodes, or percentage of all
// nodes (schedule_one.go, numFeasibleNodesToFind).
const (
	minFeasibleNodes   = 100
	minFeasiblePercent = 5
	basePercent        = 50
	nodesPerPercent    = 125
)

// Place returns the node on which a scheduler would likely place a pod; nil: it fits on none.
// wanted limits the nodes; nil: all. The pod is treated as if it were on no node. Ties are broken
// by name.
func (c *Cluster) Place(p *Pod, packing Packing, wanted func(*Node) bool) *Node {
	q := c.FitCheck(p)
	fit := c.scratch.feasible[:0]
	enough := feasibleLimit(len(c.Nodes))
	from := 0
	// The scheduler starts where its last search stopped. Here the pod's name determines the start,
	// so that results are reproducible.
	if len(c.Nodes) > minFeasibleNodes {
		h := fnv.New32a()
		_, _ = h.Write([]byte(p.Key()))
		from = int(h.Sum32() % uint32(len(c.Nodes)))
	}
	for i := range c.Nodes {
		n := c.Nodes[(from+i)%len(c.Nodes)]
		if (wanted == nil || wanted(n)) && q.fits(n) {
			if fit = append(fit, n); len(fit) == enough {
				break
			}
		}
	}
	c.scratch.feasible = fit
	if len(fit) < 2 {
		return first(fit)
	}
	var best *Node
	most := 0.0
	scores := c.scores(p, fit, packing)
	for i, n := range fit {
		if best == nil || scores[i] > most || scores[i] == most && n.Name < best.Name {
			best, most = n, scores[i]
		}
	}
	return best
}

func first(nodes []*Node) *Node {
	if len(nodes) == 0 {
		return nil
	}
	return nodes[0]
}

func feasibleLimit(nodes int) int {
	if nodes <= minFeasibleNodes {
		return nodes
	}
	percent := max(basePercent-nodes/nodesPerPercent, minFeasiblePercent)
	return max(nodes*percent/100, minFeasibleNodes)
}

// FindOther returns one of the nodes, other than the pod's own, that the pod fits on. Otherwise it
// returns nil and the reason why the pod does not fit on the last one.
func (c *Cluster) FindOther(p *Pod, nodes []*Node) (found *Node, reason string) {
	q, r := c.FitCheck(p), failure{}
	for _, n := range nodes {
		if n == p.Node {
			continue
		}
		if r = q.check(n); r.format == "" {
			return n, ""
		}
	}
	return nil, r.String()
}

// scores returns the scores of feasible nodes. Each part is from 0 to 100 before it is weighted.
func (c *Cluster) scores(p *Pod, nodes []*Node, packing Packing) []float64 {
	taints, affinity, crowd := zeroed(&c.scratch.taints, len(nodes)),
		zeroed(&c.scratch.affinity, len(nodes)), zeroed(&c.scratch.spread, len(nodes))
	c.countSpreadPods(p, nodes, crowd)
	for i, n := range nodes {
		affinity[i] = float64(p.Preference(n))
		for j := range n.Spec.Taints {
			t := &n.Spec.Taints[j]
			if t.Effect == v1.TaintEffectPreferNoSchedule &&
				Untolerated(n.Node, p.Spec.Tolerations,
					func(other *v1.Taint) bool { return *other == *t }) != nil {
				taints[i]++
			}
		}
	}
	mostTaints, mostAffinity, mostCrowd := highest(taints), highest(affinity), highest(crowd)
	out := zeroed(&c.scratch.scores, len(nodes))
	for i, n := range nodes {
		out[i] = weightTaints*(100-share(taints[i], mostTaints)) + weightAffinity*share(affinity[i],
			mostAffinity) +
			weightSpread*(100-share(crowd[i], mostCrowd)) + weightResources*c.resourceScore(p, n, packing)
	}
	return out
}

// scratch holds buffers that searches reuse.
type scratch struct {
	feasible                         []*Node
	taints, affinity, spread, scores []float64
	nodes                            []bool
}

// nodeSet returns a slice of false for each node.
func (r *scratch) nodeSet(nodes int) []bool {
	r.nodes = slices.Grow(r.nodes[:0], nodes)[:nodes]
	clear(r.nodes)
	return r.nodes
}

func zeroed(from *[]float64, count int) []float64 {
	*from = slices.Grow((*from)[:0], count)[:count]
	clear(*from)
	return *from
}

func highest(values []float64) (most float64) {
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

// share returns value as percentage of most.
func share(value, most float64) float64 {
	if most <= 0 {
		return 0
	}
	return value / most * 100
}

// resourceScore returns the free part of a node with the pod on it, from 0 to 100; for
// MostAllocated, the used part.
func (c *Cluster) resourceScore(p *Pod, n *Node, packing Packing) float64 {
	sum, known := 0.0, 0
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		whole, ok := n.Allocatable(name)
		if !ok || whole <= 0 {
			continue
		}
		used := n.Requested(name)
		if p.Node != n {
			used += p.Request(name)
		}
		sum += min(Percent(used, whole), 100)
		known++
	}
	if known == 0 {
		return 0
	}
	if packing == MostAllocated {
		return sum / float64(known)
	}
	return 100 - sum/float64(known)
}

// countSpreadPods adds to each node the number of pods from which the pod should be spread, as its
// spread constraints count them. Without constraints it counts the pods of the same owner on each
// node, as in the scheduler's system defaults.
func (c *Cluster) countSpreadPods(p *Pod, nodes []*Node, to []float64) {
	for _, k := range p.spread {
		s := c.countSpread(p, k)
		for i, n := range nodes {
			to[i] += float64(s.domains[n.Labels[k.Key]])
		}
	}
	owner := metav1.GetControllerOfNoCopy(p.Pod)
	if owner == nil && len(p.OwnerReferences) > 0 {
		owner = &p.OwnerReferences[0]
	}
	if len(p.spread) > 0 || owner == nil {
		return
	}
	count := func(plus int) {
		for _, other := range c.ownedBy(p.Namespace, owner) {
			if other != p && other.Node != nil && !other.Ended && other.OwnedBy(owner) {
				other.Node.siblings += plus
			}
		}
	}
	count(1)
	for i, n := range nodes {
		to[i] = float64(n.siblings)
	}
	count(-1)
}

// OwnedBy reports whether a pod has an owner.
func (p *Pod) OwnedBy(owner *metav1.OwnerReference) bool {
	for i := range p.OwnerReferences {
		if o := &p.OwnerReferences[i]; o.UID == owner.UID && o.Kind == owner.Kind &&
			o.Name == owner.Name {
			return true
		}
	}
	return false
}

// Preference returns the sum of the weights of the pod's preferred node affinity terms that match
// a node.
func (p *Pod) Preference(n *Node) int64 {
	if p.preferred == nil {
		return 0
	}
	return p.preferred.Score(n.Node)
}
