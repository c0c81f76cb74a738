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

// Ask decides on a pod for a client as the gate would, and changes nothing. The caller has replaced
// the pod's source annotations by those of the runtime or the manifest. A pod in its hold-off is
// rejected. A member of the socket's group cannot claim resources reserved for another pod with a
// priority that only the member provides. The only error is ErrUnknown.
func (a *Admission) Ask(_ context.Context, pod *v1.Pod, by podstore.Role) (admit.Result, error) {
	now := time.Now()
	s := a.fresh(now)
	if s == nil {
		return admit.Result{}, ErrUnknown
	}
	if why, held := s.heldOff(now, pod); held {
		return admit.Result{Reason: admit.ReasonEvicted, Message: why}, nil
	}
	p := startingPod(pod)
	p.UntrustedPriority = by == podstore.ByMember && !a.trustsPriority(s, &p)
	return admit.Admit(p, a.state(now, s)), nil
}

// startingPod returns the attributes of a client's pod without its phase elsewhere.
func startingPod(pod *v1.Pod) admit.PodAttributes {
	own := *pod
	own.Status.Phase = ""
	return admit.StoredObject(&own)
}

// trustsPriority reports whether a trusted source gives the pod's priority, or a higher one: a
// manifest, an object from root, or the runtime if no client provided an object.
func (a *Admission) trustsPriority(s *Snapshot, p *admit.PodAttributes) bool {
	uid, known := string(p.Pod.UID), stats.Opt[int32]{}
	object, running := s.objects[uid], s.runtime[uid]
	manifest := slices.IndexFunc(s.manifests, func(m *v1.Pod) bool {
		return uid != "" && string(m.UID) == uid
	})
	switch {
	case manifest >= 0: // a manifest with the pod's UID takes precedence over objects
		known = priorityOf(s.manifests[manifest])
	case object != nil && !s.members[uid] &&
		sameName(object, stats.PodReference{Namespace: p.Pod.Namespace, Name: p.Pod.Name}):
		known = priorityOf(object)
	case object == nil && running != nil:
		reported := running.FromRuntime(s.self)
		known, _ = a.policy.Load().PriorityAndProtection(&reported, nil)
	}
	own := priorityOf(p.Pod)
	return known.OK && own.OK && known.V >= own.V
}

func priorityOf(pod *v1.Pod) stats.Opt[int32] {
	return admit.HeldBy(admit.PodAttributes{Pod: pod}).Priority
}

// Preempt decides as Ask does, and preempts other pods for a critical one that does not fit.
func (a *Admission) Preempt(ctx context.Context, pod *v1.Pod) (admit.Result, error) {
	by := a.preemptor.Load()
	if by == nil {
		return admit.Result{}, ErrNoPreemption
	}
	now := time.Now()
	if s := a.fresh(now); s != nil {
		if why, held := s.heldOff(now, pod); held {
			return admit.Result{Reason: admit.ReasonEvicted, Message: why}, nil
		}
	}
	return (*by).Preempt(ctx, startingPod(pod))
}
