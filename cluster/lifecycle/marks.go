package lifecycle

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// Event of a pod that is marked as not ready.
const (
	markReason  = "NodeNotReady"
	markMessage = "Node is not ready"
)

// selectMarks selects the pods of a node to mark as not ready. All pods of a silent node are
// selected once, whatever its condition was before: also at the first step, because the previous
// instance may have ended before it marked them. They are selected again until its condition is
// written, and once after that: the answer of that write may be lost. Later, pods that are new on
// the node are selected. A kubelet that posts Ready=False also posts its pods' conditions.
//
// While the silence is in doubt, no pod is selected: a mark removes the pod from the endpoints of
// its Services, also if only the controller has lost contact with the node.
func (s *step) selectMarks(v *view) {
	r := v.record
	if v.ready == "" || v.ready == v1.ConditionTrue {
		r.knownPods, r.marksSilence, r.marksEarly = nil, false, false
		clear(r.marks)
		return
	}
	silent := v.silent()
	if silent && s.out.Doubt != "" {
		return
	}
	pods := s.seen.Pods(v.node.Name)
	if r.marksSilence && !silent {
		clear(r.marks)
	}
	all := silent && (!r.marksSilence || r.marksEarly)
	r.marksSilence, r.marksEarly = silent, v.wentSilent
	present := make(map[types.UID]struct{}, len(pods))
	for _, p := range pods {
		_, known := r.knownPods[p.UID]
		if present[p.UID] = struct{}{}; (all || r.knownPods != nil && !known) && markable(p) &&
			r.marks[p.UID] == nil {
			r.marks[p.UID] = &cluster.Attempt{}
		}
	}
	for uid := range r.marks {
		if _, found := present[uid]; !found {
			delete(r.marks, uid)
		}
	}
	r.knownPods = present
}

// markable reports whether the pod's condition Ready exists and is not False.
func markable(p *v1.Pod) bool {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == v1.PodReady {
			return p.Status.Conditions[i].Status != v1.ConditionFalse
		}
	}
	return false
}

// writeMarks requests the marks of a node that are not in flight or backing off.
func (s *step) writeMarks(v *view) {
	r := v.record
	if len(r.marks) == 0 || v.silent() && s.out.Doubt != "" {
		return
	}
	for _, p := range s.seen.Pods(v.node.Name) {
		attempt := r.marks[p.UID]
		switch {
		case attempt == nil:
		case !markable(p):
			delete(r.marks, p.UID)
		case !attempt.Begin(s.now):
			s.wakeAt(attempt.Next(s.now))
		default:
			s.out.Marks = append(s.out.Marks, Mark{Node: v.node.Name, Namespace: p.Namespace, Name: p.Name,
				UID: p.UID, Silent: v.silent()})
			s.out.Events = append(s.out.Events, cluster.Event{
				Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID, Type: v1.EventTypeWarning,
				Reason: markReason, Message: markMessage,
			})
		}
	}
}
