package eviction

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// podRequest returns a pod's request for memory or ephemeral storage as in the kubelet's ranking
// (pkg/api/v1/resource/helpers.go GetResourceRequestQuantity): pod-level resources replace those of
// the containers, and overhead is added unless the sum is 0. It differs from the kubelet in one
// case (weakness 26): a pod-level request does not contain ephemeral storage, so the containers'
// requests for it stay.
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

// podStorageLimit returns the sum of the limits on ephemeral storage of the containers that have
// one, as the kubelet computes it (k8s.io/component-helpers/resource PodLimits); nil if none has.
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

// aggregate returns the larger of two sums: the regular containers and sidecars together, and any
// init container with the sidecars before it (k8s.io/component-helpers/resource
// AggregateContainerRequests).
func aggregate(p *v1.Pod, list func(*v1.ResourceRequirements) v1.ResourceList,
	name v1.ResourceName) (total resource.Quantity, found bool) {
	quantity := func(c *v1.Container) resource.Quantity {
		q, ok := list(&c.Resources)[name]
		found = found || ok
		return q
	}
	for i := range p.Spec.Containers {
		total.Add(quantity(&p.Spec.Containers[i]))
	}
	var sidecars, starting resource.Quantity
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		q := quantity(c)
		// starts with the same addend as the kubelet, because a sum is printed in the format of its
		// first addend
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
