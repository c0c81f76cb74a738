package model

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// term is one of a pod's terms about other pods: a selector, the namespaces it counts in, and the
// label of nodes that says what is together.
type term struct {
	pick
	namespaces []string
	spaces     labels.Selector // of namespaces, beside those named; nil: none
	key        string
}

// terms of a pod. A term without namespaces and without a selector for them is about the pod's own.
func terms(p *v1.Pod, in []v1.PodAffinityTerm) []term {
	out := make([]term, 0, len(in))
	for i := range in {
		t := &in[i]
		selector := selectorOf(t.LabelSelector)
		selector = withKeys(selector, p.Labels, t.MatchLabelKeys, true)
		selector = withKeys(selector, p.Labels, t.MismatchLabelKeys, false)
		made := term{pick: pickBy(selector), namespaces: t.Namespaces, key: t.TopologyKey}
		if t.NamespaceSelector != nil {
			made.spaces = selectorOf(t.NamespaceSelector)
		}
		if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
			made.namespaces = []string{p.Namespace}
		}
		out = append(out, made)
	}
	return out
}

// selectorOf reads a selector; one that cannot be read matches nothing, as none does.
func selectorOf(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// withKeys adds to a selector that a pod has the same values of some labels, or other ones.
func withKeys(s labels.Selector, of map[string]string, keys []string, same bool) labels.Selector {
	if _, selects := s.Requirements(); !selects {
		return s
	}
	for _, key := range keys {
		value, ok := of[key]
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

func (t *term) about(c *Cluster, p *Pod) bool {
	if !slices.Contains(t.namespaces, p.Namespace) &&
		(t.spaces == nil || !t.spaces.Matches(c.Namespace(p.Namespace))) {
		return false
	}
	return t.selector.Matches(labels.Set(p.Labels))
}

// place is one value of a label of nodes.
type place struct{ key, value string }

// at is where a node is by a label.
func at(n *Node, key string) (place, bool) {
	value, ok := n.Labels[key]
	return place{key, value}, ok
}

// each calls do for each pod that a term is about and that is on a node with its label.
func (t *term) each(c *Cluster, do func(*Pod, place)) {
	t.visit(c, func(p *Pod) {
		if where, ok := at(p.Node, t.key); ok {
			do(p, where)
		}
	})
}

// visit calls do for each pod that a term is about, that is on a node and has not ended.
func (t *term) visit(c *Cluster, do func(*Pod)) {
	visit := func(namespace string) {
		for _, p := range c.selected(namespace, &t.pick) {
			if p.Node != nil && !p.Ended && t.about(c, p) {
				do(p)
			}
		}
	}
	if t.spaces == nil {
		for _, namespace := range t.namespaces {
			visit(namespace)
		}
		return
	}
	for namespace := range c.pods {
		visit(namespace)
	}
}

// about is what some term may be about: pods of a namespace (empty: of those that it selects) with
// one value of a label, or whatever their labels.
type about struct{ namespace, key, value string }

// aboutOf are what terms are about, each once.
func aboutOf(terms []term) []about {
	var out distinct[about]
	for i := range terms {
		t := &terms[i]
		namespaces := t.namespaces
		if t.spaces != nil {
			namespaces = append(slices.Clone(namespaces), "")
		}
		for _, namespace := range namespaces {
			out.add(about{namespace, t.label, t.value})
		}
	}
	return out.list
}

// Repels reports whether a pod has required anti-affinity of its own.
func (p *Pod) Repels() bool { return len(p.anti) > 0 }

// Offends is the pod that another one's own required anti-affinity keeps it from being with, among
// those it is with; nil: none. One on the same node is with it whatever the labels. Only terms of
// the pod itself count, and only pods that match: it is the question of the descheduler
// (pkg/utils/predicates.go, 0.36.0), with the namespaces and labels that the API has gained since.
func (c *Cluster) Offends(p *Pod, among func(*Pod) bool) *Pod {
	var first *Pod
	for i := range p.anti {
		t := &p.anti[i]
		t.visit(c, func(other *Pod) {
			if other == p || !among(other) || !together(p.Node, other.Node, t.key) {
				return
			}
			if first == nil || byKey(other.Pod, first.Pod) < 0 {
				first = other
			}
		})
	}
	return first
}

func together(a, b *Node, key string) bool {
	x, inA := at(a, key)
	y, inB := at(b, key)
	return a == b || inA && inB && x == y
}
