package model

import (
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
)

// indexedSelector is a selector with a label value that every matching pod has; label empty: none
// is known.
type indexedSelector struct {
	selector     labels.Selector
	label, value string
}

func newIndexedSelector(s labels.Selector) indexedSelector {
	out := indexedSelector{selector: s}
	requirements, _ := s.Requirements()
	for i := range requirements {
		r := &requirements[i]
		values := r.ValuesUnsorted()
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if len(values) == 1 {
				out.label, out.value = r.Key(), values[0]
				return out
			}
		}
	}
	return out
}

// index finds the pods of a namespace by a label value or an owner. Each part is built on first
// use and updated from then on.
type index struct {
	labels map[string]map[string]map[string][]*Pod // by namespace, label, value
	owners map[string]map[types.UID][]*Pod         // by namespace, UID
}

// selected returns the pods of a namespace that a selector may match, in no order. The caller
// must still apply the selector.
func (c *Cluster) selected(namespace string, s *indexedSelector) []*Pod {
	if s.label == "" {
		return c.pods[namespace]
	}
	byLabel := c.index.labels[namespace]
	if byLabel == nil {
		if c.index.labels == nil {
			c.index.labels = map[string]map[string]map[string][]*Pod{}
		}
		byLabel = map[string]map[string][]*Pod{}
		c.index.labels[namespace] = byLabel
	}
	byValue := byLabel[s.label]
	if byValue == nil {
		byValue = map[string][]*Pod{}
		byLabel[s.label] = byValue
		for _, p := range c.pods[namespace] {
			if value, ok := p.Labels[s.label]; ok {
				byValue[value] = append(byValue[value], p)
			}
		}
	}
	return byValue[s.value]
}

// ownedBy returns the pods of a namespace with an owner reference to the UID.
func (c *Cluster) ownedBy(namespace string, owner *metav1.OwnerReference) []*Pod {
	byOwner := c.index.owners[namespace]
	if byOwner == nil {
		if c.index.owners == nil {
			c.index.owners = map[string]map[types.UID][]*Pod{}
		}
		byOwner = map[types.UID][]*Pod{}
		c.index.owners[namespace] = byOwner
		for _, p := range c.pods[namespace] {
			for uid := range ownersOf(p.Pod) {
				byOwner[uid] = append(byOwner[uid], p)
			}
		}
	}
	return byOwner[owner.UID]
}

// ownersOf iterates over the UIDs of a pod's owners without duplicates.
func ownersOf(p *v1.Pod) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		if len(p.OwnerReferences) > smallCount {
			var owners distinct[types.UID]
			for i := range p.OwnerReferences {
				owners.add(p.OwnerReferences[i].UID)
			}
			slices.Values(owners.list)(yield)
			return
		}
		for i := range p.OwnerReferences {
			uid := p.OwnerReferences[i].UID
			before := func(o metav1.OwnerReference) bool { return o.UID == uid }
			if !slices.ContainsFunc(p.OwnerReferences[:i], before) && !yield(uid) {
				return
			}
		}
	}
}

// distinct is a list without duplicates. It searches short lists and uses a map for longer ones:
// tenants may create lists of any length.
type distinct[T comparable] struct {
	list []T
	seen map[T]bool // nil: the list is short
}

const smallCount = 16

func (d *distinct[T]) add(v T) {
	if d.seen == nil && len(d.list) < smallCount {
		if !slices.Contains(d.list, v) {
			d.list = append(d.list, v)
		}
		return
	}
	if d.seen == nil {
		d.seen = make(map[T]bool, 2*smallCount)
		for _, item := range d.list {
			d.seen[item] = true
		}
	}
	if !d.seen[v] {
		d.seen[v] = true
		d.list = append(d.list, v)
	}
}

func (x *index) put(p *Pod) {
	x.update(p, func(pods []*Pod) []*Pod { return append(pods, p) })
}

func (x *index) remove(p *Pod) {
	x.update(p, func(pods []*Pod) []*Pod { return without(pods, p) })
}

// update applies change to each list that contains a pod.
func (x *index) update(p *Pod, change func([]*Pod) []*Pod) {
	for label, byValue := range x.labels[p.Namespace] {
		if value, ok := p.Labels[label]; ok {
			byValue[value] = change(byValue[value])
		}
	}
	if byOwner := x.owners[p.Namespace]; byOwner != nil {
		for uid := range ownersOf(p.Pod) {
			byOwner[uid] = change(byOwner[uid])
		}
	}
}
