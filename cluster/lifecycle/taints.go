package lifecycle

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// byCondition are the taints with the effect NoSchedule that a condition stands for.
var byCondition = map[v1.NodeConditionType]map[v1.ConditionStatus]string{
	v1.NodeReady: {v1.ConditionFalse: v1.TaintNodeNotReady,
		v1.ConditionUnknown: v1.TaintNodeUnreachable},
	v1.NodeMemoryPressure:     {v1.ConditionTrue: v1.TaintNodeMemoryPressure},
	v1.NodeDiskPressure:       {v1.ConditionTrue: v1.TaintNodeDiskPressure},
	v1.NodePIDPressure:        {v1.ConditionTrue: v1.TaintNodePIDPressure},
	v1.NodeNetworkUnavailable: {v1.ConditionTrue: v1.TaintNodeNetworkUnavailable},
}

// noSchedule are the keys that are ours with the effect NoSchedule. Of other effects they are
// somebody else's.
var noSchedule = []string{
	v1.TaintNodeNotReady, v1.TaintNodeUnreachable, v1.TaintNodeMemoryPressure,
	v1.TaintNodeDiskPressure, v1.TaintNodePIDPressure,
	v1.TaintNodeNetworkUnavailable, v1.TaintNodeUnschedulable,
}

// noExecute reports whether a taint is one of the two that evict and are ours.
func noExecute(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoExecute && (t.Key == v1.TaintNodeNotReady ||
		t.Key == v1.TaintNodeUnreachable)
}

func has(n *v1.Node, key string, effect v1.TaintEffect) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == key && t.Effect == effect
	})
}

// secondLook is how long after the first sight of a node its taints may be taken away, where
// nothing asks for a step before.
const secondLook = time.Second

// change is what becomes of a node's taints.
type change struct {
	node        *v1.Node
	add, remove []v1.Taint
}

// want has a node have a taint, or not.
func (c *change) want(key string, effect v1.TaintEffect, wanted bool) {
	switch is := has(c.node, key, effect); {
	case wanted && !is:
		c.add = append(c.add, v1.Taint{Key: key, Effect: effect})
	case !wanted && is:
		c.remove = append(c.remove, v1.Taint{Key: key, Effect: effect})
	}
}

// writeTaints finds what a node's taints lack, and what they have too many.
func (s *step) writeTaints(v *view) {
	c := &change{node: v.node}
	conditions := v.conditionsOf()
	var keys []string
	for i := range conditions {
		if key := byCondition[conditions[i].Type][conditions[i].Status]; key != "" {
			keys = append(keys, key)
		}
	}
	if v.node.Spec.Unschedulable {
		keys = append(keys, v1.TaintNodeUnschedulable)
	}
	for _, key := range noSchedule {
		c.want(key, v1.TaintEffectNoSchedule, slices.Contains(keys, key))
	}
	s.pressures(c, v, conditions)
	drawn := s.executes(c, v)
	// A node whose conditions do not say why it has its taints would be a riddle: they come first.
	if len(c.add)+len(c.remove) == 0 || v.unsaid || !s.begin(v.record, WriteTaints) {
		return
	}
	added := metav1.Time{Time: s.now}
	for i := range c.add {
		if c.add[i].TimeAdded == nil {
			c.add[i].TimeAdded = &added
		}
	}
	for _, list := range [][]v1.Taint{c.add, c.remove} {
		slices.SortFunc(list, func(a, b v1.Taint) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect))
		})
	}
	s.out.Taints = append(s.out.Taints, Taints{
		Node: v.node.Name, UID: v.node.UID, Add: c.add, Remove: c.remove, Evicted: drawn,
		Failed: v.record.failed,
		Fallen: v.record.clear && v.ready != v1.ConditionTrue,
	})
}

// executes says which of the two taints that evict a node is to have, and whether that takes a
// token. One is swapped for the other at once. At first sight they stay as they are: whoever has
// put them had seen more.
func (s *step) executes(c *change, v *view) (drawn bool) {
	r := v.record
	key, opposite := wanted(v.ready)
	tainted := has(v.node, v1.TaintNodeNotReady, v1.TaintEffectNoExecute) ||
		has(v.node, v1.TaintNodeUnreachable, v1.TaintEffectNoExecute)
	switch {
	case !tainted:
		r.clear = false
		if key == "" || !r.drawn || !s.waits(v) {
			return false
		}
		c.want(key, v1.TaintEffectNoExecute, true)
		return true
	case r.first:
		if v.ready != "" && !has(v.node, key, v1.TaintEffectNoExecute) {
			s.again(s.now.Add(secondLook))
		}
	case r.clear, v.ready == v1.ConditionTrue:
		c.want(v1.TaintNodeNotReady, v1.TaintEffectNoExecute, false)
		c.want(v1.TaintNodeUnreachable, v1.TaintEffectNoExecute, false)
	case key != "" && has(v.node, opposite, v1.TaintEffectNoExecute):
		c.swap(opposite, key, s.now)
	}
	return false
}

// swap has a node have one of the two taints that evict in place of the other. It has not been
// ready in between: its pods have borne that since the one that goes was added, and a node that is
// now silent and now not ready would else keep them for ever. (Upstream's timers of pods, which
// remember when they began, have the same effect until a restart:
// pkg/controller/tainteviction/taint_eviction.go processPodOnNode, 1.36.) What that means for a pod
// that bears one of them for longer than the other is taint's to say.
func (c *change) swap(from, to string, now time.Time) {
	c.want(to, v1.TaintEffectNoExecute, true)
	c.want(from, v1.TaintEffectNoExecute, false)
	of := func(key string) func(v1.Taint) bool {
		return func(t v1.Taint) bool { return t.Key == key && t.Effect == v1.TaintEffectNoExecute }
	}
	since := c.node.Spec.Taints[slices.IndexFunc(c.node.Spec.Taints, of(from))].TimeAdded
	if !since.IsZero() && !since.After(now) {
		c.add[slices.IndexFunc(c.add, of(to))].TimeAdded = since.DeepCopy()
	}
}
