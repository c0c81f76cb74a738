package podjson

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// most is how much a client's pod may have of what decisions walk through, while the runtime waits for one and lets every pod in after two
// seconds. Together they keep it to milliseconds. No pod that runs anywhere comes near.
var most = []struct {
	field string
	n     int
	count func(*v1.Pod) int
}{
	{"containers", 200, func(p *v1.Pod) int {
		return len(p.Spec.Containers) + len(p.Spec.InitContainers) + len(p.Spec.EphemeralContainers)
	}},
	{"kinds of resources", 50, resources},
	{"host ports", 1000, hostPorts},
	{"sysctls", 100, func(p *v1.Pod) int {
		if p.Spec.SecurityContext == nil {
			return 0
		}
		return len(p.Spec.SecurityContext.Sysctls)
	}},
	{"tolerations", 500, func(p *v1.Pod) int { return len(p.Spec.Tolerations) }},
	{"terms, keys and values of node selector and affinity, of 64 characters each", 1000, selector},
	{"annotations", 1000, func(p *v1.Pod) int { return len(p.Annotations) }},
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
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
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
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
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
