package model

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
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

	required    nodeaffinity.RequiredNodeAffinity
	affinity    bool // nodes that the pod's affinity leaves out do not count
	taints      bool // nodes whose taints the pod does not tolerate do not count
	tolerations []v1.Toleration
}

// constraint reads one of a pod. Defaults are the API's: nodeAffinityPolicy Honor, nodeTaintsPolicy Ignore.
func constraint(p *Pod, in *v1.TopologySpreadConstraint) *Constraint {
	c := &Constraint{
		Key: in.TopologyKey, MaxSkew: int(in.MaxSkew), Hard: in.WhenUnsatisfiable != v1.ScheduleAnyway,
		Selector: withKeys(selectorOf(in.LabelSelector), p.Labels, in.MatchLabelKeys, true),
		required: p.required, tolerations: p.Spec.Tolerations,
		affinity: in.NodeAffinityPolicy == nil || *in.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor,
		taints:   in.NodeTaintsPolicy != nil && *in.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor,
	}
	if in.MinDomains != nil && c.Hard {
		c.MinDomains = int(*in.MinDomains)
	}
	var nodes []any
	if c.affinity {
		nodes = append(nodes, p.Spec.NodeSelector)
		if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			nodes = append(nodes, a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	if c.taints {
		nodes = append(nodes, p.Spec.Tolerations)
	}
	text, _ := json.Marshal(nodes) // of the API's own types
	c.Identity = fmt.Sprintf("%s|%d|%d|%t|%s|%t|%t|%s", c.Key, c.MaxSkew, c.MinDomains, c.Hard, c.Selector, c.affinity, c.taints, text)
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
	if k.affinity {
		if match, err := k.required.Match(n.Node); err != nil || !match {
			return "", false
		}
	}
	if k.taints && untolerated(n.Node, k.tolerations) != nil {
		return "", false
	}
	return value, true
}

// Domains is how many pods of a namespace a constraint counts in each of its domains that the nodes make. Those that are being deleted do
// not count.
func (k *Constraint) Domains(c *Cluster, namespace string, nodes []*Node) map[string]int {
	out, where := map[string]int{}, make(map[*Node]string, len(nodes))
	for _, n := range nodes {
		if domain, ok := k.Domain(n); ok {
			out[domain] += 0
			where[n] = domain
		}
	}
	for _, p := range c.pods[namespace] {
		if domain, ok := where[p.Node]; ok && k.Counts(p) {
			out[domain]++
		}
	}
	return out
}

// Counts reports whether a constraint counts a pod that is on a node.
func (k *Constraint) Counts(p *Pod) bool {
	return !p.Ended && p.DeletionTimestamp == nil && k.Selector.Matches(labels.Set(p.Labels))
}

// Least is the number of pods that skew is measured from: that of the smallest domain, and 0 while there are fewer domains than the
// constraint wants.
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
