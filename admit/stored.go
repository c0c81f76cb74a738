package admit

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"jettison/stats"
)

// classPriority holds the two critical priority classes that every cluster has
// (pkg/apis/scheduling/types.go).
var classPriority = map[string]int32{
	"system-cluster-critical": systemCriticalPriority,
	"system-node-critical":    systemCriticalPriority + 1000,
}

// Invalid returns an error for a pod that an API server would reject and that would corrupt the
// sums of requests: a missing pod, or a pod with a negative amount. The error names the field.
func Invalid(pod *v1.Pod) error {
	if pod == nil {
		return fmt.Errorf("pod: missing")
	}
	checkLists := func(lists ...v1.ResourceList) error {
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
			if err := checkLists(r.Requests, r.Limits); err != nil {
				return fmt.Errorf("spec.%s[%d].resources.%w", []string{"containers", "initContainers"}[kind], i,
					err)
			}
		}
	}
	if r := pod.Spec.Resources; r != nil {
		if err := checkLists(r.Requests, r.Limits); err != nil {
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

// stored returns a pod with the defaults that an API server would set (pkg/apis/core/v1/defaults.go
// SetDefaults_Pod), because many pods here did not pass through an API server: a missing request is
// the limit, a port of a pod in the host network is a host port, a critical class sets the
// priority. The pod-level resources of objects are completed, those of manifests are not. Its
// requests are the kubelet's allocation (stats.Granted). From the object of a client it removes the
// annotations that only the node may set. The result shares memory with p.Pod, which is not
// changed.
func stored(p PodAttributes) *v1.Pod {
	out := *stats.Granted(p.Pod)
	if !p.Manifest {
		out.Annotations = maps.Clone(out.Annotations)
		delete(out.Annotations, annotationSource)
		delete(out.Annotations, annotationMirror)
	}
	if v, ok := classPriority[out.Spec.PriorityClassName]; ok && out.Spec.Priority == nil {
		out.Spec.Priority = &v
	}
	out.Spec.Overhead = dropNegative(out.Spec.Overhead)
	out.Spec.Containers = storedContainers(out.Spec.Containers, out.Spec.HostNetwork)
	out.Spec.InitContainers = storedContainers(out.Spec.InitContainers, out.Spec.HostNetwork)
	if out.Spec.Resources != nil {
		out.Spec.Resources = storedResources(&out, p.Manifest)
	}
	return &out
}

func storedContainers(list []v1.Container, hostNetwork bool) []v1.Container {
	out := make([]v1.Container, len(list))
	for i, c := range list {
		c.Resources.Limits = dropNegative(c.Resources.Limits)
		c.Resources.Requests = withDefaults(dropNegative(c.Resources.Requests), c.Resources.Limits)
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

// storedResources returns the pod-level resources with the defaults that an API server sets when it
// creates an object (pkg/api/pod/util.go DefaultPodLevelResources, v1.37.2). A kubelet does not set
// them for a manifest. A missing request is the sum of the containers' requests, or the limit if
// they request nothing. A missing limit is the sum of the containers' limits if all of them have one,
// at least the request. For huge pages, not the request but the limit is that sum.
func storedResources(pod *v1.Pod, manifest bool) *v1.ResourceRequirements {
	out := *pod.Spec.Resources
	out.Requests, out.Limits = dropNegative(out.Requests), dropNegative(out.Limits)
	if manifest || len(out.Limits)+len(out.Requests) == 0 {
		return &out
	}
	sums := resource.AggregateContainerLimits(pod, resource.PodResourcesOptions{})
	hugePages, requested := v1.ResourceList{}, v1.ResourceList{}
	for name, q := range sums {
		if _, ok := out.Requests[name]; !ok && hugePage(name) {
			hugePages[name] = q
		}
	}
	out.Limits = withDefaults(out.Limits, hugePages)
	for name, q := range resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{}) {
		if !hugePage(name) && resource.IsSupportedPodLevelResource(name) {
			requested[name] = q
		}
	}
	limits := maps.Clone(out.Limits)
	maps.DeleteFunc(limits, func(name v1.ResourceName, _ quantity) bool {
		return !resource.IsSupportedPodLevelResource(name)
	})
	out.Requests = withDefaults(withDefaults(out.Requests, requested), limits)
	limited := v1.ResourceList{}
	for name, request := range out.Requests {
		sum, ok := sums[name]
		if !ok || !resource.IsSupportedPodLevelResource(name) || !allLimited(pod, name) {
			continue
		}
		if limited[name] = sum; request.Cmp(sum) > 0 {
			limited[name] = request
		}
	}
	out.Limits = withDefaults(out.Limits, limited)
	return &out
}

// allLimited reports whether all containers of a pod limit a resource.
func allLimited(pod *v1.Pod, name v1.ResourceName) bool {
	unlimited := func(c v1.Container) bool {
		_, ok := c.Resources.Limits[name]
		return !ok
	}
	return !slices.ContainsFunc(pod.Spec.Containers, unlimited) &&
		!slices.ContainsFunc(pod.Spec.InitContainers, unlimited)
}

// dropNegative returns the list without negative amounts, which would reduce the sums of other
// pods.
func dropNegative(list v1.ResourceList) v1.ResourceList {
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

// withDefaults returns list with the entries of other that list lacks. It changes neither argument.
func withDefaults(list, other v1.ResourceList) v1.ResourceList {
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
