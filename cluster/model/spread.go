package model

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Constraint is a topology spread constraint of a pod.
type Constraint struct {
	// Identity is the same for constraints that say the same of the same nodes and pods.
	Identity   string
	Key        string
	MaxSkew    int
	MinDomains int // 0: none
	Hard       bool
	Selector   labels.Selector

	pick pick
	// what it says of nodes: the same for constraints of which the same nodes count, and make the same
	// domains
	nodes       string
	of          *template // of whose pods it is
	affinity    bool      // nodes that the pod's affinity leaves out do not count
	taints      bool      // nodes whose taints the pod does not tolerate do not count
	tolerations []v1.Toleration
}

// hardKeys are the labels that the hard constraints of a pod spread by, where they are several.
type hardKeys struct {
	keys      []string
	same      string   // the same for the same keys; empty: there are not several
	known, in []uint64 // by Node.place, a bit each: whether it was looked at, and has them all
}

func hardKeysOf(all []*Constraint) (h hardKeys) {
	seen := map[string]bool{}
	for _, k := range all {
		if k.Hard {
			seen[k.Key] = true
		}
	}
	if len(seen) > 1 {
		h.keys = slices.Sorted(maps.Keys(seen))
		h.same = "|" + digest(h.keys)
	}
	return h
}

// has reports whether a node has all these labels. There may be many of them, so it is looked at
// once.
func (h *hardKeys) has(n *Node) bool {
	return once(&h.known, &h.in, n, func() bool {
		return !slices.ContainsFunc(h.keys,
			func(key string) bool { _, has := n.Labels[key]; return !has })
	})
}

// sayings are what a pod says of nodes, as short texts that are the same where it says the same: it
// may be as long as a pod may be, and there may be as many constraints as it has room for.
type sayings struct{ affinity, tolerations string }

func sayingsOf(p *v1.Pod) (out sayings) {
	var required *v1.NodeSelector
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(p.Spec.NodeSelector) > 0 || required != nil {
		out.affinity = digest(p.Spec.NodeSelector, required)
	}
	if len(p.Spec.Tolerations) > 0 {
		out.tolerations = digest(p.Spec.Tolerations)
	}
	return out
}

func digest(of ...any) string {
	text, _ := json.Marshal(of) // of the API's own types
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// constraint reads one of a pod. Defaults are the API's: nodeAffinityPolicy Honor, nodeTaintsPolicy
// Ignore.
func constraint(p *v1.Pod, of *template, in *v1.TopologySpreadConstraint, s *sayings) *Constraint {
	selector := withKeys(selectorOf(in.LabelSelector), p.Labels, in.MatchLabelKeys, true)
	c := &Constraint{
		Key: in.TopologyKey, MaxSkew: int(in.MaxSkew), Hard: in.WhenUnsatisfiable != v1.ScheduleAnyway,
		Selector: selector, pick: pickBy(selector),
		of: of, tolerations: p.Spec.Tolerations,
		affinity: in.NodeAffinityPolicy == nil || *in.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor,
		taints:   in.NodeTaintsPolicy != nil && *in.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor,
	}
	if in.MinDomains != nil && c.Hard {
		c.MinDomains = int(*in.MinDomains)
	}
	affinity, tolerations := "", ""
	if c.affinity {
		affinity = s.affinity
	}
	if c.taints {
		tolerations = s.tolerations
	}
	c.nodes = fmt.Sprintf("%s|%t|%x|%t|%x", c.Key, c.affinity, affinity, c.taints, tolerations)
	c.Identity = fmt.Sprintf("%d|%d|%t|%s|%s", c.MaxSkew, c.MinDomains, c.Hard, c.Selector, c.nodes)
	return c
}

// Constraints of a pod.
func (p *Pod) Constraints() []*Constraint { return p.spread }

// Domain is where a node is by a constraint; false: it does not count.
func (k *Constraint) Domain(n *Node) (string, bool) {
	value, ok := n.Labels[k.Key]
	if !ok {
		return "", false
	}
	if k.affinity && !k.of.has(n) {
		return "", false
	}
	if k.taints && untolerated(n.Node, k.tolerations) != nil {
		return "", false
	}
	return value, true
}

// layout is which domains nodes make.
type layout struct {
	names []string
	of    []int // by Node.place: a place in names; -1: the node does not count
}

// layoutOf is that of all nodes. Constraints that say the same of nodes have it in common.
func (c *Cluster) layoutOf(k *Constraint) *layout {
	return c.layoutBy(k.nodes, k.Domain)
}

// fitLayoutOf is that of the nodes that count where a hard constraint's pod is to fit: those with
// the labels of all its hard constraints
// (pkg/scheduler/framework/plugins/podtopologyspread/filtering.go, calPreFilterState, v1.36.3).
func (c *Cluster) fitLayoutOf(k *Constraint) *layout {
	if k.of.hard.same == "" {
		return c.layoutOf(k)
	}
	return c.layoutBy(k.nodes+k.of.hard.same, func(n *Node) (string, bool) {
		if !k.of.hard.has(n) {
			return "", false
		}
		return k.Domain(n)
	})
}

// layoutBy is that by a function, which is the same for the same name.
func (c *Cluster) layoutBy(name string, domainOf func(*Node) (string, bool)) *layout {
	if l, ok := c.layouts[name]; ok {
		return l
	}
	l := &layout{of: make([]int, len(c.Nodes))}
	places := map[string]int{}
	for i, n := range c.Nodes {
		domain, ok := domainOf(n)
		if !ok {
			l.of[i] = -1
			continue
		}
		at, known := places[domain]
		if !known {
			at = len(l.names)
			places[domain], l.names = at, append(l.names, domain)
		}
		l.of[i] = at
	}
	c.layouts[name] = l
	return l
}

// Domains is how many pods of a namespace a constraint counts in each of its domains that some
// nodes make. Those that are being deleted do not count.
func (k *Constraint) Domains(c *Cluster, namespace string, nodes []*Node) map[string]int {
	l := c.layoutOf(k)
	counts, asked := make([]int, len(l.names)), c.room.asked(len(c.Nodes))
	for i := range counts {
		counts[i] = -1 // none of the nodes is there
	}
	for _, n := range nodes {
		asked[n.place] = true
		if domain := l.of[n.place]; domain >= 0 {
			counts[domain] = 0
		}
	}
	for _, p := range c.selected(namespace, &k.pick) {
		if p.Node == nil || !asked[p.Node.place] || !k.Counts(p) {
			continue
		}
		if domain := l.of[p.Node.place]; domain >= 0 {
			counts[domain]++
		}
	}
	out := make(map[string]int, len(counts))
	for i, count := range counts {
		if count >= 0 {
			out[l.names[i]] = count
		}
	}
	return out
}

// Counts reports whether a constraint counts a pod that is on a node.
func (k *Constraint) Counts(p *Pod) bool {
	return !p.Ended && p.DeletionTimestamp == nil && k.Selector.Matches(labels.Set(p.Labels))
}

// Least is the number of pods that skew is measured from: that of the smallest domain, and 0 while
// there are fewer domains than the constraint wants.
func (k *Constraint) Least(domains map[string]int) int {
	if len(domains) == 0 || len(domains) < k.MinDomains {
		return 0
	}
	least := int(^uint(0) >> 1)
	for _, count := range domains {
		least = min(least, count)
	}
	return least
}
