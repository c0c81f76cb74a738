package admit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// ReasonEvicted is the reason of a rejection while the node is under pressure
// (pkg/kubelet/eviction/eviction_manager.go Reason).
const ReasonEvicted = "Evicted"

// memoryPressure is the only condition under which pods with requests are admitted.
const memoryPressure = "MemoryPressure"

// Annotations of pods that do not come from the API server (pkg/kubelet/types/pod_update.go).
const (
	annotationSource = "kubernetes.io/config.source"
	annotationMirror = "kubernetes.io/config.mirror"
	sourceAPI        = "api"
)

// systemCriticalPriority is the lowest priority of critical pods (pkg/apis/scheduling/types.go
// SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// UnderPressure decides on a pod by the true conditions of the node, like the kubelet's eviction
// manager (pkg/kubelet/eviction/eviction_manager.go Admit). It always admits critical pods. If no
// condition is true, it admits every pod. Under MemoryPressure alone it also admits pods that are
// not BestEffort, and pods that tolerate the taint of MemoryPressure. It rejects all others, with
// the conditions sorted in the message.
func UnderPressure(conditions []string, pod *v1.Pod) Result {
	if len(conditions) == 0 || critical(pod) {
		return Result{Admit: true}
	}
	if len(conditions) == 1 && conditions[0] == memoryPressure {
		if stats.QOSOf(pod) != stats.BestEffort || tolerates(pod.Spec.Tolerations, &memoryTaint) {
			return Result{Admit: true}
		}
	}
	sorted := slices.Sorted(slices.Values(conditions))
	return Result{Reason: ReasonEvicted, Message: fmt.Sprintf("The node had condition: %v. ", sorted)}
}

// critical reports whether a pod is static, a mirror pod or of system priority
// (pkg/kubelet/types/pod_update.go IsCriticalPod).
func critical(pod *v1.Pod) bool {
	return static(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}

// static reports whether a pod comes from a manifest, or is the mirror pod of such a pod
// (IsStaticPod, IsMirrorPod).
func static(pod *v1.Pod) bool {
	_, mirror := pod.Annotations[annotationMirror]
	return fromManifest(pod) || mirror
}

func fromManifest(pod *v1.Pod) bool {
	source, ok := pod.Annotations[annotationSource]
	return ok && source != sourceAPI
}

// memoryTaint is the taint of a node under memory pressure.
var memoryTaint = v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}

// tolerates reports whether one of the tolerations matches the taint, like
// Toleration.ToleratesTaint of k8s.io/api/core/v1, which needs a logger. The operators Lt and Gt
// match nothing: the kubelet's feature gate for them is off by default.
func tolerates(tolerations []v1.Toleration, taint *v1.Taint) bool {
	return slices.ContainsFunc(tolerations, func(t v1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		return t.Operator == v1.TolerationOpExists ||
			(t.Operator == "" || t.Operator == v1.TolerationOpEqual) && t.Value == taint.Value
	})
}
