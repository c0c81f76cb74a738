package deschedule

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/cluster/model"
)

// firstToGo orders pods: the lowest priority first (none before any), then BestEffort, Burstable,
// Guaranteed, then those that do not ask to stay (pkg/descheduler/pod/pods.go, 0.36.0). Equals have
// an order of this project's: the youngest first, then by name.
func firstToGo(a, b *model.Pod) int {
	if c := byPriority(a, b); c != 0 {
		return c
	}
	if c := cmp.Compare(class(a.Pod), class(b.Pod)); c != 0 {
		return c
	}
	if c := cmp.Compare(asks(a), asks(b)); c != 0 {
		return c
	}
	return youngest(a, b)
}

func byPriority(a, b *model.Pod) int {
	x, y := a.Spec.Priority, b.Spec.Priority
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return -1
	case y == nil:
		return 1
	}
	return cmp.Compare(*x, *y)
}

func asks(p *model.Pod) int {
	if has(p.Annotations, preferAnnotation) {
		return 1
	}
	return 0
}

func youngest(a, b *model.Pod) int {
	if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func sorted(pods []*model.Pod, by func(a, b *model.Pod) int) []*model.Pod {
	out := slices.Clone(pods)
	slices.SortFunc(out, by)
	return out
}

// leaving are those pods on a node that are asked for, the first to go first.
func leaving(n *model.Node, asked func(*model.Pod) bool) (out []*model.Pod) {
	for _, p := range n.Pods {
		if asked(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, firstToGo)
	return out
}

// class is a pod's QoS class as a number: 0 BestEffort, 1 Burstable, 2 Guaranteed. The API server
// writes it; of a pod that it has not seen it is reckoned as 0.36.0 does (pkg/utils/qos.go), from
// cpu and memory of all containers.
func class(p *v1.Pod) int {
	switch p.Status.QOSClass {
	case v1.PodQOSBestEffort:
		return 0
	case v1.PodQOSBurstable:
		return 1
	case v1.PodQOSGuaranteed:
		return 2
	}
	any, all := false, true
	requests, limits := map[v1.ResourceName]resource.Quantity{},
		map[v1.ResourceName]resource.Quantity{}
	for _, containers := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
				request, limit := r.Requests[name], r.Limits[name]
				any = any || request.Sign() > 0 || limit.Sign() > 0
				all = all && limit.Sign() > 0
				plus(requests, name, request)
				plus(limits, name, limit)
			}
		}
	}
	if !any {
		return 0
	}
	for name, request := range requests {
		all = all && request.Cmp(limits[name]) == 0
	}
	if all && len(requests) == len(limits) {
		return 2
	}
	return 1
}

func plus(to map[v1.ResourceName]resource.Quantity, name v1.ResourceName, q resource.Quantity) {
	if q.Sign() <= 0 {
		return
	}
	sum := to[name].DeepCopy()
	sum.Add(q)
	to[name] = sum
}
