package model

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Packing is the scoring strategy of NodeResourcesFit.
type Packing int

// LeastAllocated prefers empty nodes and is the scheduler's default. MostAllocated prefers full
// ones.
const (
	LeastAllocated Packing = iota
	MostAllocated
)

// SchedulerProfile describes how a scheduler scores nodes. The weights multiply the scores of its
// plugins; 0 disables a plugin.
type SchedulerProfile struct {
	Packing Packing

	TaintToleration, NodeAffinity, PodTopologySpread, InterPodAffinity int64
	NodeResourcesFit, NodeResourcesBalancedAllocation                  int64
}

// DefaultProfile returns the default profile of kube-scheduler
// (pkg/scheduler/apis/config/v1/default_plugins.go, v1.37.2).
func DefaultProfile() *SchedulerProfile {
	return &SchedulerProfile{
		TaintToleration: 3, NodeAffinity: 2, PodTopologySpread: 2, InterPodAffinity: 2,
		NodeResourcesFit: 1, NodeResourcesBalancedAllocation: 1,
	}
}

// In large clusters the scheduler stops after this number of feasible nodes, or percentage of all
// nodes (schedule_one.go, numFeasibleNodesToFind).
const (
	minFeasibleNodes   = 100
	minFeasiblePercent = 5
	basePercent        = 50
	nodesPerPercent    = 125
)

// Place returns the node on which a scheduler would likely place a pod; nil: it fits on none. The
// pod is treated as if it were on no node. Ties are broken by name.
func (c *Cluster) Place(p *Pod, profile *SchedulerProfile) *Node {
	if top := c.FitCheck(p).TopNodes(profile); len(top) > 0 {
		return top[0]
	}
	return nil
}

// TopNodes returns the nodes with the highest score among those that the pod fits on, by name. A
// scheduler chooses one of them at random. The result is valid until the next call for any pod.
func (q *FitCheck) TopNodes(profile *SchedulerProfile) []*Node {
	fit := q.feasible()
	if len(fit) < 2 {
		return fit
	}
	scores := q.scores(fit, profile)
	most, top := slices.Max(scores), fit[:0]
	for i, n := range fit {
		if scores[i] == most {
			top = append(top, n)
		}
	}
	slices.SortFunc(top, func(a, b *Node) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return top
}

// feasible returns as many of the nodes that the pod fits on as a scheduler scores. The pod's own
// node is one of them if the pod fits on it.
func (q *FitCheck) feasible() []*Node {
	c := q.c
	fit, enough, from := c.scratch.feasible[:0], feasibleLimit(len(c.Nodes)), 0
	// The scheduler starts where its last search stopped. Here the pod's name determines the start,
	// so that results are reproducible.
	if len(c.Nodes) > minFeasibleNodes {
		h := fnv.New32a()
		_, _ = h.Write([]byte(q.pod.Key()))
		from = int(h.Sum32() % uint32(len(c.Nodes)))
	}
	own := q.pod.Node
	if own != nil && q.fits(own) {
		fit = append(fit, own)
	}
	others := q.otherFeasible(from, enough)
	fit = append(fit, others[:min(len(others), enough-len(fit))]...)
	c.scratch.feasible = fit
	return fit
}

// otherFeasible returns up to enough nodes, other than the pod's own, that the pod fits on. A check
// and its Successor share them.
func (q *FitCheck) otherFeasible(from, enough int) []*Node {
	s, of := &q.c.scratch, cmp.Or(q.shared, q)
	if s.othersOf == of {
		return s.others
	}
	s.others, s.othersOf = s.others[:0], of
	for i := 0; i < len(q.c.Nodes) && len(s.others) < enough; i++ {
		if n := q.c.Nodes[(from+i)%len(q.c.Nodes)]; n != q.pod.Node && q.fits(n) {
			s.others = append(s.others, n)
		}
	}
	return s.others
}

// FitsAny reports whether the pod fits on any of the nodes that wanted selects.
func (q *FitCheck) FitsAny(wanted func(*Node) bool) bool {
	return slices.ContainsFunc(q.c.Nodes, func(n *Node) bool { return wanted(n) && q.fits(n) })
}

// feasibleLimit returns how many feasible nodes the scheduler looks for.
func feasibleLimit(nodes int) int {
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

// Preference returns the sum of the weights of the pod's preferred node affinity terms that match
// a node.
func (p *Pod) Preference(n *Node) int64 {
	if p.preferred == nil {
		return 0
	}
	return p.preferred.Score(n.Node)
}
