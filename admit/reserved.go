package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ResourcePIDs is the kubelet's own name for a number of tasks
// (pkg/kubelet/stats/pidlimit/pidlimit.go PIDs). No pod requests it.
const ResourcePIDs v1.ResourceName = "pid"

// Reserved is what a node keeps back from pods, each part by resource. A resource that is absent is
// not reserved.
type Reserved struct {
	Kube, System v1.ResourceList // kubeReserved and systemReserved
	// what hard eviction thresholds keep back; the cgroup of all pods does not know of it
	Eviction v1.ResourceList
}

// Allocatable is what pods may request together, of a node with that capacity: the capacity without
// all that is reserved, and of memory without huge pages too; never below 0. A resource that the
// node has and nobody reserves is there whole; one that it does not have is not there
// (pkg/kubelet/nodestatus/setters.go MachineInfo, pkg/kubelet/cm/node_container_manager_linux.go
// GetNodeAllocatableReservation, v1.36.3).
func Allocatable(capacity v1.ResourceList, r Reserved) v1.ResourceList {
	out := less(capacity, r.Kube, r.System, r.Eviction)
	memory, ok := out[v1.ResourceMemory]
	if !ok {
		return out
	}
	for name, pages := range capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			memory.Sub(pages)
		}
	}
	out[v1.ResourceMemory] = atLeastZero(memory)
	return out
}

// Enforced is what the cgroup of all pods is limited to: the capacity without what is reserved for
// the kubelet and the system, never below 0. What thresholds keep back is not taken off, nor are
// huge pages: between this and Allocatable is where pods are evicted
// (pkg/kubelet/cm/node_container_manager_linux.go getNodeAllocatableAbsoluteImpl, v1.36.3).
func Enforced(capacity v1.ResourceList, r Reserved) v1.ResourceList {
	return less(capacity, r.Kube, r.System)
}

// less is a capacity without some parts of it.
func less(capacity v1.ResourceList, parts ...v1.ResourceList) v1.ResourceList {
	out := make(v1.ResourceList, len(capacity))
	for name, has := range capacity {
		left := has.DeepCopy()
		for _, part := range parts {
			if q, ok := part[name]; ok {
				left.Sub(q)
			}
		}
		out[name] = atLeastZero(left)
	}
	return out
}

func atLeastZero(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

// Exceeded says of which resources more is reserved than the node has, in the kubelet's words, by
// name. A kubelet does not start then (pkg/kubelet/cm/node_container_manager_linux.go
// validateNodeAllocatable, v1.36.3), but for pid: its capacity knows of none there, so it starts
// with more reserved than there is, and lets pods have one task. That is held against the node here
// like the others.
func Exceeded(capacity v1.ResourceList, r Reserved) (texts []string) {
	for name, has := range capacity {
		var sum resource.Quantity
		for _, part := range []v1.ResourceList{r.System, r.Kube, r.Eviction} {
			if q, ok := part[name]; ok {
				sum.Add(q)
			}
		}
		if sum.Cmp(has) > 0 {
			texts = append(texts, fmt.Sprintf(
				"Resource %q has a reservation of %v but capacity of %v. Expected capacity >= reservation.",
				name, &sum, &has))
		}
	}
	slices.Sort(texts)
	return texts
}
