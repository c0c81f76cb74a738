package eviction

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// podRequest is a pod's request for memory or ephemeral storage as the kubelet's ranking has it
// (pkg/api/v1/resource/helpers.go GetResourceRequestQuantity): pod-level resources count instead of
// the containers', and overhead is added to what is not 0. It differs where the kubelet forgets
// (weakness 26): a pod-level request says nothing of ephemeral storage, so the containers' stays.
func podRequest(p *v1.Pod, name v1.ResourceName) resource.Quantity {
	var total resource.Quantity
	if stats.PodLevel(p.Spec.Resources) && name == v1.ResourceMemory {
		total = p.Spec.Resources.Requests[name].DeepCopy()
	} else {
		total, _ = aggregate(p, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests },
			name)
	}
	if overhead, ok := p.Spec.Overhead[name]; ok && !total.IsZero() {
		total.Add(overhead)
	}
	return total
}

// podStorageLimit is the sum of the limits on ephemeral storage of those containers that have one,
// as the kubelet adds them up (k8s.io/component-helpers/resource PodLimits); nil: none has.
func podStorageLimit(p *v1.Pod) *resource.Quantity {
	total, found := aggregate(p, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Limits },
		v1.ResourceEphemeralStorage)
	if !found {
		return nil
	}
	if overhead, ok := p.Spec.Overhead[v1.ResourceEphemeralStorage]; ok && !total.IsZero() {
		total.Add(overhead)
	}
	return &total
}

// aggregate is the greater of what the regular containers and sidecars take together and of what
// each init container takes with the sidecars before it (k8s.io/component-helpers/resource
// AggregateContainerRequests).
func aggregate(p *v1.Pod, list func(*v1.ResourceRequirements) v1.ResourceList,
	name v1.ResourceName) (total resource.Quantity, found bool) {
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
		// begun with as the kubelet begins, for a sum is written in the format of its first part
		during := q.DeepCopy()
		during.Add(sidecars)
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
