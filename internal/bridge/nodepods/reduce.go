package nodepods

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/internal/base/podjson"
	"jettison/internal/bridge/verdict"
	"jettison/stats"
)

// Limits of the copy. Any author of pods may bind pods of any size to a node. Ended pods, which no
// pod quota counts, may stay in the API by the thousand. The bridge has a limit of 128 MiB. The
// agent accepts less than either (podjson.FitPods, podjson.FitMemory).
const (
	maxPods  = 3000     // beyond it, ended pods are dropped
	maxBytes = 12 << 20 // sum of podjson.Size; beyond it, large pods are reduced to the minimum
	// ordinarySize is the size up to which a running pod keeps its fields in a list that exceeds
	// maxBytes: ordinary pods stay complete although others are large.
	ordinarySize  = 16 << 10
	maxAnnotation = 256 // bytes of an annotation of a minimal pod
)

// Reduce returns the part of a pod that the bridge keeps: the fields that the agent uses, and the
// status fields that verdict.Judge uses. Its requests are those that the kubelet allocated, because
// the agent trusts no allocation of a member of its socket's group. A pod that is too large is
// reduced to the minimum, because a node has many pods and the bridge little memory.
func Reduce(p *v1.Pod) *v1.Pod {
	out := podjson.Trim(stats.Granted(p))
	podjson.DropAllocation(out)
	return withStatus(podjson.FitOne(out), p)
}

// minimal returns the smallest part of a pod that is kept.
func minimal(p *v1.Pod) *v1.Pod { return withStatus(podjson.Minimal(p), p) }

// hasEnded reports whether the pod is in a terminal phase.
func hasEnded(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded
}

func withStatus(out, p *v1.Pod) *v1.Pod {
	out.ResourceVersion = p.ResourceVersion
	// the minimum may lack these: an author can displace them with other annotations
	for _, key := range []string{api.AnnotationEvicted, v1.MirrorPodAnnotationKey} {
		if value := p.Annotations[key]; value != "" && out.Annotations[key] == "" {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value[:min(len(value), maxAnnotation)])
		}
	}
	if len(p.Spec.ResourceClaims) > 0 { // only their presence matters
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

// reduceStates keeps two containers: the one that started last, and the one that determines how the
// pod ended. A pod may have thousands, and the verdict needs no others.
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

// startedAt returns when a container started; zero: it has not, or the time is unknown.
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

// agentPod returns the part of a reduced pod that the agent receives. It shares p's data.
func agentPod(p *v1.Pod) *v1.Pod {
	out := *p
	out.ResourceVersion, out.Spec.ResourceClaims = "", nil
	out.Status = v1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason,
		QOSClass: p.Status.QOSClass}
	return &out
}

// sameAgentPod reports whether the agent would receive equal pods.
func sameAgentPod(a, b *v1.Pod) bool {
	return equality.Semantic.DeepEqual(agentPod(a), agentPod(b))
}

// usedByAgent reports whether the agent can use a pod. It cannot use the mirror of a static pod,
// which has its own UID.
func usedByAgent(p *v1.Pod) bool { return p.Annotations[v1.MirrorPodAnnotationKey] == "" }
