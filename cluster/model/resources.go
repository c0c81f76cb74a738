package model

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Amount is so much of a resource: of cpu in thousandths of a core, of anything else in its own
// unit, rounded up.
type Amount struct {
	Name  v1.ResourceName
	Value int64
}

// mostOf is as much as an Amount may be: more than any node has, and so little that those of a
// node's pods can be added up. The API takes requests of up to 2^63 of whatever, and pods that name
// their node themselves.
const mostOf = 1 << 50

// ValueOf is a quantity as Amount has it.
func ValueOf(name v1.ResourceName, q resource.Quantity) int64 {
	switch {
	case name != v1.ResourceCPU && q.CmpInt64(mostOf) >= 0, name == v1.ResourceCPU &&
		q.CmpInt64(mostOf/1000) >= 0:
		return mostOf
	case name == v1.ResourceCPU:
		return q.MilliValue()
	}
	return q.Value()
}

// amounts are of one resource each, by its name.
type amounts []Amount

func byName(a, b Amount) int { return strings.Compare(string(a.Name), string(b.Name)) }

// find is the place of a resource; -1: it is not there. Of a few a look at each is less than a
// hash; a tenant may have named any number.
func (a amounts) find(name v1.ResourceName) int {
	if len(a) > few {
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

// of is the amount of a resource, and whether there is one.
func (a amounts) of(name v1.ResourceName) (int64, bool) {
	if at := a.find(name); at >= 0 {
		return a[at].Value, true
	}
	return 0, false
}

// add adds others so many times.
func (a *amounts) add(others amounts, times int64) {
	had := len(*a)
	for i := range others {
		o := &others[i]
		if at := (*a)[:had].find(o.Name); at >= 0 {
			(*a)[at].Value += times * o.Value
		} else {
			*a = append(*a, Amount{o.Name, times * o.Value})
		}
	}
	if len(*a) > had {
		slices.SortFunc(*a, byName)
	}
}

// allocatable is what a node has for pods. One that says nothing of what is allocatable has its
// capacity.
func allocatable(n *v1.Node) amounts {
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

// requests of a pod, its sidecars and its overhead included, without those of nothing, added to
// what is empty and may have room.
func requests(out amounts, p *v1.Pod) amounts {
	var list v1.ResourceList
	if s := &p.Spec; len(s.Containers) == 1 && len(s.InitContainers) == 0 && s.Overhead == nil &&
		s.Resources == nil {
		// there is nothing to add up, and no need of a list of its own for each pod
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

// Request is what a pod requests of a resource; of pods it is one.
func (p *Pod) Request(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	value, _ := p.requests.of(name)
	return value
}

// Requested is what the pods on a node request of a resource, those that have ended aside.
func (n *Node) Requested(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return int64(n.running)
	}
	value, _ := n.requested.of(name)
	return value
}

// Resources are the names of what pods on a node request.
func (n *Node) Resources() (out []v1.ResourceName) {
	for _, a := range n.requested {
		if a.Value > 0 {
			out = append(out, a.Name)
		}
	}
	return out
}

// Allocatable is what there is of a resource for pods, and whether that is known.
func (n *Node) Allocatable(name v1.ResourceName) (int64, bool) { return n.whole.of(name) }

// lacks names the first resource of which a node has not enough for a pod; empty: it has room. What
// a node does not say of the number of pods it takes does not refuse one; any other resource that
// it does not name it has not.
func (n *Node) lacks(p *Pod) v1.ResourceName {
	if most, ok := n.Allocatable(v1.ResourcePods); ok && int64(n.running)+1 > most {
		return v1.ResourcePods
	}
	for _, a := range *p.requests {
		if there, _ := n.Allocatable(a.Name); n.Requested(a.Name)+a.Value > there {
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
