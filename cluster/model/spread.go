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
	// Identity is equal for constraints with the same effect on the same nodes and pods.
	Identity   string
	Key        string
	MaxSkew    int
	MinDomains int // 0: none
	Hard       bool
	Selector   labels.Selector

	indexed indexedSelector
	// equal for constraints that count the same nodes and have the same domains
	layoutKey      string
	template       *template // of the pods with this constraint
	honorsAffinity bool      // nodes that do not match the pod's node affinity do not count
	honorsTaints   bool      // nodes with taints that the pod does not tolerate do not count
}

// keySet is a set of topology keys.
type keySet struct {
	keys   []string
	digest string // equal for equal hard keys; empty: fewer than two
	// by Node.ordinal, one bit each: whether the node was checked, and has all keys
	known, matching []uint64
}

// softConstraints are the soft constraints of a pod and their topology keys.
type softConstraints struct {
	list []*Constraint
	keys keySet
}

func softConstraintsOf(all []*Constraint) (s softConstraints) {
	for _, k := range all {
		if !k.Hard {
			s.list, s.keys.keys = append(s.list, k), append(s.keys.keys, k.Key)
		}
	}
	return s
}

// hardKeysOf returns the topology keys of hard constraints if there is more than one.
func hardKeysOf(all []*Constraint) (h keySet) {
	seen := map[string]bool{}
	for _, k := range all {
		if k.Hard {
			seen[k.Key] = true
		}
	}
	if len(seen) > 1 {
		h.keys = slices.Sorted(maps.Keys(seen))
		h.digest = "|" + digestOf(h.keys)
	}
	return h
}

// has reports whether a node has all keys. A pod may have many, so the result is kept.
func (h *keySet) has(n *Node) bool {
	return memoize(&h.known, &h.matching, n, func() bool {
		return !slices.ContainsFunc(h.keys,
			func(key string) bool { _, has := n.Labels[key]; return !has })
	})
}

// nodeRules are digests of a pod's node affinity and tolerations. Both may be as long as a pod
// object allows, and a pod may have many constraints.
type nodeRules struct{ affinity, tolerations string }

func nodeRulesOf(p *v1.Pod) (out nodeRules) {
	var required *v1.NodeSelector
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(p.Spec.NodeSelector) > 0 || required != nil {
		out.affinity = digestOf(p.Spec.NodeSelector, required)
	}
	if len(p.Spec.Tolerations) > 0 {
		out.tolerations = digestOf(p.Spec.Tolerations)
	}
	return out
}

func digestOf(parts ...any) string {
	text, _ := json.Marshal(parts) // API types never fail
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// constraint reads a spread constraint of a pod. Defaults are those of the API:
// nodeAffinityPolicy Honor, nodeTaintsPolicy Ignore.
func constraint(p *v1.Pod, t *template, in *v1.TopologySpreadConstraint, s *nodeRules) *Constraint {
	selector := withKeys(selectorOf(in.LabelSelector), p.Labels, in.MatchLabelKeys, true)
	c := &Constraint{
		Key: in.TopologyKey, MaxSkew: int(in.MaxSkew), Hard: in.WhenUnsatisfiable != v1.ScheduleAnyway,
		Selector: selector, indexed: newIndexedSelector(selector),
		template:       t,
		honorsAffinity: in.NodeAffinityPolicy == nil || *in.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor,
		honorsTaints:   in.NodeTaintsPolicy != nil && *in.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor,
	}
	if in.MinDomains != nil && c.Hard {
		c.MinDomains = int(*in.MinDomains)
	}
	affinity, tolerations := "", ""
	if c.honorsAffinity {
		affinity = s.affinity
	}
	if c.honorsTaints {
		tolerations = s.tolerations
	}
	c.layoutKey = fmt.Sprintf("%s|%t|%x|%t|%x", c.Key, c.honorsAffinity, affinity, c.honorsTaints, tolerations)
	c.Identity = fmt.Sprintf("%d|%d|%t|%s|%s", c.MaxSkew, c.MinDomains, c.Hard, c.Selector, c.layoutKey)
	return c
}

// Constraints returns the spread constraints of a pod.
func (p *Pod) Constraints() []*Constraint { return p.spread }

// Domain returns the domain of a node; false: the node does not count.
func (k *Constraint) Domain(n *Node) (string, bool) {
	value, ok := n.Labels[k.Key]
	if !ok {
		return "", false
	}
	if k.honorsAffinity && !k.template.matchesNode(n) {
		return "", false
	}
	if k.honorsTaints && !k.template.toleratesNode(n) {
		return "", false
	}
	return value, true
}

// domainLayout assigns nodes to domains.
type domainLayout struct {
	names     []string
	byOrdinal []int // by Node.ordinal: an index into names; -1: the node does not count
}

// layoutOf returns the layout of all nodes. Constraints with the same layoutKey share it.
func (c *Cluster) layoutOf(k *Constraint) *domainLayout {
	return c.layoutFor(k.layoutKey, k.Domain)
}

// fitLayoutOf returns the layout for placing a pod: only nodes with the keys of all its hard
// constraints count (pkg/scheduler/framework/plugins/podtopologyspread/filtering.go,
// calPreFilterState, v1.37.2).
func (c *Cluster) fitLayoutOf(k *Constraint) *domainLayout {
	if k.template.hard.digest == "" {
		return c.layoutOf(k)
	}
	return c.layoutFor(k.layoutKey+k.template.hard.digest, func(n *Node) (string, bool) {
		if !k.template.hard.has(n) {
			return "", false
		}
		return k.Domain(n)
	})
}

// layoutFor returns the layout with a name. domainOf must be the same function for the same name.
func (c *Cluster) layoutFor(name string, domainOf func(*Node) (string, bool)) *domainLayout {
	if l, ok := c.layouts[name]; ok {
		return l
	}
	l := &domainLayout{byOrdinal: make([]int, len(c.Nodes))}
	places := map[string]int{}
	for i, n := range c.Nodes {
		domain, ok := domainOf(n)
		if !ok {
			l.byOrdinal[i] = -1
			continue
		}
		at, known := places[domain]
		if !known {
			at = len(l.names)
			places[domain], l.names = at, append(l.names, domain)
		}
		l.byOrdinal[i] = at
	}
	c.layouts[name] = l
	return l
}

// CountByDomain returns how many pods of a namespace the constraint counts in each domain of the
// given nodes. Pods being deleted do not count.
func (k *Constraint) CountByDomain(c *Cluster, namespace string, nodes []*Node) map[string]int {
	l := c.layoutOf(k)
	counts, included := make([]int, len(l.names)), c.scratch.nodeSet(len(c.Nodes))
	for i := range counts {
		counts[i] = -1 // without any of the nodes
	}
	for _, n := range nodes {
		included[n.ordinal] = true
		if domain := l.byOrdinal[n.ordinal]; domain >= 0 {
			counts[domain] = 0
		}
	}
	for _, p := range c.selected(namespace, &k.indexed) {
		if p.Node == nil || !included[p.Node.ordinal] || !k.Counts(p) {
			continue
		}
		if domain := l.byOrdinal[p.Node.ordinal]; domain >= 0 {
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

// Counts reports whether the constraint counts a pod that is on a node.
func (k *Constraint) Counts(p *Pod) bool {
	return !p.Ended && p.DeletionTimestamp == nil && k.Selector.Matches(labels.Set(p.Labels))
}

// MinCount returns the number of pods from which skew is measured: that of the smallest domain,
// or 0 if there are fewer domains than MinDomains.
func (k *Constraint) MinCount(domains map[string]int) int {
	if len(domains) == 0 || len(domains) < k.MinDomains {
		return 0
	}
	least := int(^uint(0) >> 1)
	for _, count := range domains {
		least = min(least, count)
	}
	return least
}
