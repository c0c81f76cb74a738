package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// SignalPreempted is the signal of evictions for a critical pod. No resource is short, so the
// signal cannot have a threshold. Package admit chooses the pods.
const SignalPreempted stats.Signal = "preempted"

// Preempted returns the eviction of a pod for a critical one, with the reason and the message of
// its status. The pod keeps its own grace period, however long: the kubelet overrides none
// (pkg/kubelet/preemption/preemption.go evictPodsToFreeRequests). object may be nil.
func Preempted(pod *stats.PodStats, object *Pod, reason, message string) Eviction {
	return planned(SignalPreempted, pod, object, reason, message)
}

// SignalDescheduled is the signal of evictions of pods that should not run on the node. No resource
// is short. Package reclaim/nodedeschedule chooses the pods.
const SignalDescheduled stats.Signal = "descheduled"

// ReasonDescheduled is the reason in the status of descheduled pods.
const ReasonDescheduled = "Descheduled"

// Descheduled returns the eviction of a pod to be descheduled, with the pod's own grace period.
// object may be nil.
func Descheduled(pod *stats.PodStats, object *Pod, message string) Eviction {
	return planned(SignalDescheduled, pod, object, ReasonDescheduled, message)
}

func planned(signal stats.Signal, pod *stats.PodStats, object *Pod, reason,
	message string) Eviction {
	if object != nil && !object.belongsTo(pod) {
		object = nil
	}
	e := Eviction{
		Pod: clonePod(pod, object), Signal: signal,
		GracePeriodSeconds: v1.DefaultTerminationGracePeriodSeconds,
		Reason:             reason, Message: message, Disruption: true, kind: kindRoom,
	}
	if object != nil && object.terminationGrace.OK {
		e.GracePeriodSeconds = object.terminationGrace.V
	}
	e.GracePeriodSeconds = min(max(e.GracePeriodSeconds, hardGrace), maxSavedGrace)
	return e
}

// Planned reports whether the pod is preempted or descheduled, and not evicted for a shortage.
func (e *Eviction) Planned() bool {
	return e.Signal == SignalPreempted || e.Signal == SignalDescheduled
}

// PreemptionProtected returns why a pod is never preempted; empty if its priority decides. The
// protections from evictions apply, except that a critical pod may be preempted for one of a higher
// priority. object may be nil.
func (p *Policy) PreemptionProtected(pod *stats.PodStats, object *Pod) string {
	if object != nil && !object.belongsTo(pod) {
		object = nil
	}
	c := p.candidate(pod, object)
	classed := object != nil && object.class != ""
	switch priority := c.Keys.Priority; {
	case priority.OK && priority.V >= systemCriticalPriority, !priority.OK && classed:
	default:
		return c.Protected
	}
	c.Keys.Priority = stats.Some[int32](systemCriticalPriority - 1)
	if classed { // the class is a priority (pkg/apis/scheduling/types.go SystemPriorityClasses)
		unclassed := *object
		unclassed.class = ""
		c.Object = &unclassed
	}
	return p.protected(&c)
}

// RoomState reports whether a preempted pod's resources are free. free: all of its processes have
// ended, and none of its shared memory is still expected. over: the wait has ended; over without
// free means that the pod did not die, or that the eviction was abandoned or replaced.
func (l *Life) RoomState(now time.Time) (free, over bool) {
	switch {
	case l.undying:
		return false, true
	case l.terminated():
		free = !l.shmemPending(now)
		return free, free
	}
	return false, l.abandoned || l.superseded
}
