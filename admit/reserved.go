package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ResourcePIDs is the kubelet's resource name for the number of tasks
// (pkg/kubelet/stats/pidlimit/pidlimit.go PIDs). No pod requests it.
const ResourcePIDs v1.ResourceName = "pid"

// Reserved holds the amounts that a node reserves. An absent resource is not reserved.
type Reserved struct {
	Kube, System v1.ResourceList // from kubeReserved and systemReserved
	// reserved by hard eviction thresholds; does not affect the limit of the pods' root cgroup
	Eviction v1.ResourceList
}

// Allocatable returns the amounts that all pods together may request: the capacity minus all
// reserved amounts, and for memory minus huge pages. Amounts are at least 0. The result has the
// resources of capacity (pkg/kubelet/nodestatus/setters.go MachineInfo,
// pkg/kubelet/cm/node_container_manager_linux.go GetNodeAllocatableReservation, v1.37.2).
func Allocatable(capacity v1.ResourceList, r Reserved) v1.ResourceList {
	out := subtract(capacity, r.Kube, r.System, r.Eviction)
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

// Enforced returns the limits of the pods' root cgroup: the capacity minus the amounts reserved for
// the kubelet and the system, at least 0. It does not subtract eviction thresholds and huge pages,
// so pods are evicted when their usage is between Allocatable and Enforced
// (pkg/kubelet/cm/node_container_manager_linux.go getNodeAllocatableAbsoluteImpl, v1.37.2).
func Enforced(capacity v1.ResourceList, r Reserved) v1.ResourceList {
	return subtract(capacity, r.Kube, r.System)
}

// subtract returns the capacity minus the parts, at least 0 for each resource.
func subtract(capacity v1.ResourceList, parts ...v1.ResourceList) v1.ResourceList {
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

// Exceeded returns an error text of the kubelet for each resource with a reservation above the
// capacity, by name. A kubelet does not start in this case
// (pkg/kubelet/cm/node_container_manager_linux.go validateNodeAllocatable, v1.37.2), except for
// pid: the kubelet's capacity list lacks pid, so the kubelet starts and limits all pods to one
// task. Exceeded reports pid too.
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
