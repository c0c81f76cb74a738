package deschedule

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/cluster/model"
)

// byEvictionOrder orders pods for eviction: lowest priority first (no priority before any), then
// BestEffort, Burstable, Guaranteed, then pods without the annotation prefer-no-eviction
// (pkg/descheduler/pod/pods.go, 0.36.0). jettison breaks ties: youngest first, then by name.
func byEvictionOrder(a, b *model.Pod) int {
	if c := byPriority(a, b); c != 0 {
		return c
	}
	if c := cmp.Compare(qosClass(a.Pod), qosClass(b.Pod)); c != 0 {
		return c
	}
	if c := cmp.Compare(prefersNoEviction(a), prefersNoEviction(b)); c != 0 {
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

func prefersNoEviction(p *model.Pod) int {
	if hasKey(p.Annotations, preferAnnotation) {
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

// candidatesOn returns the pods on a node that a function selects, in eviction order.
func candidatesOn(n *model.Node, selects func(*model.Pod) bool) (out []*model.Pod) {
	for _, p := range n.Pods {
		if selects(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, byEvictionOrder)
	return out
}

// qosClass returns the rank of a pod's QoS class: 0 BestEffort, 1 Burstable, 2 Guaranteed.
// Without a class in the status, it is computed from cpu and memory of all containers, as in
// 0.36.0 (pkg/utils/qos.go).
func qosClass(p *v1.Pod) int {
	switch p.Status.QOSClass {
	case v1.PodQOSBestEffort:
		return 0
	case v1.PodQOSBurstable:
		return 1
	case v1.PodQOSGuaranteed:
		return 2
	}
	anySet, allLimited := false, true
	requests, limits := map[v1.ResourceName]resource.Quantity{},
		map[v1.ResourceName]resource.Quantity{}
	for _, containers := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
				request, limit := r.Requests[name], r.Limits[name]
				anySet = anySet || request.Sign() > 0 || limit.Sign() > 0
				allLimited = allLimited && limit.Sign() > 0
				add(requests, name, request)
				add(limits, name, limit)
			}
		}
	}
	if !anySet {
		return 0
	}
	for name, request := range requests {
		allLimited = allLimited && request.Cmp(limits[name]) == 0
	}
	if allLimited {
		return 2
	}
	return 1
}

// add adds q to to[name].
func add(to map[v1.ResourceName]resource.Quantity, name v1.ResourceName, q resource.Quantity) {
	sum := to[name].DeepCopy()
	sum.Add(q)
	to[name] = sum
}
