package admit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// Shortage is a resource with less free than a pod requests, in the units of Amounts.
type Shortage struct {
	Resource                  v1.ResourceName
	Requested, Used, Capacity int64
}

// need returns the amount that must be freed (pkg/kubelet/lifecycle/predicate.go
// GetInsufficientAmount).
func (s *Shortage) need() Need {
	if s.Used > s.Capacity {
		return Need{s.Resource, stats.SaturatingAdd(s.Requested, s.Used-s.Capacity)}
	}
	return Need{s.Resource, s.Requested - (s.Capacity - s.Used)}
}

// failure returns the kubelet's failure, such as OutOfcpu (pkg/kubelet/lifecycle/predicate.go
// InsufficientResourceError).
func (s *Shortage) failure() Failure {
	return Failure{
		Reason: "OutOf" + string(s.Resource),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			s.Resource, s.Requested, s.Used, s.Capacity),
		Short: s,
	}
}

// shortages returns the resources that the node lacks for a pod in addition to others
// (pkg/scheduler/framework/plugins/noderesources/fit.go fitsRequest): pods, cpu, memory, ephemeral
// storage, then all others by name, which the kubelet reports in any order. It checks only the
// number of pods and the resources that the pod requests.
func shortages(requests Amounts, others []*Held, n *NodeState) []Shortage {
	var out []Shortage
	if q, ok := n.Allocatable[v1.ResourcePods]; ok {
		s := Shortage{v1.ResourcePods, 1, int64(len(others)), amount(v1.ResourcePods, q)}
		if s.Requested > s.Capacity-s.Used {
			out = append(out, s)
		}
	}
	for _, r := range inOrder(requests) {
		q, ok := n.Allocatable[r.Resource]
		if !ok {
			continue // unknown, or an extended resource of the cluster (removeMissingExtendedResources)
		}
		s := Shortage{Resource: r.Resource, Requested: r.Amount, Capacity: amount(r.Resource, q)}
		for _, h := range others {
			s.Used = stats.SaturatingAdd(s.Used, h.Requests[r.Resource])
		}
		if s.Requested > s.Capacity-s.Used {
			out = append(out, s)
		}
	}
	return out
}

// inOrder returns the amounts in the order in which shortages are reported, without the number of
// pods.
func inOrder(a Amounts) []Need {
	out := make([]Need, 0, len(a))
	for name, v := range a {
		if name != v1.ResourcePods {
			out = append(out, Need{name, v})
		}
	}
	slices.SortFunc(out, func(a, b Need) int { return compareNames(a.Resource, b.Resource) })
	return out
}
