package replay

import (
	"cmp"
	"maps"
	"slices"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
)

// state is the current state of the cluster.
type state struct {
	nodes      map[string]*v1.Node
	leases     map[string]*coordination.Lease
	pods       map[types.UID]*v1.Pod
	podsByNode map[string][]*v1.Pod // pods by node, sorted by namespace and name
}

func newState() *state {
	return &state{
		nodes: map[string]*v1.Node{}, leases: map[string]*coordination.Lease{},
		pods: map[types.UID]*v1.Pod{}, podsByNode: map[string][]*v1.Pod{},
	}
}

func (s *state) podsOf(node string) []*v1.Pod { return s.podsByNode[node] }

// load replaces the lists that a frame has.
func (s *state) load(f *Frame) {
	if f.Nodes != nil {
		clear(s.nodes)
		for i := range f.Nodes {
			s.nodes[f.Nodes[i].Name] = &f.Nodes[i]
		}
	}
	if f.Leases != nil {
		clear(s.leases)
		for i := range f.Leases {
			if l := &f.Leases[i]; l.Namespace == "" || l.Namespace == v1.NamespaceNodeLease {
				s.leases[l.Name] = l
			}
		}
	}
	if f.Pods == nil {
		return
	}
	clear(s.pods)
	clear(s.podsByNode)
	for i := range f.Pods {
		p := &f.Pods[i]
		if s.pods[p.UID] = p; p.Spec.NodeName != "" {
			s.podsByNode[p.Spec.NodeName] = append(s.podsByNode[p.Spec.NodeName], p)
		}
	}
	for _, pods := range s.podsByNode {
		slices.SortFunc(pods, func(a, b *v1.Pod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
}

func (s *state) status(w *lifecycle.Status) {
	conditions := &s.nodes[w.Node].Status.Conditions
	for _, c := range w.Conditions {
		if i := slices.IndexFunc(*conditions,
			func(old v1.NodeCondition) bool { return old.Type == c.Type }); i >= 0 {
			(*conditions)[i] = c
		} else {
			*conditions = append(*conditions, c)
		}
	}
}

func (s *state) label(w *lifecycle.Labels) { maps.Copy(s.nodes[w.Node].Labels, w.Set) }

func (s *state) taint(w *lifecycle.Taints) {
	taints := &s.nodes[w.Node].Spec.Taints
	*taints = slices.DeleteFunc(*taints, func(t v1.Taint) bool {
		same := func(w v1.Taint) bool { return w.Key == t.Key && w.Effect == t.Effect }
		return slices.ContainsFunc(w.Remove, same) || slices.ContainsFunc(w.Add, same)
	})
	*taints = append(*taints, w.Add...)
}

func (s *state) mark(m lifecycle.Mark) {
	conditions := s.pods[m.UID].Status.Conditions
	for i := range conditions {
		if conditions[i].Type == v1.PodReady {
			conditions[i].Status = v1.ConditionFalse
		}
	}
}

func (s *state) stamp(w *taint.Stamp) {
	taints := s.nodes[w.Node].Spec.Taints
	for _, stamped := range w.Taints {
		for i := range taints {
			if t := &taints[i]; t.Key == stamped.Key && t.Value == stamped.Value &&
				t.Effect == stamped.Effect {
				t.TimeAdded = stamped.TimeAdded
			}
		}
	}
}

// drop deletes a pod.
func (s *state) drop(uid types.UID) {
	node := s.pods[uid].Spec.NodeName
	s.podsByNode[node] = slices.DeleteFunc(s.podsByNode[node], func(p *v1.Pod) bool { return p.UID == uid })
	delete(s.pods, uid)
}
