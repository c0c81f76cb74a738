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

// template is what a scheduler asks about a pod, beside what it requests. Pods of one owner are
// made of the same, so it is read of one of them and kept once.
type template struct {
	of       *v1.Pod // that it was read of
	required nodeaffinity.RequiredNodeAffinity
	leaves   bool // required may leave out nodes
	// by Node.place, a bit each: whether it was asked about a node, and has it in
	known, in []uint64
	preferred *nodeaffinity.PreferredSchedulingTerms // nil: it prefers none
	anti      []term
	repels    []about // what anti is about, each once
	affinity  []term
	spread    []*Constraint
	hard      hardKeys
}

// Templates are those that were read. Clusters of the same nodes may share them.
type Templates struct {
	byOwner  map[owner]*template // of the first pod of each owner
	requests map[string]*amounts // of which there are few in a cluster, by their text
	kins     map[kin]int32
	nothing  template // of those that ask nothing
	buffer   amounts
	text     []byte
}

// NewTemplates makes some of which none was read.
func NewTemplates() *Templates {
	return &Templates{byOwner: map[owner]*template{}, requests: map[string]*amounts{},
		kins: map[kin]int32{}}
}

// owner is of a namespace, whatever pods of another one say.
type owner struct {
	namespace string
	uid       types.UID
}

// kin is an owner by what people call it.
type kin struct{ namespace, kind, name string }

func (t *Templates) kin(p *v1.Pod) int32 {
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
	key := kin{p.Namespace, first.Kind, first.Name}
	number, ok := t.kins[key]
	if !ok {
		number = int32(len(t.kins) + 1)
		t.kins[key] = number
	}
	return number
}

// requested is what a pod requests.
func (t *Templates) requested(p *v1.Pod) *amounts {
	t.buffer, t.text = requests(t.buffer[:0], p), t.text[:0]
	for i := range t.buffer {
		a := &t.buffer[i]
		t.text = append(binary.LittleEndian.AppendUint64(t.text, uint64(a.Value)), a.Name...)
		t.text = append(t.text, 0)
	}
	known := t.requests[string(t.text)]
	if known == nil {
		made := slices.Clone(t.buffer)
		known = &made
		t.requests[string(t.text)] = known
	}
	return known
}

// of is the template of a pod.
func (t *Templates) of(p *v1.Pod) *template {
	if asksNothing(&p.Spec) {
		return &t.nothing
	}
	var known *template
	of := owner{namespace: p.Namespace}
	if len(p.OwnerReferences) > 0 {
		of.uid = p.OwnerReferences[0].UID
		known = t.byOwner[of]
	}
	if known != nil && alike(known.of, p) {
		return known
	}
	made := readTemplate(p)
	if known == nil && of.uid != "" {
		t.byOwner[of] = made
	}
	return made
}

// alike reports whether two pods ask the same of nodes and of other pods.
func alike(a, b *v1.Pod) bool {
	x, y := &a.Spec, &b.Spec
	return a.Namespace == b.Namespace && maps.Equal(x.NodeSelector, y.NodeSelector) &&
		reflect.DeepEqual(x.Tolerations, y.Tolerations) &&
		reflect.DeepEqual(x.Affinity, y.Affinity) && reflect.DeepEqual(x.TopologySpreadConstraints,
		y.TopologySpreadConstraints) &&
		(!byLabels(x) || maps.Equal(a.Labels, b.Labels))
}

// asksNothing: it is all the same where such a pod is, and with whom.
func asksNothing(s *v1.PodSpec) bool {
	return len(s.NodeSelector) == 0 && s.Affinity == nil && len(s.TopologySpreadConstraints) == 0
}

// byLabels reports whether the pod's own labels are part of a selector.
func byLabels(s *v1.PodSpec) bool {
	term := func(t v1.PodAffinityTerm) bool {
		return len(t.MatchLabelKeys)+
			len(t.MismatchLabelKeys) > 0
	}
	if a := s.Affinity; a != nil {
		if a.PodAffinity != nil &&
			slices.ContainsFunc(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, term) ||
			a.PodAntiAffinity != nil &&
				slices.ContainsFunc(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, term) {
			return true
		}
	}
	return slices.ContainsFunc(s.TopologySpreadConstraints,
		func(k v1.TopologySpreadConstraint) bool { return len(k.MatchLabelKeys) > 0 })
}

func readTemplate(p *v1.Pod) *template {
	t := &template{of: p, required: nodeaffinity.GetRequiredNodeAffinity(p),
		leaves: len(p.Spec.NodeSelector) > 0}
	if a := p.Spec.Affinity; a != nil {
		t.leaves = t.leaves || a.NodeAffinity != nil &&
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
		if n := a.NodeAffinity; n != nil && len(n.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			// One that cannot be read prefers none.
			t.preferred, _ = nodeaffinity.NewPreferredSchedulingTerms(
				n.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			t.anti = terms(p, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
			t.repels = aboutOf(t.anti)
		}
		if a.PodAffinity != nil {
			t.affinity = terms(p, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
	if constraints := p.Spec.TopologySpreadConstraints; len(constraints) > 0 {
		said := sayingsOf(p)
		for i := range constraints {
			t.spread = append(t.spread, constraint(p, t, &constraints[i], &said))
		}
		t.hard = hardKeysOf(t.spread)
	}
	return t
}

// has reports whether a node is one of those that required leaves in. To ask it takes long, and is
// done once.
func (t *template) has(n *Node) bool {
	if !t.leaves {
		return true
	}
	return once(&t.known, &t.in, n, func() bool {
		match, err := t.required.Match(n.Node)
		return err == nil && match
	})
}

// once asks about a node where that was not done before. Both have a bit for each node, by its
// place.
func once(known, in *[]uint64, n *Node, ask func() bool) bool {
	word, bit := n.place/64, uint64(1)<<(n.place%64)
	if missing := word + 1 - len(*known); missing > 0 {
		*known, *in = append(*known, make([]uint64, missing)...), append(*in, make([]uint64, missing)...)
	}
	if (*known)[word]&bit == 0 {
		(*known)[word] |= bit
		if ask() {
			(*in)[word] |= bit
		}
	}
	return (*in)[word]&bit != 0
}
