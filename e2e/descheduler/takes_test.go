package descheduler

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	nodeutil "sigs.k8s.io/descheduler/pkg/descheduler/node"
	"sigs.k8s.io/descheduler/pkg/utils"

	"jettison/cluster/deschedule"
)

// refuses returns the reason why a node other than its own does not accept a pod: by the
// descheduler's NodeFit, or by the other scheduler rules used in these clusters, computed directly.
// Empty: it accepts the pod.
func refuses(s *deschedule.Snapshot, p *v1.Pod, n *v1.Node) string {
	if !nodeutil.IsReady(n) {
		return "not ready"
	}
	if err := nodeutil.NodeFit(context.Background(), assigned(s), p, n); err != nil {
		return err.Error()
	}
	for _, other := range s.Pods {
		at := nodeOf(s, other.Spec.NodeName)
		if keyOf(other) == keyOf(p) || at == nil || ended(other) {
			continue
		}
		if repels(p, other, n, at) || repels(other, p, n, at) {
			return "anti-affinity"
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		k := &p.Spec.TopologySpreadConstraints[i]
		if k.WhenUnsatisfiable == v1.DoNotSchedule && skewed(s, p, k, n) {
			return "spread"
		}
	}
	return ""
}

// repels reports whether a required anti-affinity of a pod rejects another one on the given nodes.
func repels(p, other *v1.Pod, a, b *v1.Node) bool {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil || p.Namespace != other.Namespace {
		return false
	}
	required := p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return slices.ContainsFunc(required, func(t v1.PodAffinityTerm) bool {
		x, in := a.Labels[t.TopologyKey]
		return in && x == b.Labels[t.TopologyKey] && selectorOf(t.LabelSelector).Matches(labels.Set(other.Labels))
	})
}

func selectorOf(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		panic(err)
	}
	return out
}

// domains returns the pods that a constraint counts, by domain, without the pod itself.
func domains(s *deschedule.Snapshot, p *v1.Pod, k *v1.TopologySpreadConstraint, nodes []*v1.Node, without string) map[string]int {
	out := map[string]int{}
	counts := map[string]string{}
	for _, n := range nodes {
		domain, ok := n.Labels[k.TopologyKey]
		if match, err := utils.PodMatchNodeSelector(p, n); !ok || err != nil || !match {
			continue
		}
		if k.NodeTaintsPolicy != nil && *k.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor && !tolerates(p, n) {
			continue
		}
		out[domain] += 0
		counts[n.Name] = domain
	}
	selector := selectorOf(k.LabelSelector)
	for _, other := range s.Pods {
		domain, ok := counts[other.Spec.NodeName]
		if ok && keyOf(other) != without && other.Namespace == p.Namespace && !ended(other) && other.DeletionTimestamp == nil &&
			selector.Matches(labels.Set(other.Labels)) {
			out[domain]++
		}
	}
	return out
}

func tolerates(p *v1.Pod, n *v1.Node) bool {
	return utils.TolerationsTolerateTaintsWithFilter(context.Background(), p.Spec.Tolerations, n.Spec.Taints, func(t *v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule
	})
}

// least returns the smallest domain, from which skew is measured.
func least(k *v1.TopologySpreadConstraint, sizes map[string]int) int {
	if k.MinDomains != nil && len(sizes) < int(*k.MinDomains) {
		return 0
	}
	out := -1
	for _, size := range sizes {
		if out < 0 || size < out {
			out = size
		}
	}
	return max(out, 0)
}

// skewed reports whether a pod would exceed the skew in a node's domain.
func skewed(s *deschedule.Snapshot, p *v1.Pod, k *v1.TopologySpreadConstraint, n *v1.Node) bool {
	domain, ok := n.Labels[k.TopologyKey]
	if !ok {
		return true
	}
	nodes := slices.DeleteFunc(slices.Clone(s.Nodes), func(n *v1.Node) bool { // the scheduler requires the keys of all constraints
		return slices.ContainsFunc(p.Spec.TopologySpreadConstraints, func(other v1.TopologySpreadConstraint) bool {
			return other.WhenUnsatisfiable == v1.DoNotSchedule && n.Labels[other.TopologyKey] == ""
		})
	})
	sizes := domains(s, p, k, nodes, keyOf(p))
	self := 0
	if selectorOf(k.LabelSelector).Matches(labels.Set(p.Labels)) {
		self = 1
	}
	return sizes[domain]+self-least(k, sizes) > int(k.MaxSkew)
}
