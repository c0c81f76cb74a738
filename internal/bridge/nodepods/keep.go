package nodepods

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"jettison/internal/podstore/podjson"
)

// keep is what of a pod is kept: what the agent uses, and of its status by what its eviction is judged. Of one that its author made too
// large it is the least: a node has many, and the bridge little memory.
func keep(p *v1.Pod) *v1.Pod {
	out := podjson.FitOne(podjson.Trim(p))
	out.ResourceVersion = p.ResourceVersion
	s := &out.Status
	s.Message = p.Status.Message
	for _, c := range p.Status.Conditions {
		s.Conditions = append(s.Conditions, v1.PodCondition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime, ObservedGeneration: c.ObservedGeneration,
		})
	}
	s.InitContainerStatuses, s.ContainerStatuses = keepStates(p.Status.InitContainerStatuses), keepStates(p.Status.ContainerStatuses)
	return out
}

// keepStates keeps when containers started.
func keepStates(all []v1.ContainerStatus) []v1.ContainerStatus {
	out := make([]v1.ContainerStatus, 0, len(all))
	for i := range all {
		c := &all[i]
		out = append(out, v1.ContainerStatus{Name: c.Name, State: keepState(c.State), LastTerminationState: keepState(c.LastTerminationState)})
	}
	return out
}

func keepState(s v1.ContainerState) (out v1.ContainerState) {
	if s.Running != nil {
		out.Running = &v1.ContainerStateRunning{StartedAt: s.Running.StartedAt}
	}
	if s.Terminated != nil {
		out.Terminated = &v1.ContainerStateTerminated{StartedAt: s.Terminated.StartedAt}
	}
	return out
}

// forAgent is what of a kept pod the agent is told. It shares everything with it.
func forAgent(p *v1.Pod) *v1.Pod {
	out := *p
	out.ResourceVersion = ""
	out.Status = v1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason, QOSClass: p.Status.QOSClass}
	return &out
}

// sameForAgent tells that the agent would be told nothing new.
func sameForAgent(a, b *v1.Pod) bool { return equality.Semantic.DeepEqual(forAgent(a), forAgent(b)) }

// told tells that the agent has a use for a pod. The one that the API has for a static pod has another UID than that, so it has none.
func told(p *v1.Pod) bool { return p.Annotations[v1.MirrorPodAnnotationKey] == "" }
