package model

import (
	"cmp"
	"encoding/binary"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// template holds the scheduling terms of a pod, except its requests. Pods of one owner usually
// share it.
type template struct {
	source         *v1.Pod // the pod it was read from
	required       nodeaffinity.RequiredNodeAffinity
	restrictsNodes bool // required may exclude nodes
	// by Node.ordinal, one bit each: whether required was checked, and matches
	known, matching []uint64
	// the same for the hard taints, and those that the tolerations match; nil: not computed
	taintsKnown, taintsTolerated []uint64
	tolerated                    *ToleratedTaints
	preferred                    *nodeaffinity.PreferredSchedulingTerms // nil: no preference
	antiAffinity                 []term
	targets                      []termTarget // targets of antiAffinity without duplicates
	affinity                     []term
	// terms that scores count, and their targets without duplicates
	attraction        []attractionTerm
	attractionTargets []termTarget
	spread            []*Constraint
	hard              keySet
	soft              softConstraints
}

// Templates caches data shared by pods. Clusters with the same nodes may share it.
type Templates struct {
	byOwner      map[owner]*template     // of the first pod of each owner
	requests     map[string]*podRequests // distinct ones, by their encoding; a cluster has few
	ownerNumbers map[ownerName]int32
	empty        template // of pods without scheduling terms
	buffer       amounts
	text         []byte
}

// NewTemplates returns an empty cache.
func NewTemplates() *Templates {
	return &Templates{byOwner: map[owner]*template{}, requests: map[string]*podRequests{},
		ownerNumbers: map[ownerName]int32{}}
}

// owner identifies an owner by namespace and UID. References to the UID from other namespaces do
// not match.
type owner struct {
	namespace string
	uid       types.UID
}

// ownerName identifies an owner by kind and name.
type ownerName struct{ namespace, kind, name string }

func (t *Templates) ownerNumber(p *v1.Pod) int32 {
	if len(p.OwnerReferences) == 0 {
		return 0
	}
	first := &p.OwnerReferences[0]
	for i := range p.OwnerReferences {
		if o := &p.OwnerReferences[i]; cmp.Or(strings.Compare(o.Kind, first.Kind),
			strings.Compare(o.Name, first.Name)) < 0 {
			first = o
		}
	}
	key := ownerName{p.Namespace, first.Kind, first.Name}
	number, ok := t.ownerNumbers[key]
	if !ok {
		number = int32(len(t.ownerNumbers) + 1)
		t.ownerNumbers[key] = number
	}
	return number
}

// requested returns the requests of a pod.
func (t *Templates) requested(p *v1.Pod) *podRequests {
	t.buffer, t.text = requests(t.buffer[:0], p), t.text[:0]
	scored := scoredRequests(p, t.buffer)
	for _, value := range scored {
		t.text = binary.LittleEndian.AppendUint64(t.text, uint64(value))
	}
	for i := range t.buffer {
		a := &t.buffer[i]
		t.text = append(binary.LittleEndian.AppendUint64(t.text, uint64(a.Value)), a.Name...)
		t.text = append(t.text, 0)
	}
	known := t.requests[string(t.text)]
	if known == nil {
		known = &podRequests{slices.Clone(t.buffer), t.buffer.pair(), scored}
		t.requests[string(t.text)] = known
	}
	return known
}

// templateOf returns the template of a pod.
func (t *Templates) templateOf(p *v1.Pod) *template {
	if placementFree(&p.Spec) {
		return &t.empty
	}
	var known *template
	key := owner{namespace: p.Namespace}
	if len(p.OwnerReferences) > 0 {
		key.uid = p.OwnerReferences[0].UID
		known = t.byOwner[key]
	}
	if known != nil && sameTemplate(known.source, p) {
		return known
	}
	made := readTemplate(p)
	if known == nil && key.uid != "" {
		t.byOwner[key] = made
	}
	return made
}

// sameTemplate reports whether two pods have the same scheduling terms.
func sameTemplate(a, b *v1.Pod) bool {
	x, y := &a.Spec, &b.Spec
	return a.Namespace == b.Namespace && maps.Equal(x.NodeSelector, y.NodeSelector) &&
		reflect.DeepEqual(x.Tolerations, y.Tolerations) &&
		reflect.DeepEqual(x.Affinity, y.Affinity) && reflect.DeepEqual(x.TopologySpreadConstraints,
		y.TopologySpreadConstraints) &&
		(!usesOwnLabels(x) || maps.Equal(a.Labels, b.Labels))
}

// placementFree reports whether a pod has no scheduling terms but tolerations.
func placementFree(s *v1.PodSpec) bool {
	return len(s.NodeSelector) == 0 && s.Affinity == nil && len(s.TopologySpreadConstraints) == 0
}

// usesOwnLabels reports whether a selector includes labels of the pod itself.
func usesOwnLabels(s *v1.PodSpec) bool {
	required := func(t v1.PodAffinityTerm) bool {
		return len(t.MatchLabelKeys)+len(t.MismatchLabelKeys) > 0
	}
	preferred := func(t v1.WeightedPodAffinityTerm) bool { return required(t.PodAffinityTerm) }
	if s.Affinity != nil {
		a, anti := s.Affinity.PodAffinity, s.Affinity.PodAntiAffinity
		if a != nil &&
			(slices.ContainsFunc(a.RequiredDuringSchedulingIgnoredDuringExecution, required) ||
				slices.ContainsFunc(a.PreferredDuringSchedulingIgnoredDuringExecution, preferred)) ||
			anti != nil &&
				(slices.ContainsFunc(anti.RequiredDuringSchedulingIgnoredDuringExecution, required) ||
					slices.ContainsFunc(anti.PreferredDuringSchedulingIgnoredDuringExecution, preferred)) {
			return true
		}
	}
	return slices.ContainsFunc(s.TopologySpreadConstraints,
		func(k v1.TopologySpreadConstraint) bool { return len(k.MatchLabelKeys) > 0 })
}

func readTemplate(p *v1.Pod) *template {
	t := &template{source: p, required: nodeaffinity.GetRequiredNodeAffinity(p),
		restrictsNodes: len(p.Spec.NodeSelector) > 0}
	if a := p.Spec.Affinity; a != nil {
		t.restrictsNodes = t.restrictsNodes || a.NodeAffinity != nil &&
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
		if n := a.NodeAffinity; n != nil && len(n.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			// Invalid terms prefer no node.
			t.preferred, _ = nodeaffinity.NewPreferredSchedulingTerms(
				n.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			t.antiAffinity = terms(p, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			t.targets = termTargets(pointers(t.antiAffinity, func(t *term) *term { return t })...)
		}
		if a.PodAffinity != nil {
			t.affinity = terms(p, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		t.attraction = attractionTerms(p, t.affinity)
		t.attractionTargets = termTargets(pointers(t.attraction,
			func(t *attractionTerm) *term { return &t.term })...)
	}
	if constraints := p.Spec.TopologySpreadConstraints; len(constraints) > 0 {
		rules := nodeRulesOf(p)
		for i := range constraints {
			t.spread = append(t.spread, constraint(p, t, &constraints[i], &rules))
		}
		t.hard, t.soft = hardKeysOf(t.spread), softConstraintsOf(t.spread)
	}
	return t
}

// pointers returns the pointers that get returns for the items of a list.
func pointers[T, P any](list []T, get func(*T) *P) []*P {
	out := make([]*P, len(list))
	for i := range list {
		out[i] = get(&list[i])
	}
	return out
}

// matchesNode reports whether required matches a node. Matching is slow, so the result is kept.
func (t *template) matchesNode(n *Node) bool {
	if !t.restrictsNodes {
		return true
	}
	return memoize(&t.known, &t.matching, n, func() bool {
		match, err := t.required.Match(n.Node)
		return err == nil && match
	})
}

// toleratesNode reports whether the tolerations match all hard taints of a node. A pod may have
// many constraints that ask, so the result is kept.
func (t *template) toleratesNode(n *Node) bool {
	return memoize(&t.taintsKnown, &t.taintsTolerated, n, func() bool {
		if t.tolerated == nil {
			t.tolerated = new(n.index.tolerated(t.source.Spec.Tolerations))
		}
		return n.Untolerated(t.tolerated, HardTaint) == nil
	})
}

// memoize calls compute once for each node and keeps the results in two bit sets by Node.ordinal.
func memoize(known, matching *[]uint64, n *Node, compute func() bool) bool {
	word, bit := n.ordinal/64, uint64(1)<<(n.ordinal%64)
	if missing := word + 1 - len(*known); missing > 0 {
		*known, *matching = append(*known, make([]uint64, missing)...), append(*matching, make([]uint64, missing)...)
	}
	if (*known)[word]&bit == 0 {
		(*known)[word] |= bit
		if compute() {
			(*matching)[word] |= bit
		}
	}
	return (*matching)[word]&bit != 0
}
