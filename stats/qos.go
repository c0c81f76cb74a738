package stats

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// QOSClass is a pod's quality of service class (k8s.io/api/core/v1 PodQOSClass).
type QOSClass string

// The classes. The empty class: unknown.
const (
	Guaranteed QOSClass = "Guaranteed"
	Burstable  QOSClass = "Burstable"
	BestEffort QOSClass = "BestEffort"
)

// QOSOf returns a pod's class: the class in its status, else the result of the kubelet's rule
// (pkg/apis/core/v1/helper/qos ComputePodQOS, v1.37.2). Init containers count, ephemeral ones do not;
// pod-level resources replace the containers'.
func QOSOf(pod *v1.Pod) QOSClass {
	if pod.Status.QOSClass != "" {
		return QOSClass(pod.Status.QOSClass)
	}
	var all []v1.ResourceRequirements
	podLevel := PodLevel(pod.Spec.Resources)
	if podLevel {
		all = append(all, *pod.Spec.Resources)
	} else {
		for i := range pod.Spec.Containers {
			all = append(all, pod.Spec.Containers[i].Resources)
		}
		for i := range pod.Spec.InitContainers {
			all = append(all, pod.Spec.InitContainers[i].Resources)
		}
	}
	some, guaranteed := false, len(all) > 0
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, given := r.Requests[name]
			limit := r.Limits[name]
			some = some || !request.IsZero() || !limit.IsZero()
			// A container's missing request defaults to the limit (pkg/apis/core/v1/defaults.go
			// SetDefaults_Pod), a pod-level one only at the API server. A request of 0 is no request.
			defaulted := !given && !podLevel
			guaranteed = guaranteed && !limit.IsZero() && (defaulted || request.Cmp(limit) == 0)
		}
	}
	switch {
	case !some:
		return BestEffort
	case guaranteed:
		return Guaranteed
	}
	return Burstable
}

// PodLevel reports whether the pod has pod-level resources, in addition to its containers'
// (k8s.io/component-helpers/resource IsPodLevelResourcesSet).
func PodLevel(r *v1.ResourceRequirements) bool {
	if r == nil {
		return false
	}
	for _, list := range []v1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			if name == v1.ResourceCPU || name == v1.ResourceMemory || strings.HasPrefix(string(name),
				v1.ResourceHugePagesPrefix) {
				return true
			}
		}
	}
	return false
}
