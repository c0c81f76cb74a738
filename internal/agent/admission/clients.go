package admission

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/internal/agent/objects/podstore"
	"jettison/stats"
)

// Ask decides on a pod that a client asks about, as the runtime would be answered. It only looks.
// Of its annotations only the node may have said where the pod is from. One that was evicted and is
// held off is refused, and so is one that a member asks about, and that would take what is kept for
// another by a priority that only the member tells. The error is ErrUnknown.
func (a *Admission) Ask(_ context.Context, pod *v1.Pod, by podstore.By) (admit.Result, error) {
	now := time.Now()
	s := a.fresh(now)
	if s == nil {
		return admit.Result{}, ErrUnknown
	}
	if why, held := s.heldOff(now, pod); held {
		return admit.Result{Reason: admit.ReasonEvicted, Message: why}, nil
	}
	p := aboutToRun(pod)
	p.Doubted = by == podstore.ByMember && !a.vouches(s, &p)
	return admit.Admit(p, a.state(now, s)), nil
}

// aboutToRun is a pod that a client asks about, whatever became of it elsewhere.
func aboutToRun(pod *v1.Pod) admit.PodAttributes {
	own := *pod
	own.Status.Phase = ""
	return attributes(&own)
}

// vouches reports whether somebody whose word counts for that tells a pod's priority, or a higher
// one: a manifest, root, or where no client has put its object, the runtime.
func (a *Admission) vouches(s *Snapshot, p *admit.PodAttributes) bool {
	uid, known := string(p.Pod.UID), stats.Opt[int32]{}
	object, running := s.objects[uid], s.runtime[uid]
	manifest := slices.IndexFunc(s.manifests, func(m *v1.Pod) bool {
		return uid != "" && string(m.UID) == uid
	})
	switch {
	case manifest >= 0: // that of a pod which the runtime has is its object
		known = priorityOf(s.manifests[manifest])
	case object != nil && !s.members[uid] &&
		names(object, stats.PodReference{Namespace: p.Pod.Namespace, Name: p.Pod.Name}):
		known = priorityOf(object)
	case object == nil && running != nil:
		told := running.Told(s.self)
		known, _ = a.policy.Load().Judge(&told, nil)
	}
	own := priorityOf(p.Pod)
	return known.OK && own.OK && known.V >= own.V
}

func priorityOf(pod *v1.Pod) stats.Opt[int32] {
	return admit.HeldBy(admit.PodAttributes{Pod: pod}).Priority
}

// Preempt decides on a pod as Ask does, and makes room for a critical one that has none.
func (a *Admission) Preempt(ctx context.Context, pod *v1.Pod) (admit.Result, error) {
	by := a.preempts.Load()
	if by == nil {
		return admit.Result{}, ErrNoPreemption
	}
	now := time.Now()
	if s := a.fresh(now); s != nil {
		if why, held := s.heldOff(now, pod); held {
			return admit.Result{Reason: admit.ReasonEvicted, Message: why}, nil
		}
	}
	return (*by).Preempt(ctx, aboutToRun(pod))
}

// attributes of an object that the store has, where only a manifest's says that it is static.
func attributes(object *v1.Pod) admit.PodAttributes {
	_, manifest := object.Annotations[annotationSource]
	return admit.PodAttributes{Pod: object, Manifest: manifest}
}
