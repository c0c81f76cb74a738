package model

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Amount is a quantity of a resource: cpu in millicores, others in their base unit, rounded up.
type Amount struct {
	Name  v1.ResourceName
	Value int64
}

// maxAmount is the upper limit of an Amount. It exceeds any node and is small enough to sum up
// the pods of a node: the API server accepts requests of up to 2^63, also for pods that set
// nodeName themselves.
const maxAmount = 1 << 50

// ValueOf converts a quantity to the unit of Amount.
func ValueOf(name v1.ResourceName, q resource.Quantity) int64 {
	switch {
	case name != v1.ResourceCPU && q.CmpInt64(maxAmount) >= 0, name == v1.ResourceCPU &&
		q.CmpInt64(maxAmount/1000) >= 0:
		return maxAmount
	case name == v1.ResourceCPU:
		return q.MilliValue()
	}
	return q.Value()
}

// amounts is a list with one Amount for each resource, sorted by name.
type amounts []Amount

func byName(a, b Amount) int { return strings.Compare(string(a.Name), string(b.Name)) }

// find returns the index of a resource; -1: absent. For short lists a linear search is faster
// than binary search; tenants may name any number of resources.
func (a amounts) find(name v1.ResourceName) int {
	if len(a) > smallCount {
		if at, ok := slices.BinarySearchFunc(a, Amount{Name: name}, byName); ok {
			return at
		}
		return -1
	}
	for i := range a {
		if a[i].Name == name {
			return i
		}
	}
	return -1
}

// get returns the amount of a resource, and whether it is present.
func (a amounts) get(name v1.ResourceName) (int64, bool) {
	if at := a.find(name); at >= 0 {
		return a[at].Value, true
	}
	return 0, false
}

// add adds others, multiplied by times.
func (a *amounts) add(others amounts, times int64) {
	length := len(*a)
	for i := range others {
		o := &others[i]
		if at := (*a)[:length].find(o.Name); at >= 0 {
			(*a)[at].Value += times * o.Value
		} else {
			*a = append(*a, Amount{o.Name, times * o.Value})
		}
	}
	if len(*a) > length {
		slices.SortFunc(*a, byName)
	}
}

// pair is an amount of cpu and one of memory.
type pair [2]int64

func (a pair) plus(b pair, times int64) pair {
	return pair{a[0] + times*b[0], a[1] + times*b[1]}
}

func (a amounts) pair() (out pair) {
	out[0], _ = a.get(v1.ResourceCPU)
	out[1], _ = a.get(v1.ResourceMemory)
	return out
}

// podRequests are the requests of a pod.
type podRequests struct {
	amounts
	pair, scored pair
}

// Requests of a container without one, for scores (pkg/scheduler/util/pod_resources.go, v1.37.2).
const (
	defaultCPURequest    = 100
	defaultMemoryRequest = 200 << 20
)

// scoredRequests returns the requests of a pod as NodeResourcesFit scores them: a container without
// a request counts with a default one.
func scoredRequests(p *v1.Pod, requested amounts) pair {
	out := requested.pair()
	if s := &p.Spec; len(s.Containers) == 1 && len(s.InitContainers) == 0 && s.Overhead == nil &&
		s.Resources == nil {
		list := s.Containers[0].Resources.Requests
		if _, ok := list[v1.ResourceCPU]; !ok {
			out[0] = defaultCPURequest
		}
		if _, ok := list[v1.ResourceMemory]; !ok {
			out[1] = defaultMemoryRequest
		}
		return out
	}
	list := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{
		NonMissingContainerRequests: v1.ResourceList{
			v1.ResourceCPU:    *resource.NewMilliQuantity(defaultCPURequest, resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(defaultMemoryRequest, resource.DecimalSI),
		}})
	return pair{ValueOf(v1.ResourceCPU, list[v1.ResourceCPU]),
		ValueOf(v1.ResourceMemory, list[v1.ResourceMemory])}
}

// allocatableOf returns the allocatable resources of a node; without any, its capacity.
func allocatableOf(n *v1.Node) amounts {
	list := n.Status.Allocatable
	if len(list) == 0 {
		list = n.Status.Capacity
	}
	out := make(amounts, 0, len(list))
	for name, q := range list {
		out = append(out, Amount{name, ValueOf(name, q)})
	}
	slices.SortFunc(out, byName)
	return out
}

// requests appends the requests of a pod to out, including sidecars and overhead, without zero
// values. out must be empty; its capacity is reused.
func requests(out amounts, p *v1.Pod) amounts {
	var list v1.ResourceList
	if s := &p.Spec; len(s.Containers) == 1 && len(s.InitContainers) == 0 && s.Overhead == nil &&
		s.Resources == nil {
		// the common case: nothing to sum up, no new list
		list = s.Containers[0].Resources.Requests
	} else {
		list = resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	}
	for name, q := range list {
		if value := ValueOf(name, q); value > 0 && name != v1.ResourcePods {
			out = append(out, Amount{name, value})
		}
	}
	slices.SortFunc(out, byName)
	return out
}

// Request returns how much of a resource a pod requests; 1 for the resource pods.
func (p *Pod) Request(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	value, _ := p.requests.get(name)
	return value
}

// Requested returns how much of a resource the pods on a node request, without ended pods.
func (n *Node) Requested(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return int64(n.running)
	}
	value, _ := n.requested.get(name)
	return value
}

// Resources returns the names of the resources that pods on a node request.
func (n *Node) Resources() (out []v1.ResourceName) {
	for _, a := range n.requested {
		if a.Value > 0 {
			out = append(out, a.Name)
		}
	}
	return out
}

// Allocatable returns the allocatable amount of a resource, and whether the node reports one.
func (n *Node) Allocatable(name v1.ResourceName) (int64, bool) { return n.allocatable.get(name) }

// missingResource returns the first resource of which a node has too little for a pod; empty:
// enough of all. A missing limit of pods does not block; any other resource that the node does
// not report counts as 0.
func (n *Node) missingResource(p *Pod) v1.ResourceName {
	if most, ok := n.Allocatable(v1.ResourcePods); ok && int64(n.running)+1 > most {
		return v1.ResourcePods
	}
	for _, a := range p.requests.amounts {
		if limit, _ := n.Allocatable(a.Name); n.Requested(a.Name)+a.Value > limit {
			return a.Name
		}
	}
	return ""
}

// Percent returns part as percentage of whole; 0 if whole is 0.
func Percent(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole) * 100
}
