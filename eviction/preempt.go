package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// SignalPreempted is that of evictions which make room for a critical pod. Nothing is short, so
// that no threshold can be set for it; which pods go is for package admit to say.
const SignalPreempted stats.Signal = "preempted"

// Preempted is the eviction of a pod that goes for a critical one, with the reason and the message
// of its status. It has its own grace period, however long: the kubelet overrides none
// (pkg/kubelet/preemption/preemption.go evictPodsToFreeRequests). object may be nil.
func Preempted(pod *stats.PodStats, object *Pod, reason, message string) Eviction {
	return planned(SignalPreempted, pod, object, reason, message)
}

// SignalDescheduled is that of evictions of pods that should not be there, though nothing is short;
// which those are is for package reclaim/nodedeschedule to say.
const SignalDescheduled stats.Signal = "descheduled"

// ReasonDescheduled is that of their status.
const ReasonDescheduled = "Descheduled"

// Descheduled is the eviction of such a pod, in its own grace period. object may be nil.
func Descheduled(pod *stats.PodStats, object *Pod, message string) Eviction {
	return planned(SignalDescheduled, pod, object, ReasonDescheduled, message)
}

func planned(signal stats.Signal, pod *stats.PodStats, object *Pod, reason,
	message string) Eviction {
	if object != nil && !object.of(pod) {
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

// Planned: the pod goes to make room for a critical one, or because it should not be there, and not
// for what the node is short of.
func (e *Eviction) Planned() bool {
	return e.Signal == SignalPreempted || e.Signal == SignalDescheduled
}

// Spares says why a pod never goes for a critical one; empty: its priority decides. What protects
// it from evictions does here, too, but a critical pod goes for one of a higher priority. object
// may be nil.
func (p *Policy) Spares(pod *stats.PodStats, object *Pod) string {
	if object != nil && !object.of(pod) {
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
	if classed { // which is a priority (pkg/apis/scheduling/types.go SystemPriorityClasses)
		unclassed := *object
		unclassed.class = ""
		c.Object = &unclassed
	}
	return p.protected(&c)
}

// Room says what became of the room that a victim held. back: no process of it is left, nor what it
// had in shared memory, as long as that may still come. over: there is nothing to wait for any
// more; without back it did not die.
func (l *Life) Room(now time.Time) (back, over bool) {
	switch {
	case l.undying:
		return false, true
	case l.departed():
		back = !l.sharedAwaited(now)
		return back, back
	}
	return false, l.gone || l.superseded
}
