package lifecycle

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// conditionTaints maps node conditions to the keys of their NoSchedule taints.
var conditionTaints = map[v1.NodeConditionType]map[v1.ConditionStatus]string{
	v1.NodeReady: {v1.ConditionFalse: v1.TaintNodeNotReady,
		v1.ConditionUnknown: v1.TaintNodeUnreachable},
	v1.NodeMemoryPressure:     {v1.ConditionTrue: v1.TaintNodeMemoryPressure},
	v1.NodeDiskPressure:       {v1.ConditionTrue: v1.TaintNodeDiskPressure},
	v1.NodePIDPressure:        {v1.ConditionTrue: v1.TaintNodePIDPressure},
	v1.NodeNetworkUnavailable: {v1.ConditionTrue: v1.TaintNodeNetworkUnavailable},
}

// ownNoScheduleKeys lists the keys that this package manages with the effect NoSchedule. Taints
// with these keys and other effects belong to others.
var ownNoScheduleKeys = []string{
	v1.TaintNodeNotReady, v1.TaintNodeUnreachable, v1.TaintNodeMemoryPressure,
	v1.TaintNodeDiskPressure, v1.TaintNodePIDPressure,
	v1.TaintNodeNetworkUnavailable, v1.TaintNodeUnschedulable,
}

// Manages reports whether this package adds and removes the taint.
func Manages(t *v1.Taint) bool {
	return isOwnNoExecute(t) || t.Effect == v1.TaintEffectNoSchedule &&
		slices.Contains(ownNoScheduleKeys, t.Key)
}

// isOwnNoExecute reports whether this package manages the NoExecute taint.
func isOwnNoExecute(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoExecute && (t.Key == v1.TaintNodeNotReady ||
		t.Key == v1.TaintNodeUnreachable)
}

func hasTaint(n *v1.Node, key string, effect v1.TaintEffect) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == key && t.Effect == effect
	})
}

// recheckDelay is the delay after the first evaluation of a node before its NoExecute taints may be
// removed.
const recheckDelay = time.Second

// taintChange collects the taints to add to a node and to remove from it.
type taintChange struct {
	node        *v1.Node
	add, remove []v1.Taint
}

// want adds the taint if it is wanted and missing, and removes it if it is unwanted and present.
func (c *taintChange) want(key string, effect v1.TaintEffect, wanted bool) {
	switch present := hasTaint(c.node, key, effect); {
	case wanted && !present:
		c.add = append(c.add, v1.Taint{Key: key, Effect: effect})
	case !wanted && present:
		c.remove = append(c.remove, v1.Taint{Key: key, Effect: effect})
	}
}

// writeTaints compares the node's taints with those that it must have and requests the difference.
func (s *step) writeTaints(v *view) {
	c := &taintChange{node: v.node}
	conditions := v.conditions()
	var keys []string
	for i := range conditions {
		if key := conditionTaints[conditions[i].Type][conditions[i].Status]; key != "" {
			keys = append(keys, key)
		}
	}
	if v.node.Spec.Unschedulable {
		keys = append(keys, v1.TaintNodeUnschedulable)
	}
	for _, key := range ownNoScheduleKeys {
		c.want(key, v1.TaintEffectNoSchedule, slices.Contains(keys, key))
	}
	s.wantPressureTaints(c, v, conditions)
	usesToken := s.wantNoExecute(c, v)
	// Conditions are written before the taints that follow from them.
	if len(c.add)+len(c.remove) == 0 || v.statusPending || !s.begin(v.record, WriteTaints) {
		return
	}
	added := s.serverNow()
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
		Node: v.node.Name, UID: v.node.UID, Add: c.add, Remove: c.remove, Evicted: usesToken,
		NotReadySince: v.record.notReadySince,
		AllDisrupted:  v.record.clearTaints && v.ready != v1.ConditionTrue,
	})
}

// wantNoExecute decides on the two NoExecute taints of a node and reports whether that uses a
// token. Replacing one taint by the other uses no token. The first evaluation of a node removes and
// replaces no taint: the instance that added it had more information.
func (s *step) wantNoExecute(c *taintChange, v *view) (usesToken bool) {
	r := v.record
	key, opposite := readyTaint(v.ready)
	tainted := hasTaint(v.node, v1.TaintNodeNotReady, v1.TaintEffectNoExecute) ||
		hasTaint(v.node, v1.TaintNodeUnreachable, v1.TaintEffectNoExecute)
	switch {
	case !tainted:
		r.clearTaints = false
		if key == "" || !r.hasToken || !s.awaitsTaint(v) {
			return false
		}
		c.want(key, v1.TaintEffectNoExecute, true)
		return true
	case r.isNew:
		if v.ready != "" && !hasTaint(v.node, key, v1.TaintEffectNoExecute) {
			s.wakeAt(s.now.Add(recheckDelay))
		}
	case r.clearTaints, v.ready == v1.ConditionTrue:
		c.want(v1.TaintNodeNotReady, v1.TaintEffectNoExecute, false)
		c.want(v1.TaintNodeUnreachable, v1.TaintEffectNoExecute, false)
	case key != "" && hasTaint(v.node, opposite, v1.TaintEffectNoExecute):
		c.swap(opposite, key, s.serverNow().Time)
	}
	return false
}

// swap replaces one of the two NoExecute taints by the other and keeps its TimeAdded. The node was
// not ready in between, so the toleration periods of its pods started when the first taint was
// added. Otherwise the pods of a node that alternates between silent and not ready would stay
// forever.
//
// Upstream's pod timers keep their start and have the same effect until a restart
// (pkg/controller/tainteviction/taint_eviction.go processPodOnNode, 1.37). Package taint handles
// pods that tolerate one of the two for longer than the other.
func (c *taintChange) swap(from, to string, now time.Time) {
	c.want(to, v1.TaintEffectNoExecute, true)
	c.want(from, v1.TaintEffectNoExecute, false)
	hasKey := func(key string) func(v1.Taint) bool {
		return func(t v1.Taint) bool { return t.Key == key && t.Effect == v1.TaintEffectNoExecute }
	}
	since := c.node.Spec.Taints[slices.IndexFunc(c.node.Spec.Taints, hasKey(from))].TimeAdded
	// Upstream swaps them in two writes (SwapNodeControllerTaint): the node may have both.
	if i := slices.IndexFunc(c.add, hasKey(to)); i >= 0 && !since.IsZero() && !since.After(now) {
		c.add[i].TimeAdded = since.DeepCopy()
	}
}
