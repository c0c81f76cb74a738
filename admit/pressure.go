package admit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// ReasonEvicted is why pods are refused under pressure (kubelet
// pkg/kubelet/eviction/eviction_manager.go Reason).
const ReasonEvicted = "Evicted"

// memoryPressure is the one condition under which pods that asked for memory are taken.
const memoryPressure = "MemoryPressure"

// Annotations by which a pod that no API server gave is known (pkg/kubelet/types/pod_update.go).
const (
	annotationSource = "kubernetes.io/config.source"
	annotationMirror = "kubernetes.io/config.mirror"
	sourceAPI        = "api"
)

// systemCriticalPriority is the lowest priority of critical pods (pkg/apis/scheduling/types.go
// SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// UnderPressure decides on a pod by the conditions that are true, as the kubelet's eviction manager
// does (pkg/kubelet/eviction/eviction_manager.go Admit): without any, every pod is taken; critical
// ones always are; where memory is all that is short, so are those that are not BestEffort, and
// those that tolerate its taint. Any other condition refuses the rest. It keeps nothing of its
// arguments; the message names the conditions in order.
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

// critical pods are static, mirror or of system priority (pkg/kubelet/types/pod_update.go
// IsCriticalPod).
func critical(pod *v1.Pod) bool {
	return static(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}

// static pods come of a manifest; a mirror stands for one in the API (IsStaticPod, IsMirrorPod).
func static(pod *v1.Pod) bool {
	_, mirror := pod.Annotations[annotationMirror]
	return fromManifest(pod) || mirror
}

func fromManifest(pod *v1.Pod) bool {
	source, ok := pod.Annotations[annotationSource]
	return ok && source != sourceAPI
}

// memoryTaint is what a node under memory pressure is tainted with.
var memoryTaint = v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}

// tolerates reports whether one of the tolerations is of a taint (k8s.io/api/core/v1
// Toleration.ToleratesTaint, which takes a logger). Lt and Gt match nothing, as long as the
// kubelet's gate for them is off.
func tolerates(tolerations []v1.Toleration, taint *v1.Taint) bool {
	return slices.ContainsFunc(tolerations, func(t v1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		return t.Operator == v1.TolerationOpExists ||
			(t.Operator == "" || t.Operator == v1.TolerationOpEqual) && t.Value == taint.Value
	})
}
