package verdict

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// needsSandbox tells that a pod has something of its node until its sandbox has ended, which a scheduler would hand out twice if the pod
// was Failed before: ports of the host, which the network of a sandbox forwards, or devices. Memory, processor time and what processes
// listen on are free once no process is left. Of a pod whose containers were not kept nobody knows.
func needsSandbox(pod *v1.Pod) bool {
	s := &pod.Spec
	if len(s.Containers) == 0 {
		return true
	}
	needs := func(c v1.Container) bool {
		return !s.HostNetwork && slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.HostPort != 0 }) ||
			devices(c.Resources.Requests) || devices(c.Resources.Limits)
	}
	return slices.ContainsFunc(s.Containers, needs) || slices.ContainsFunc(s.InitContainers, needs)
}

// claims tells that a pod has devices by resource claims. Of one that has failed they are given to another pod at once
// (pkg/controller/resourceclaim/controller.go syncClaim), and so its kubelet says that only when it has put them away
// (pkg/kubelet/kubelet_pods.go PodMightNeedToUnprepareResources, v1.36.3): nobody else may say it.
func claims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// devices tells that there is something among resources that is no share of the machine's own: what a device plugin or a driver gives out
// has a name with a domain.
func devices(l v1.ResourceList) bool {
	for name := range l {
		if strings.Contains(string(name), "/") {
			return true
		}
	}
	return false
}
