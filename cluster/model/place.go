package model

import (
	"hash/fnv"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Packing is which nodes a scheduler likes.
type Packing int

// Emptier is NodeResourcesFit's LeastAllocated, the default; Fuller is MostAllocated, which
// HighNodeUtilization is made for.
const (
	Emptier Packing = iota
	Fuller
)

// Weights of what a node is liked for: those of the default profile of kube-scheduler 1.36
// (pkg/scheduler/apis/config/v1/default_plugins.go).
const (
	weightTaints    = 3
	weightAffinity  = 2
	weightSpread    = 2
	weightResources = 1
)

// Large clusters are not searched to the end: so many nodes with room are enough, or so many
// percent of all (schedule_one.go, numFeasibleNodesToFind).
const (
	enoughNodes   = 100
	leastPercent  = 5
	percentAtZero = 50
	nodesAPercent = 125
)

// Place is the node that a scheduler would likely put a pod on, which is thought away from where it
// is, of those that are wanted (nil: all); nil: none takes it. Of nodes that are liked equally it
// is the first by name.
func (c *Cluster) Place(p *Pod, packing Packing, wanted func(*Node) bool) *Node {
	q := c.Ask(p)
	fit := c.room.fit[:0]
	enough := enoughOf(len(c.Nodes))
	from := 0
	// the scheduler goes round; here the same pod is always answered the same
	if len(c.Nodes) > enoughNodes {
		h := fnv.New32a()
		_, _ = h.Write([]byte(p.Key()))
		from = int(h.Sum32() % uint32(len(c.Nodes)))
	}
	for i := range c.Nodes {
		n := c.Nodes[(from+i)%len(c.Nodes)]
		if (wanted == nil || wanted(n)) && q.takes(n) {
			if fit = append(fit, n); len(fit) == enough {
				break
			}
		}
	}
	c.room.fit = fit
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

func enoughOf(nodes int) int {
	if nodes <= enoughNodes {
		return nodes
	}
	percent := max(percentAtZero-nodes/nodesAPercent, leastPercent)
	return max(nodes*percent/100, enoughNodes)
}

// Fits is a node other than the pod's own that takes it, among some, and why the last one asked did
// not.
func (c *Cluster) Fits(p *Pod, among []*Node) (found *Node, why string) {
	q, r := c.Ask(p), refusal{}
	for _, n := range among {
		if n == p.Node {
			continue
		}
		if r = q.refuses(n); r.why == "" {
			return n, ""
		}
	}
	return nil, r.String()
}

// scores of nodes that take a pod, each part from 0 to 100 before it is weighed.
func (c *Cluster) scores(p *Pod, nodes []*Node, packing Packing) []float64 {
	taints, affinity, crowd := zeroes(&c.room.taints, len(nodes)),
		zeroes(&c.room.affinity, len(nodes)), zeroes(&c.room.crowd, len(nodes))
	c.crowd(p, nodes, crowd)
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
	out := zeroes(&c.room.scores, len(nodes))
	for i, n := range nodes {
		out[i] = weightTaints*(100-share(taints[i], mostTaints)) + weightAffinity*share(affinity[i],
			mostAffinity) +
			weightSpread*(100-share(crowd[i], mostCrowd)) + weightResources*c.fullness(p, n, packing)
	}
	return out
}

// room is for what one search after another needs for itself.
type room struct {
	fit                             []*Node
	taints, affinity, crowd, scores []float64
	nodes                           []bool
}

// asked is false for each node.
func (r *room) asked(nodes int) []bool {
	r.nodes = slices.Grow(r.nodes[:0], nodes)[:nodes]
	clear(r.nodes)
	return r.nodes
}

func zeroes(from *[]float64, count int) []float64 {
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

// share of the most, in percent.
func share(value, most float64) float64 {
	if most <= 0 {
		return 0
	}
	return value / most * 100
}

// fullness likes what a node has left once the pod is there, or what it has not.
func (c *Cluster) fullness(p *Pod, n *Node, packing Packing) float64 {
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
	if packing == Fuller {
		return sum / float64(known)
	}
	return 100 - sum/float64(known)
}

// crowd adds how many pods are where a node is that the pod is to be spread from: by its own soft
// constraints, or where it has none by the node for those of one owner, as the scheduler's system
// defaults have it.
func (c *Cluster) crowd(p *Pod, nodes []*Node, to []float64) {
	for _, k := range p.spread {
		s := c.spreadOf(p, k)
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
				other.Node.kin += plus
			}
		}
	}
	count(1)
	for i, n := range nodes {
		to[i] = float64(n.kin)
	}
	count(-1)
}

// OwnedBy reports whether an owner is one of a pod's.
func (p *Pod) OwnedBy(owner *metav1.OwnerReference) bool {
	for i := range p.OwnerReferences {
		if o := &p.OwnerReferences[i]; o.UID == owner.UID && o.Kind == owner.Kind &&
			o.Name == owner.Name {
			return true
		}
	}
	return false
}

// Preference is the sum of the weights of those of a pod's preferred terms that a node matches.
func (p *Pod) Preference(n *Node) int64 {
	if p.preferred == nil {
		return 0
	}
	return p.preferred.Score(n.Node)
}
