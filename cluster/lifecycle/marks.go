package lifecycle

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// marked is the event of a pod that is marked.
const (
	markReason  = "NodeNotReady"
	markMessage = "Node is not ready"
)

// wantMarks notes which pods of a node are to be marked as not ready: all, when silence ended its
// being ready; later those that are new on it while it is not. A node whose kubelet says itself
// that it is not ready has its pods' conditions from there. A node that is found silent has its
// pods marked, too: whoever found it silent may not have come to them.
func (s *step) wantMarks(v *view) {
	r := v.record
	if v.ready == "" || v.ready == v1.ConditionTrue {
		r.known = nil
		clear(r.marks)
		return
	}
	pods := s.seen.Pods(v.node.Name)
	all := v.fell || r.first && v.was == v1.ConditionUnknown &&
		condition(v.node, v1.NodeReady).Reason == reasonUnknown
	here := make(map[types.UID]struct{}, len(pods))
	for _, p := range pods {
		_, known := r.known[p.UID]
		if here[p.UID] = struct{}{}; (all || r.known != nil && !known) && markable(p) &&
			r.marks[p.UID] == nil {
			r.marks[p.UID] = &cluster.Attempt{}
		}
	}
	for uid := range r.marks {
		if _, there := here[uid]; !there {
			delete(r.marks, uid)
		}
	}
	r.known = here
}

// markable reports whether a pod has a condition Ready that is not False. One without is not
// marked.
func markable(p *v1.Pod) bool {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == v1.PodReady {
			return p.Status.Conditions[i].Status != v1.ConditionFalse
		}
	}
	return false
}

// writeMarks marks them.
func (s *step) writeMarks(v *view) {
	r := v.record
	if len(r.marks) == 0 {
		return
	}
	for _, p := range s.seen.Pods(v.node.Name) {
		attempt := r.marks[p.UID]
		switch {
		case attempt == nil:
		case !markable(p):
			delete(r.marks, p.UID)
		case !attempt.Begin(s.now):
			s.again(attempt.Next(s.now))
		default:
			s.out.Marks = append(s.out.Marks, Mark{Node: v.node.Name, Namespace: p.Namespace, Name: p.Name,
				UID: p.UID})
			s.out.Events = append(s.out.Events, cluster.Event{
				Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID, Type: v1.EventTypeWarning,
				Reason: markReason, Message: markMessage,
			})
		}
	}
}
