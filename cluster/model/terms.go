package model

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// term is one affinity or anti-affinity term of a pod: a selector, the namespaces it applies to,
// and the topology key.
type term struct {
	indexedSelector
	namespaces        []string
	namespaceSelector labels.Selector // selects further namespaces; nil: none
	key               string
}

// terms reads the terms of a pod. Without namespaces and namespaceSelector, a term applies to the
// pod's own namespace.
func terms(p *v1.Pod, in []v1.PodAffinityTerm) []term {
	out := make([]term, 0, len(in))
	for i := range in {
		t := &in[i]
		selector := selectorOf(t.LabelSelector)
		selector = withKeys(selector, p.Labels, t.MatchLabelKeys, true)
		selector = withKeys(selector, p.Labels, t.MismatchLabelKeys, false)
		made := term{indexedSelector: newIndexedSelector(selector), namespaces: t.Namespaces, key: t.TopologyKey}
		if t.NamespaceSelector != nil {
			made.namespaceSelector = selectorOf(t.NamespaceSelector)
		}
		if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
			made.namespaces = []string{p.Namespace}
		}
		out = append(out, made)
	}
	return out
}

// selectorOf converts a selector; an invalid or missing one matches nothing.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// withKeys adds requirements to a selector: the same values as the pod for some labels, or
// different ones.
func withKeys(s labels.Selector, podLabels map[string]string, keys []string, same bool) labels.Selector {
	if _, selects := s.Requirements(); !selects {
		return s
	}
	for _, key := range keys {
		value, ok := podLabels[key]
		if !ok {
			continue
		}
		op := selection.In
		if !same {
			op = selection.NotIn
		}
		if r, err := labels.NewRequirement(key, op, []string{value}); err == nil {
			s = s.Add(*r)
		}
	}
	return s
}

func (t *term) matches(c *Cluster, p *Pod) bool {
	if !slices.Contains(t.namespaces, p.Namespace) &&
		(t.namespaceSelector == nil || !t.namespaceSelector.Matches(c.Namespace(p.Namespace))) {
		return false
	}
	return t.selector.Matches(labels.Set(p.Labels))
}

// topologyValue is one value of a node label.
type topologyValue struct{ key, value string }

// topologyOf returns a node's value of a label; false: the node lacks it.
func topologyOf(n *Node, key string) (topologyValue, bool) {
	value, ok := n.Labels[key]
	return topologyValue{key, value}, ok
}

// visitPlaces calls do for each pod that a term matches and that is on a node with the topology
// key.
func (t *term) visitPlaces(c *Cluster, do func(*Pod, topologyValue)) {
	t.visit(c, func(p *Pod) {
		if where, ok := topologyOf(p.Node, t.key); ok {
			do(p, where)
		}
	})
}

// visit calls do for each pod that a term matches, that is on a node and has not ended.
func (t *term) visit(c *Cluster, do func(*Pod)) {
	visit := func(namespace string) {
		for _, p := range c.selected(namespace, &t.indexedSelector) {
			if p.Node != nil && !p.Ended && t.matches(c, p) {
				do(p)
			}
		}
	}
	if t.namespaceSelector == nil {
		for _, namespace := range t.namespaces {
			visit(namespace)
		}
		return
	}
	for namespace := range c.pods {
		visit(namespace)
	}
}

// termTarget describes pods that a term may match: those in a namespace (empty: by namespace
// selector) with a label value, or with any labels.
type termTarget struct{ namespace, key, value string }

// termTargets returns the targets of terms without duplicates.
func termTargets(all ...*term) []termTarget {
	var out distinct[termTarget]
	for _, t := range all {
		namespaces := t.namespaces
		if t.namespaceSelector != nil {
			namespaces = append(slices.Clone(namespaces), "")
		}
		for _, namespace := range namespaces {
			out.add(termTarget{namespace, t.label, t.value})
		}
	}
	return out.list
}

// podsByTarget has pods with terms of some kind, by the targets of these terms. A pod is in the
// list of each of its targets.
type podsByTarget map[termTarget][]*Pod

func (m podsByTarget) add(p *Pod, targets []termTarget) {
	for _, target := range targets {
		m[target] = append(m[target], p)
	}
}

func (m podsByTarget) remove(p *Pod, targets []termTarget) {
	for _, target := range targets {
		m[target] = without(m[target], p)
	}
}

// visit calls do with each list of pods whose terms may match p.
func (m podsByTarget) visit(p *Pod, do func([]*Pod)) {
	if len(m) == 0 {
		return
	}
	for _, namespace := range []string{p.Namespace, ""} {
		do(m[termTarget{namespace: namespace}])
		for key, value := range p.Labels {
			do(m[termTarget{namespace, key, value}])
		}
	}
}

// attractionTerm is a term that scores count, positive for affinity and negative for anti-affinity.
type attractionTerm struct {
	term
	weight   int64
	required bool // counts for the scores of other pods only
}

// attractionTerms reads the preferred terms of a pod and its required affinity.
func attractionTerms(p *v1.Pod, required []term) (out []attractionTerm) {
	for _, t := range required {
		out = append(out, attractionTerm{t, 1, true})
	}
	add := func(in []v1.WeightedPodAffinityTerm, sign int64) {
		for i := range in {
			t := terms(p, []v1.PodAffinityTerm{in[i].PodAffinityTerm})[0]
			out = append(out, attractionTerm{t, sign * int64(in[i].Weight), false})
		}
	}
	a := p.Spec.Affinity
	if a.PodAffinity != nil {
		add(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	}
	if a.PodAntiAffinity != nil {
		add(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	}
	return out
}

// HasAntiAffinity reports whether a pod has required anti-affinity.
func (p *Pod) HasAntiAffinity() bool { return len(p.antiAffinity) > 0 }

// AntiAffinityConflict returns the first pod by name that shares a topology with p although
// required anti-affinity of p excludes it; nil: none. Only terms of p itself apply, and only to pods
// for which counts returns true, as in the descheduler (pkg/utils/predicates.go, 0.36.0), extended
// by the namespaces and labels that the API added later.
//
// A node without the topology key violates no term, as in the scheduler
// (interpodaffinity/filtering.go, satisfyPodAntiAffinity, v1.37.2). The descheduler would evict the
// pods there although the scheduler may put them back.
func (c *Cluster) AntiAffinityConflict(p *Pod, counts func(*Pod) bool) *Pod {
	var first *Pod
	for i := range p.antiAffinity {
		t := &p.antiAffinity[i]
		t.visit(c, func(other *Pod) {
			if other == p || !counts(other) || !sameTopology(p.Node, other.Node, t.key) {
				return
			}
			if first == nil || byKey(other.Pod, first.Pod) < 0 {
				first = other
			}
		})
	}
	return first
}

func sameTopology(a, b *Node, key string) bool {
	x, inA := topologyOf(a, key)
	y, inB := topologyOf(b, key)
	return inA && inB && x == y
}
