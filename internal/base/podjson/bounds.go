package podjson

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// maxContainers bounds the containers of a pod, of all kinds.
const maxContainers = 200

// limits are the limits of a client's pod for the fields that a decision iterates over. The runtime
// waits for a decision, and starts the pod after two seconds without one; together the limits keep
// the decision to milliseconds. Pods in practice are far below them. drop removes the excess from a
// trimmed pod: unknown fields cause no rejection.
var limits = []struct {
	field string
	n     int
	count func(*v1.Pod) int
	drop  func(*v1.Pod)
}{
	{"containers", maxContainers, func(p *v1.Pod) int {
		return len(p.Spec.Containers) + len(p.Spec.InitContainers) + len(p.Spec.EphemeralContainers)
	}, func(p *v1.Pod) { // the removed requests do not count, so it becomes a victim earlier
		s := &p.Spec
		s.EphemeralContainers = nil
		s.Containers = slices.Clone(s.Containers[:min(len(s.Containers), maxContainers)])
		s.InitContainers = slices.Clone(
			s.InitContainers[:min(len(s.InitContainers), maxContainers-len(s.Containers))])
		KeepAllocation(p, p)
	}},
	{"kinds of resources", 50, resources, dropResources},
	{"host ports", 1000, hostPorts, func(p *v1.Pod) {
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				list[i].Ports = nil
			}
		}
	}},
	{"sysctls", 100, func(p *v1.Pod) int {
		if p.Spec.SecurityContext == nil {
			return 0
		}
		return len(p.Spec.SecurityContext.Sysctls)
	}, func(p *v1.Pod) { p.Spec.SecurityContext.Sysctls = nil }},
	{"tolerations", 500, func(p *v1.Pod) int { return len(p.Spec.Tolerations) }, func(p *v1.Pod) {
		// tolerate everything, as one of the removed ones might
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	}},
	{"terms, keys and values of node selector and affinity, of 64 characters each", 1000, selector,
		func(p *v1.Pod) {
			p.Spec.NodeSelector, p.Spec.Affinity = nil, nil
		}},
	// other annotations that decide are looked up by name
	{"annotations of AppArmor", 1000, func(p *v1.Pod) (n int) {
		for key := range p.Annotations {
			if isAppArmor(key) {
				n++
			}
		}
		return n
	}, func(p *v1.Pod) {
		maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return isAppArmor(key) })
		p.Annotations = maps.Clone(p.Annotations) // releases the unused memory
	}},
}

// checkLimits returns an error for a pod that exceeds one of the limits.
func checkLimits(p *v1.Pod) error {
	for _, l := range limits {
		if n := l.count(p); n > l.n {
			return fmt.Errorf("%w: the pod has %d %s, the limit is %d", ErrTooLarge, n, l.field, l.n)
		}
	}
	return nil
}

// applyLimits removes the excess from a trimmed pod. Rejecting the pod would reject all pods of the
// same list, and an API server accepts such pods from any tenant.
func applyLimits(p *v1.Pod) {
	for _, l := range limits {
		if l.count(p) > l.n {
			l.drop(p)
		}
	}
}

// dropResources keeps only the resources that any pod may request.
func dropResources(p *v1.Pod) {
	cut := func(all ...v1.ResourceList) {
		for _, list := range all {
			maps.DeleteFunc(list, func(name v1.ResourceName, _ resource.Quantity) bool {
				return name != v1.ResourceCPU && name != v1.ResourceMemory &&
					name != v1.ResourceEphemeralStorage
			})
		}
	}
	cut(p.Spec.Overhead, p.Status.AllocatedResources)
	if r := p.Spec.Resources; r != nil {
		cut(r.Requests, r.Limits)
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			cut(r.Requests, r.Limits)
			r.Requests, r.Limits = maps.Clone(r.Requests), maps.Clone(r.Limits) // releases the unused memory
		}
	}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses,
		p.Status.ContainerStatuses} {
		for i := range list {
			cut(list[i].AllocatedResources)
			if r := list[i].Resources; r != nil {
				cut(r.Requests, r.Limits)
			}
		}
	}
}

// resources counts kinds and not entries: each resource of a sidecar is added to each init
// container's.
func resources(p *v1.Pod) int {
	kinds := map[v1.ResourceName]struct{}{}
	add := func(all ...v1.ResourceList) {
		for _, list := range all {
			for name := range list {
				kinds[name] = struct{}{}
			}
		}
	}
	add(p.Spec.Overhead, p.Status.AllocatedResources)
	if r := p.Spec.Resources; r != nil {
		add(r.Requests, r.Limits)
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			add(list[i].Resources.Requests, list[i].Resources.Limits)
		}
	}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses,
		p.Status.ContainerStatuses} {
		for i := range list {
			add(list[i].AllocatedResources)
			if r := list[i].Resources; r != nil {
				add(r.Requests, r.Limits)
			}
		}
	}
	return len(kinds)
}

func hostPorts(p *v1.Pod) (n int) {
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for j := range list[i].Ports {
				if p.Spec.HostNetwork || list[i].Ports[j].HostPort != 0 {
					n++
				}
			}
		}
	}
	return n
}

// selector counts long texts as several, because each is matched with a regular expression.
func selector(p *v1.Pod) (n int) {
	add := func(all ...string) {
		for _, text := range all {
			n += 1 + len(text)/64
		}
	}
	for key, value := range p.Spec.NodeSelector {
		add(key, value)
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil ||
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return n
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		n++
		for _, list := range [][]v1.NodeSelectorRequirement{term.MatchExpressions, term.MatchFields} {
			for _, r := range list {
				add(r.Key, string(r.Operator))
				add(r.Values...)
			}
		}
	}
	return n
}
