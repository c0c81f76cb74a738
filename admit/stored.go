package admit

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Priorities of the two classes that every cluster has (pkg/apis/scheduling/types.go), by which a
// pod is critical.
var classPriority = map[string]int32{
	"system-cluster-critical": systemCriticalPriority,
	"system-node-critical":    systemCriticalPriority + 1000,
}

// Invalid says what of a pod no API server would have taken, and would upset the count of room: a
// request that is negative. The error names the field.
func Invalid(pod *v1.Pod) error {
	if pod == nil {
		return fmt.Errorf("pod: missing")
	}
	of := func(lists ...v1.ResourceList) error {
		for i, list := range lists {
			for name, q := range list {
				if q.Sign() < 0 {
					return fmt.Errorf("%s[%s]: %s: must not be negative", []string{"requests", "limits"}[i], name,
						q.String())
				}
			}
		}
		return nil
	}
	for kind, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			if err := of(r.Requests, r.Limits); err != nil {
				return fmt.Errorf("spec.%s[%d].resources.%w", []string{"containers", "initContainers"}[kind], i,
					err)
			}
		}
	}
	if r := pod.Spec.Resources; r != nil {
		if err := of(r.Requests, r.Limits); err != nil {
			return fmt.Errorf("spec.resources.%w", err)
		}
	}
	for name, q := range pod.Spec.Overhead {
		if q.Sign() < 0 {
			return fmt.Errorf("spec.overhead[%s]: %s: must not be negative", name, q.String())
		}
	}
	return nil
}

// stored is a pod as an API server would have stored it, for many a pod here has never seen one
// (pkg/apis/core/v1/defaults.go SetDefaults_Pod): a request that is not given is the limit, a port
// of a pod in the host's network is a host port, a critical class is a priority. Of a client's
// object it leaves out what only the node may say of a pod. What is shared with the given pod is
// not written.
func stored(p PodAttributes) *v1.Pod {
	out := *p.Pod
	if !p.Manifest {
		out.Annotations = maps.Clone(out.Annotations)
		delete(out.Annotations, annotationSource)
		delete(out.Annotations, annotationMirror)
	}
	if v, ok := classPriority[out.Spec.PriorityClassName]; ok && out.Spec.Priority == nil {
		out.Spec.Priority = &v
	}
	out.Spec.Overhead = sane(out.Spec.Overhead)
	out.Spec.Containers = storedContainers(out.Spec.Containers, out.Spec.HostNetwork)
	out.Spec.InitContainers = storedContainers(out.Spec.InitContainers, out.Spec.HostNetwork)
	if out.Spec.Resources != nil {
		out.Spec.Resources = storedResources(&out)
	}
	return &out
}

func storedContainers(list []v1.Container, hostNetwork bool) []v1.Container {
	out := make([]v1.Container, len(list))
	for i, c := range list {
		c.Resources.Limits = sane(c.Resources.Limits)
		c.Resources.Requests = orElse(sane(c.Resources.Requests), c.Resources.Limits)
		if hostNetwork {
			c.Ports = append([]v1.ContainerPort(nil), c.Ports...)
			for j := range c.Ports {
				if c.Ports[j].HostPort == 0 {
					c.Ports[j].HostPort = c.Ports[j].ContainerPort
				}
			}
		}
		out[i] = c
	}
	return out
}

// storedResources are those of the whole pod (defaultPodRequests): with limits, a request that is
// not given is what the containers request together, and where they request none, the limit. Huge
// pages have no such sum, but their limit is the containers' (defaultHugePagePodLimits).
func storedResources(pod *v1.Pod) *v1.ResourceRequirements {
	out := *pod.Spec.Resources
	out.Requests, out.Limits = sane(out.Requests), sane(out.Limits)
	if len(out.Limits)+len(out.Requests) == 0 {
		return &out
	}
	hugePages, overcommitted := v1.ResourceList{}, v1.ResourceList{}
	for name, q := range resource.AggregateContainerLimits(pod, resource.PodResourcesOptions{}) {
		if _, ok := out.Requests[name]; !ok && hugePage(name) {
			hugePages[name] = q
		}
	}
	if out.Limits = orElse(out.Limits, hugePages); len(out.Limits) == 0 {
		return &out
	}
	for name, q := range resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{}) {
		if !hugePage(name) && resource.IsSupportedPodLevelResource(name) {
			overcommitted[name] = q
		}
	}
	limits := maps.Clone(out.Limits)
	maps.DeleteFunc(limits, func(name v1.ResourceName, _ quantity) bool {
		return !resource.IsSupportedPodLevelResource(name)
	})
	out.Requests = orElse(orElse(out.Requests, overcommitted), limits)
	return &out
}

// sane is a list without what is negative, which would take room from other pods' account.
func sane(list v1.ResourceList) v1.ResourceList {
	negative := func(_ v1.ResourceName, q quantity) bool { return q.Sign() < 0 }
	for name, q := range list {
		if negative(name, q) {
			list = maps.Clone(list)
			maps.DeleteFunc(list, negative)
			break
		}
	}
	return list
}

// orElse has of the second list what the first does not name. It writes neither.
func orElse(list, other v1.ResourceList) v1.ResourceList {
	var out v1.ResourceList
	for name, q := range other {
		if _, ok := list[name]; ok {
			continue
		}
		if out == nil {
			out = make(v1.ResourceList, len(list)+len(other))
			maps.Copy(out, list)
		}
		out[name] = q
	}
	if out == nil {
		return list
	}
	return out
}
