package stats

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resizable are the resources that an in-place resize may change.
var resizable = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// Granted returns the pod with the CPU and memory that its kubelet allocated, in place of those in
// its spec (pkg/kubelet/allocation UpdatePodFromAllocation). An in-place resize changes the spec
// even if the kubelet defers or rejects the resize. A container without a status keeps its spec, but
// requests at most what the total of the pod leaves. The limits are those that the kubelet applied
// last.
//
// The result shares memory with p, which is not changed. The caller must trust the status of p.
func Granted(p *v1.Pod) *v1.Pod {
	s := &p.Status
	if len(s.AllocatedResources)+len(s.ContainerStatuses)+len(s.InitContainerStatuses) == 0 {
		return p
	}
	out := *p
	out.Status.QOSClass = v1.PodQOSClass(QOSOf(p)) // a resize never changes it
	out.Spec.Containers = grantedContainers(p.Spec.Containers, s.ContainerStatuses)
	out.Spec.InitContainers = grantedContainers(p.Spec.InitContainers, s.InitContainerStatuses)
	if r := p.Spec.Resources; PodLevel(r) && len(s.AllocatedResources) > 0 {
		own := *r
		own.Requests = replaceResizable(r.Requests, podLevelRequests(p))
		out.Spec.Resources = &own
	}
	for _, name := range resizable {
		if total, ok := AllocatedTotal(p, name); ok {
			capUnallocated(&out, name, total)
		}
	}
	return &out
}

// capUnallocated lowers the requests of the containers without an allocation, which never started,
// to the rest of the pod's total. A resize that the kubelet defers changes their spec too. Of
// several such containers the first ones get the rest. An ordinary init container gets at most what
// the sidecars before it leave, also with an allocation: a sidecar that never started may claim more
// than the kubelet allocated to it.
func capUnallocated(p *v1.Pod, name v1.ResourceName, total resource.Quantity) {
	total.Sub(p.Spec.Overhead[name])
	rest := total.DeepCopy()
	p.Spec.Containers = slices.Clone(p.Spec.Containers)
	p.Spec.InitContainers = slices.Clone(p.Spec.InitContainers)
	var unallocated []*v1.Container // that run at the same time
	collect := func(c *v1.Container, s *v1.ContainerStatus) {
		if hasAllocation(s) {
			rest.Sub(c.Resources.Requests[name])
		} else {
			unallocated = append(unallocated, c)
		}
	}
	states := statuses(p.Status.ContainerStatuses)
	for i := range p.Spec.Containers {
		collect(&p.Spec.Containers[i], states[p.Spec.Containers[i].Name])
	}
	states = statuses(p.Status.InitContainerStatuses)
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; isSidecar(c) {
			collect(c, states[c.Name])
		}
	}
	for _, c := range unallocated {
		lowerRequest(c, name, rest)
		rest.Sub(c.Resources.Requests[name])
	}
	for i := range p.Spec.InitContainers { // these run one after another, next to earlier sidecars
		if c := &p.Spec.InitContainers[i]; isSidecar(c) {
			total.Sub(c.Resources.Requests[name])
		} else {
			lowerRequest(c, name, total)
		}
	}
}

// lowerRequest lowers a container's request to at most an amount, or to 0 if that is negative.
func lowerRequest(c *v1.Container, name v1.ResourceName, most resource.Quantity) {
	if most.Sign() < 0 {
		most = resource.Quantity{}
	}
	if q, ok := c.Resources.Requests[name]; ok && q.Cmp(most) > 0 {
		c.Resources.Requests = maps.Clone(c.Resources.Requests)
		c.Resources.Requests[name] = most.DeepCopy()
	}
}

func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Allocated reports whether the status states the kubelet's allocation of the whole pod.
func Allocated(p *v1.Pod) bool {
	if len(p.Status.AllocatedResources) > 0 {
		return true
	}
	states, found := statuses(p.Status.ContainerStatuses), false
	for i := range p.Spec.Containers {
		found = true
		if !hasAllocation(states[p.Spec.Containers[i].Name]) {
			return false
		}
	}
	states = statuses(p.Status.InitContainerStatuses)
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		// Kubelets that state no total do not resize ordinary init containers, which may be removed.
		if isSidecar(c) && !hasAllocation(states[c.Name]) {
			return false
		}
	}
	return found
}

// AllocatedTotal returns the CPU or memory that the kubelet allocated to the whole pod, with its
// overhead, if the status states it. It covers containers that never started, which have no
// allocation of their own.
func AllocatedTotal(p *v1.Pod, name v1.ResourceName) (total resource.Quantity, ok bool) {
	if len(p.Status.AllocatedResources) == 0 || name != v1.ResourceCPU && name != v1.ResourceMemory {
		return total, false
	}
	return p.Status.AllocatedResources[name].DeepCopy(), true
}

func hasAllocation(s *v1.ContainerStatus) bool {
	return s != nil && (len(s.AllocatedResources) > 0 || s.Resources != nil)
}

// statuses returns the statuses by container; the first of a name counts.
func statuses(list []v1.ContainerStatus) map[string]*v1.ContainerStatus {
	out := make(map[string]*v1.ContainerStatus, len(list))
	for i := range list {
		if out[list[i].Name] == nil {
			out[list[i].Name] = &list[i]
		}
	}
	return out
}

func grantedContainers(list []v1.Container, states []v1.ContainerStatus) []v1.Container {
	if len(states) == 0 {
		return list
	}
	of := statuses(states)
	out := make([]v1.Container, len(list))
	for i, c := range list {
		if s := of[c.Name]; hasAllocation(s) {
			c.Resources = grantedTo(c.Resources, s)
		}
		out[i] = c
	}
	return out
}

// grantedTo returns the resources of a container. A kubelet that states only the applied resources
// (before v1.33) may not have applied an allocation yet: the lesser of them and the spec counts.
func grantedTo(spec v1.ResourceRequirements, s *v1.ContainerStatus) v1.ResourceRequirements {
	requests := s.AllocatedResources
	if s.Resources != nil {
		if len(requests) == 0 {
			requests = lesser(spec.Requests, s.Resources.Requests)
		}
		spec.Limits = replaceResizable(spec.Limits, s.Resources.Limits)
	}
	spec.Requests = replaceResizable(spec.Requests, requests)
	return spec
}

// lesser returns the resizable resources of both lists, each with the lesser amount.
func lesser(a, b v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, name := range resizable {
		q, inA := a[name]
		other, inB := b[name]
		if inA && inB {
			if other.Cmp(q) < 0 {
				q = other
			}
			out[name] = q
		}
	}
	return out
}

// replaceResizable returns list with the CPU and memory of from. A resource that from lacks becomes
// 0 and not missing, because the API server's default of a missing request is the limit.
func replaceResizable(list, from v1.ResourceList) v1.ResourceList {
	out, copied := list, false
	for _, name := range resizable {
		q, has := from[name]
		if old, had := list[name]; has == had && q.Cmp(old) == 0 {
			continue
		}
		if !copied {
			if out, copied = maps.Clone(list), true; out == nil {
				out = v1.ResourceList{}
			}
		}
		out[name] = q
	}
	return out
}

// podLevelRequests returns the pod-level requests that the kubelet allocated: the pod's total
// without its overhead, for the resources that the pod-level requests name.
func podLevelRequests(p *v1.Pod) v1.ResourceList {
	out := v1.ResourceList{}
	for _, name := range resizable {
		if _, ok := p.Spec.Resources.Requests[name]; !ok {
			continue
		}
		q := p.Status.AllocatedResources[name].DeepCopy()
		if q.Sub(p.Spec.Overhead[name]); q.Sign() < 0 {
			q = resource.Quantity{}
		}
		out[name] = q
	}
	return out
}
