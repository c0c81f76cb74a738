package nodepods

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/internal/base/podjson"
	"jettison/internal/bridge/verdict"
)

// Bounds of the copy. Pods of any size may be bound to a node by whoever may make pods, and those
// that have ended stay at the API by the thousand, which no quota of pods counts; the bridge has
// 128 MiB. The agent takes less than either (podjson.FitPods, podjson.FitMemory).
const (
	maxPods  = 3000     // beyond it none that has ended is kept
	maxBytes = 12 << 20 // of podjson.Size; beyond it the largest are the least
	// maxOrdinary is of one pod that is gathered beyond maxBytes and has not ended: ordinary ones are
	// not cut for what others are.
	ordinarySize  = 16 << 10
	maxAnnotation = 256 // of an annotation of the least
)

// Keep is what of a pod is kept: what the agent uses, and of its status by what its eviction is
// judged. Of one that its author made too large it is the least: a node has many, and the bridge
// little memory.
func Reduce(p *v1.Pod) *v1.Pod { return withStatus(podjson.FitOne(podjson.Trim(p)), p) }

// least is what is kept of a pod at least.
func minimal(p *v1.Pod) *v1.Pod { return withStatus(podjson.Least(p), p) }

// hasEnded tells that a pod runs no more.
func hasEnded(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded
}

func withStatus(out, p *v1.Pod) *v1.Pod {
	out.ResourceVersion = p.ResourceVersion
	// which an author can crowd out of the least
	for _, key := range []string{api.AnnotationEvicted, v1.MirrorPodAnnotationKey} {
		if value := p.Annotations[key]; value != "" && out.Annotations[key] == "" {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value[:min(len(value), maxAnnotation)])
		}
	}
	if len(p.Spec.ResourceClaims) > 0 { // that there are some is asked, and no more
		out.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: p.Spec.ResourceClaims[0].Name}}
	}
	s := &out.Status
	if p.Status.ExtendedResourceClaimStatus != nil {
		s.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{}
	}
	s.Message, s.Conditions = p.Status.Message, nil
	for _, c := range p.Status.Conditions {
		s.Conditions = append(s.Conditions, v1.PodCondition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime,
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	s.InitContainerStatuses, s.ContainerStatuses = reduceStates(p.Status.InitContainerStatuses),
		reduceStates(p.Status.ContainerStatuses)
	return out
}

// keepStates keeps the container that started last, and the one by which it is said how all have
// ended: of an author's thousand nobody asks more than that, and whether one has started since.
func reduceStates(all []v1.ContainerStatus) (out []v1.ContainerStatus) {
	newest, ended := 0, 0
	var at time.Time
	for i := range all {
		for _, s := range []*v1.ContainerState{&all[i].State, &all[i].LastTerminationState} {
			if since := startedAt(s); since.After(at) {
				newest, at = i, since
			}
		}
		if verdict.EndOf(&all[i]) > verdict.EndOf(&all[ended]) {
			ended = i
		}
	}
	for i := range all {
		if i == newest || i == ended && verdict.EndOf(&all[i]) > verdict.EndOf(&all[newest]) {
			c := &all[i]
			out = append(out, v1.ContainerStatus{Name: c.Name, State: reduceState(c.State),
				LastTerminationState: reduceState(c.LastTerminationState)})
		}
	}
	return out
}

// startedAt is when a container did; zero: it has not, or nobody knows.
func startedAt(s *v1.ContainerState) time.Time {
	switch {
	case s.Running != nil:
		return s.Running.StartedAt.Time
	case s.Terminated != nil:
		return s.Terminated.StartedAt.Time
	}
	return time.Time{}
}

func reduceState(s v1.ContainerState) (out v1.ContainerState) {
	if s.Running != nil {
		out.Running = &v1.ContainerStateRunning{StartedAt: s.Running.StartedAt}
	}
	if s.Terminated != nil {
		out.Terminated = &v1.ContainerStateTerminated{StartedAt: s.Terminated.StartedAt,
			ExitCode: s.Terminated.ExitCode}
	}
	return out
}

// forAgent is what of a kept pod the agent is told. It shares everything with it.
func agentPod(p *v1.Pod) *v1.Pod {
	out := *p
	out.ResourceVersion, out.Spec.ResourceClaims = "", nil
	out.Status = v1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason,
		QOSClass: p.Status.QOSClass}
	return &out
}

// sameForAgent tells that the agent would be told nothing new.
func sameAgentPod(a, b *v1.Pod) bool {
	return equality.Semantic.DeepEqual(agentPod(a), agentPod(b))
}

// told tells that the agent has a use for a pod. The one that the API has for a static pod has
// another UID than that, so it has none.
func usedByAgent(p *v1.Pod) bool { return p.Annotations[v1.MirrorPodAnnotationKey] == "" }
