package podjson

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// maxContainers bounds a pod's containers of all kinds together.
const maxContainers = 200

// most is how much a client's pod may have of what decisions walk through, while the runtime waits
// for one and lets every pod in after two seconds. Together they keep it to milliseconds. Hardly a
// pod that runs anywhere comes near. drop takes from a trimmed pod what is too much: what is
// unknown refuses nothing.
var most = []struct {
	field string
	n     int
	count func(*v1.Pod) int
	drop  func(*v1.Pod)
}{
	{"containers", maxContainers, func(p *v1.Pod) int {
		return len(p.Spec.Containers) + len(p.Spec.InitContainers) + len(p.Spec.EphemeralContainers)
	}, func(p *v1.Pod) { // the pod counts for what the rest requests: it is a victim the sooner
		s := &p.Spec
		s.EphemeralContainers = nil
		s.Containers = slices.Clone(s.Containers[:min(len(s.Containers), maxContainers)])
		s.InitContainers = slices.Clone(
			s.InitContainers[:min(len(s.InitContainers), maxContainers-len(s.Containers))])
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
		// of everything: one of those might be
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	}},
	{"terms, keys and values of node selector and affinity, of 64 characters each", 1000, selector,
		func(p *v1.Pod) {
			p.Spec.NodeSelector, p.Spec.Affinity = nil, nil
		}},
	// the others that decide are looked up by name
	{"annotations of AppArmor", 1000, func(p *v1.Pod) (n int) {
		for key := range p.Annotations {
			if appArmors(key) {
				n++
			}
		}
		return n
	}, func(p *v1.Pod) {
		maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return appArmors(key) })
		p.Annotations = maps.Clone(p.Annotations) // as small as it is now
	}},
}

// bearable refuses a pod that has more of anything.
func bearable(p *v1.Pod) error {
	for _, m := range most {
		if n := m.count(p); n > m.n {
			return fmt.Errorf("%w: a pod may have %d %s, and this has %d", ErrTooLarge, m.n, m.field, n)
		}
	}
	return nil
}

// lighten takes from a trimmed pod what it has too much of. To refuse it would cost all others that
// are put with it their objects, and an API server takes it from any tenant.
func lighten(p *v1.Pod) {
	for _, m := range most {
		if m.count(p) > m.n {
			m.drop(p)
		}
	}
}

// dropResources leaves those of the node's that every pod may request.
func dropResources(p *v1.Pod) {
	cut := func(all ...v1.ResourceList) {
		for _, list := range all {
			maps.DeleteFunc(list, func(name v1.ResourceName, _ resource.Quantity) bool {
				return name != v1.ResourceCPU && name != v1.ResourceMemory &&
					name != v1.ResourceEphemeralStorage
			})
		}
	}
	cut(p.Spec.Overhead)
	if r := p.Spec.Resources; r != nil {
		cut(r.Requests, r.Limits)
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			cut(r.Requests, r.Limits)
			r.Requests, r.Limits = maps.Clone(r.Requests), maps.Clone(r.Limits) // as small as they are now
		}
	}
}

// resources counts kinds and not entries: each of a sidecar's is added to each init container's.
func resources(p *v1.Pod) int {
	kinds := map[v1.ResourceName]struct{}{}
	add := func(all ...v1.ResourceList) {
		for _, list := range all {
			for name := range list {
				kinds[name] = struct{}{}
			}
		}
	}
	add(p.Spec.Overhead)
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

// selector counts long texts as several: each is matched with a regular expression.
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
		for _, of := range [][]v1.NodeSelectorRequirement{term.MatchExpressions, term.MatchFields} {
			for _, r := range of {
				add(r.Key, string(r.Operator))
				add(r.Values...)
			}
		}
	}
	return n
}
