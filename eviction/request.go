package eviction

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// podLevel reports whether the pod has resources of its own, beside its containers' (k8s.io/component-helpers/resource
// IsPodLevelResourcesSet). Only cpu, memory and huge pages count there.
func podLevel(p *v1.Pod) bool {
	if p.Spec.Resources == nil {
		return false
	}
	for _, list := range []v1.ResourceList{p.Spec.Resources.Requests, p.Spec.Resources.Limits} {
		for name := range list {
			if name == v1.ResourceCPU || name == v1.ResourceMemory || len(name) > len(v1.ResourceHugePagesPrefix) && name[:len(v1.ResourceHugePagesPrefix)] == v1.ResourceHugePagesPrefix {
				return true
			}
		}
	}
	return false
}

// podRequest is a pod's request for memory or ephemeral storage as the kubelet's ranking has it (pkg/api/v1/resource/helpers.go
// GetResourceRequestQuantity): pod-level resources count instead of the containers', and overhead is added to what is not 0. It
// differs where the kubelet forgets (weakness 26): a pod-level request says nothing of ephemeral storage, so the containers' stays.
func podRequest(p *v1.Pod, name v1.ResourceName) resource.Quantity {
	var total resource.Quantity
	if podLevel(p) && name == v1.ResourceMemory {
		total = p.Spec.Resources.Requests[name].DeepCopy()
	} else {
		total, _ = aggregate(p, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests }, name)
	}
	if overhead, ok := p.Spec.Overhead[name]; ok && !total.IsZero() {
		total.Add(overhead)
	}
	return total
}

// podStorageLimit is the sum of the limits on ephemeral storage of those containers that have one, as the kubelet adds them up
// (k8s.io/component-helpers/resource PodLimits); nil: none has.
func podStorageLimit(p *v1.Pod) *resource.Quantity {
	total, found := aggregate(p, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Limits }, v1.ResourceEphemeralStorage)
	if !found {
		return nil
	}
	if overhead, ok := p.Spec.Overhead[v1.ResourceEphemeralStorage]; ok && !total.IsZero() {
		total.Add(overhead)
	}
	return &total
}

// aggregate is the greater of what the regular containers and sidecars take together and of what each init container takes with
// the sidecars before it (k8s.io/component-helpers/resource AggregateContainerRequests).
func aggregate(p *v1.Pod, list func(*v1.ResourceRequirements) v1.ResourceList, name v1.ResourceName) (total resource.Quantity, found bool) {
	of := func(c *v1.Container) resource.Quantity {
		q, ok := list(&c.Resources)[name]
		found = found || ok
		return q
	}
	for i := range p.Spec.Containers {
		total.Add(of(&p.Spec.Containers[i]))
	}
	var sidecars, starting resource.Quantity
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		q := of(c)
		during := sidecars.DeepCopy()
		during.Add(q)
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			total.Add(q)
			sidecars.Add(q)
		}
		if during.Cmp(starting) > 0 {
			starting = during
		}
	}
	if starting.Cmp(total) > 0 {
		total = starting
	}
	return total, found
}

// qosOf is the object's class: as its status says, else by the kubelet's rule (pkg/apis/core/v1/helper/qos ComputePodQOS).
func qosOf(p *v1.Pod) stats.QOSClass {
	if p.Status.QOSClass != "" {
		return stats.QOSClass(p.Status.QOSClass)
	}
	var all []*v1.ResourceRequirements
	if podLevel(p) {
		all = append(all, p.Spec.Resources)
	} else {
		for i := range p.Spec.Containers {
			all = append(all, &p.Spec.Containers[i].Resources)
		}
		for i := range p.Spec.InitContainers {
			all = append(all, &p.Spec.InitContainers[i].Resources)
		}
	}
	some, guaranteed := false, len(all) > 0
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			some = some || !request.IsZero() || !limit.IsZero()
			// A request that is not given is the limit (pkg/apis/core/v1/defaults.go).
			guaranteed = guaranteed && !limit.IsZero() && (request.IsZero() || request.Cmp(limit) == 0)
		}
	}
	switch {
	case !some:
		return stats.BestEffort
	case guaranteed:
		return stats.Guaranteed
	}
	return stats.Burstable
}
