package model

import (
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// template is what a scheduler asks about a pod. Pods of one owner are made of the same, so it is read of one of them and kept once.
type template struct {
	of        *v1.Pod // that it was read of
	requests  amounts
	required  nodeaffinity.RequiredNodeAffinity
	preferred *nodeaffinity.PreferredSchedulingTerms // nil: it prefers none
	anti      []term
	repels    []about // what anti is about, each once
	affinity  []term
	spread    []*Constraint
}

// Templates are those that were read. Nothing of them changes, so that clusters may share them.
type Templates struct {
	byOwner map[types.UID]*template // of the first pod of each owner
	buffer  amounts
}

// NewTemplates makes some of which none was read.
func NewTemplates() *Templates { return &Templates{byOwner: map[types.UID]*template{}} }

// of is the template of a pod.
func (t *Templates) of(p *v1.Pod) *template {
	var known *template
	owner := types.UID("")
	if len(p.OwnerReferences) > 0 {
		owner = p.OwnerReferences[0].UID
		known = t.byOwner[owner]
	}
	t.buffer = requests(t.buffer[:0], p)
	if known != nil && slices.Equal(known.requests, t.buffer) && alike(known.of, p) {
		return known
	}
	made := readTemplate(p)
	made.requests = slices.Clone(t.buffer)
	if known == nil && owner != "" {
		t.byOwner[owner] = made
	}
	return made
}

// alike reports whether two pods ask the same of nodes and of other pods.
func alike(a, b *v1.Pod) bool {
	x, y := &a.Spec, &b.Spec
	if asksNothing(x) && asksNothing(y) {
		return true
	}
	return a.Namespace == b.Namespace && maps.Equal(x.NodeSelector, y.NodeSelector) && reflect.DeepEqual(x.Tolerations, y.Tolerations) &&
		reflect.DeepEqual(x.Affinity, y.Affinity) && reflect.DeepEqual(x.TopologySpreadConstraints, y.TopologySpreadConstraints) &&
		(!byLabels(x) || maps.Equal(a.Labels, b.Labels))
}

// asksNothing: it is all the same where such a pod is, and with whom.
func asksNothing(s *v1.PodSpec) bool {
	return len(s.NodeSelector) == 0 && s.Affinity == nil && len(s.TopologySpreadConstraints) == 0
}

// byLabels reports whether the pod's own labels are part of a selector.
func byLabels(s *v1.PodSpec) bool {
	term := func(t v1.PodAffinityTerm) bool { return len(t.MatchLabelKeys)+len(t.MismatchLabelKeys) > 0 }
	if a := s.Affinity; a != nil {
		if a.PodAffinity != nil && slices.ContainsFunc(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, term) ||
			a.PodAntiAffinity != nil && slices.ContainsFunc(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, term) {
			return true
		}
	}
	return slices.ContainsFunc(s.TopologySpreadConstraints, func(k v1.TopologySpreadConstraint) bool { return len(k.MatchLabelKeys) > 0 })
}

// readTemplate reads all but what is requested.
func readTemplate(p *v1.Pod) *template {
	t := &template{of: p}
	if asksNothing(&p.Spec) {
		return t
	}
	t.required = nodeaffinity.GetRequiredNodeAffinity(p)
	if a := p.Spec.Affinity; a != nil {
		if n := a.NodeAffinity; n != nil && len(n.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			// One that cannot be read prefers none.
			t.preferred, _ = nodeaffinity.NewPreferredSchedulingTerms(n.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			t.anti = terms(p, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			t.repels = aboutOf(t.anti)
		}
		if a.PodAffinity != nil {
			t.affinity = terms(p, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		t.spread = append(t.spread, constraint(p, t.required, &p.Spec.TopologySpreadConstraints[i]))
	}
	return t
}
