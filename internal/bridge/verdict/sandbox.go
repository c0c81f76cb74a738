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
	if len(s.Containers) == 0 || len(s.ResourceClaims) > 0 {
		return true
	}
	needs := func(c v1.Container) bool {
		return !s.HostNetwork && slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.HostPort != 0 }) ||
			devices(c.Resources.Requests) || devices(c.Resources.Limits)
	}
	return slices.ContainsFunc(s.Containers, needs) || slices.ContainsFunc(s.InitContainers, needs)
}

// devices tells that there is something among resources that is no share of the machine's own: what a device plugin or a driver gives out has
// a name with a domain.
func devices(l v1.ResourceList) bool {
	for name := range l {
		if strings.Contains(string(name), "/") {
			return true
		}
	}
	return false
}
