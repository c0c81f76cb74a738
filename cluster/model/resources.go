package model

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Amount is so much of a resource: of cpu in thousandths of a core, of anything else in its own unit, rounded up.
type Amount struct {
	Name  v1.ResourceName
	Value int64
}

// mostOf is as much as an Amount may be: more than any node has, and so little that those of a node's pods can be added up. The API takes
// requests of up to 2^63 of whatever, and pods that name their node themselves.
const mostOf = 1 << 50

// ValueOf is a quantity as Amount has it.
func ValueOf(name v1.ResourceName, q resource.Quantity) int64 {
	switch {
	case name != v1.ResourceCPU && q.CmpInt64(mostOf) >= 0, name == v1.ResourceCPU && q.CmpInt64(mostOf/1000) >= 0:
		return mostOf
	case name == v1.ResourceCPU:
		return q.MilliValue()
	}
	return q.Value()
}

// requests of a pod, its sidecars and its overhead included, without those of nothing.
func requests(p *v1.Pod) (out []Amount) {
	var list v1.ResourceList
	if s := &p.Spec; len(s.Containers) == 1 && len(s.InitContainers) == 0 && s.Overhead == nil && s.Resources == nil {
		list = s.Containers[0].Resources.Requests // there is nothing to add up, and no need of a list of its own for each pod
	} else {
		list = resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	}
	out = make([]Amount, 0, len(list))
	for name, q := range list {
		if value := ValueOf(name, q); value > 0 && name != v1.ResourcePods {
			out = append(out, Amount{name, value})
		}
	}
	slices.SortFunc(out, func(a, b Amount) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out
}

// Request is what a pod requests of a resource; of pods it is one.
func (p *Pod) Request(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	for _, a := range p.Requests {
		if a.Name == name {
			return a.Value
		}
	}
	return 0
}

// Requested is what the pods on a node request of a resource, those that have ended aside.
func (n *Node) Requested(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return int64(n.running)
	}
	return n.requested[name]
}

// Resources are the names of what pods on a node request.
func (n *Node) Resources() (out []v1.ResourceName) {
	for name, value := range n.requested {
		if value > 0 {
			out = append(out, name)
		}
	}
	return out
}

// Allocatable is what there is of a resource for pods, and whether that is known. A node that says nothing of what is allocatable has its
// capacity.
func (n *Node) Allocatable(name v1.ResourceName) (int64, bool) {
	list := n.Status.Allocatable
	if len(list) == 0 {
		list = n.Status.Capacity
	}
	q, ok := list[name]
	return ValueOf(name, q), ok
}

// lacks names the first resource of which a node has not enough for a pod; empty: it has room. What a node does not say of the number of
// pods it takes does not refuse one; any other resource that it does not name it has not.
func (n *Node) lacks(p *Pod) v1.ResourceName {
	if most, ok := n.Allocatable(v1.ResourcePods); ok && int64(n.running)+1 > most {
		return v1.ResourcePods
	}
	for _, a := range p.Requests {
		if there, _ := n.Allocatable(a.Name); n.requested[a.Name]+a.Value > there {
			return a.Name
		}
	}
	return ""
}

// Percent is a part of a whole in percent; of nothing it is 0.
func Percent(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole) * 100
}
