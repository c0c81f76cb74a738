package admit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// Result is the answer for one pod.
type Result struct {
	Admit bool
	// Reason and Message of the pod's status, whose phase becomes Failed; empty where it is admitted.
	Reason, Message string
}

// ReasonEvicted is why pods are refused under pressure (kubelet pkg/kubelet/eviction/eviction_manager.go Reason).
const ReasonEvicted = "Evicted"

// memoryPressure is the one condition under which pods that asked for memory are taken.
const memoryPressure = "MemoryPressure"

// Annotations by which a pod that no API server gave is known (pkg/kubelet/types/pod_update.go).
const (
	annotationSource = "kubernetes.io/config.source"
	annotationMirror = "kubernetes.io/config.mirror"
	sourceAPI        = "api"
)

// systemCriticalPriority is the lowest priority of critical pods (pkg/apis/scheduling/types.go SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// UnderPressure decides on a pod by the conditions that are true, as the kubelet's eviction manager does
// (pkg/kubelet/eviction/eviction_manager.go Admit): without any, every pod is taken; critical ones always are; where memory is
// all that is short, so are those that are not BestEffort, and those that tolerate its taint. Any other condition refuses the
// rest. It keeps nothing of its arguments; the message names the conditions in order.
func UnderPressure(conditions []string, pod *v1.Pod) Result {
	if len(conditions) == 0 || critical(pod) {
		return Result{Admit: true}
	}
	if len(conditions) == 1 && conditions[0] == memoryPressure && (stats.QOSOf(pod) != stats.BestEffort || toleratesMemoryPressure(pod)) {
		return Result{Admit: true}
	}
	sorted := slices.Sorted(slices.Values(conditions))
	return Result{Reason: ReasonEvicted, Message: fmt.Sprintf("The node had condition: %v. ", sorted)}
}

// critical pods are static, mirror or of system priority (pkg/kubelet/types/pod_update.go IsCriticalPod).
func critical(pod *v1.Pod) bool {
	source, ok := pod.Annotations[annotationSource]
	_, mirror := pod.Annotations[annotationMirror]
	return ok && source != sourceAPI || mirror || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}

// toleratesMemoryPressure reports whether the pod tolerates node.kubernetes.io/memory-pressure:NoSchedule, a taint without a value
// (k8s.io/api/core/v1 Toleration.ToleratesTaint, which takes a logger; Lt and Gt never match such a taint).
func toleratesMemoryPressure(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t v1.Toleration) bool {
		if t.Effect != "" && t.Effect != v1.TaintEffectNoSchedule || t.Key != "" && t.Key != v1.TaintNodeMemoryPressure {
			return false
		}
		return t.Operator == v1.TolerationOpExists || (t.Operator == "" || t.Operator == v1.TolerationOpEqual) && t.Value == ""
	})
}
