package lifecycle

import (
	"cmp"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// silenced are the conditions that silence makes Unknown. NetworkUnavailable is not the kubelet's
// (pkg/controller/nodelifecycle/node_lifecycle_controller.go tryUpdateNodeHealth, 1.36.3).
var silenced = []v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure,
	v1.NodePIDPressure, v1.NodeReady}

// What silence is called in a condition.
const (
	reasonUnknown  = "NodeStatusUnknown"
	messageUnknown = "Kubelet stopped posting node status."
	reasonNever    = "NodeStatusNeverUpdated"
	messageNever   = "Kubelet never posted node status."
)

// look is how a node is.
func (s *step) look(n *v1.Node) view {
	r := s.remember(n)
	ready := condition(n, v1.NodeReady)
	s.hear(n, r, ready, s.seen.Leases[n.Name])
	v := view{node: n, zone: ZoneOf(n), record: r, counted: !s.excluded(n)}
	grace := s.config.NodeStartupGracePeriod
	if ready != nil {
		v.ready, v.was, grace = ready.Status, ready.Status, s.config.NodeMonitorGracePeriod
	}
	deadline := r.heard.Add(grace)
	if v.ready == v1.ConditionUnknown {
		if r.silent.IsZero() {
			r.silent = s.since(r, ready, deadline)
		}
		return v
	}
	if !s.now.After(deadline) {
		r.silent = time.Time{}
		s.again(deadline)
		return v
	}
	if !s.seen.Read.IsZero() && !s.seen.Read.After(deadline) {
		// it may have been heard of since: whoever hears nothing cannot say that another is silent
		s.out.Unread = true
		return v
	}
	if r.silent.IsZero() {
		r.silent = deadline
	}
	v.changed = s.unknown(n)
	v.fell = v.was == v1.ConditionTrue
	v.ready = v1.ConditionUnknown
	return v
}

// since is when a node began to be what its condition says: at first sight the condition knows,
// later it is as late as it can be.
func (s *step) since(r *record, ready *v1.NodeCondition, deadline time.Time) time.Time {
	switch at := ready.LastTransitionTime.Time; {
	case r.first && !at.IsZero():
		return s.past(at)
	case s.now.After(deadline):
		return deadline
	}
	return s.now
}

// hear notes when a node was heard of last. Heartbeats and renewals tell by being others than
// before, also where they go back: a node whose clock was set right has not died of it.
func (s *step) hear(n *v1.Node, r *record, ready *v1.NodeCondition, lease *coordination.Lease) {
	heard := r.heard
	beaten, leased := s.came(n.Name)
	switch {
	case r.first:
		heard = s.firstHeard(n, ready, lease)
	case r.ready != (ready != nil), ready != nil && !r.beat.Equal(&ready.LastHeartbeatTime):
		heard = latest(heard, beaten)
	}
	if r.ready = ready != nil; r.ready {
		r.beat = ready.LastHeartbeatTime
	}
	if lease != nil {
		var renew metav1.MicroTime
		if lease.Spec.RenewTime != nil {
			renew = *lease.Spec.RenewTime
		}
		switch {
		case r.first: // firstHeard has looked at it
		case !r.leased:
			heard = latest(heard, s.stamped(lease.ManagedFields))
		case !r.renew.Equal(&renew):
			heard = latest(heard, leased)
		}
		r.leased, r.renew = true, renew
	}
	if heard.After(r.heard) {
		r.said = false
	}
	r.heard = heard
}

// came is when a node's heartbeat, and its lease, came to be as they are.
func (s *step) came(name string) (beat, lease time.Time) {
	if s.seen.Came == nil {
		return s.now, s.now
	}
	beat, lease = s.seen.Came(name)
	return s.past(beat), s.past(lease)
}

// firstHeard is when a node was heard of that nobody has watched: by the API server's stamp on its
// lease, on the status that its kubelet wrote, or on the node itself, whose name's lease may be
// that of another one. Where there is no lease it is now, as upstream has it, or of a node that has
// never said anything its creation.
func (s *step) firstHeard(n *v1.Node, ready *v1.NodeCondition,
	lease *coordination.Lease) time.Time {
	heard := s.stamp(n.CreationTimestamp.Time)
	switch {
	case lease != nil:
		heard = latest(heard, s.stamped(lease.ManagedFields))
	case ready != nil:
		return s.now
	}
	if ready == nil {
		return heard
	}
	for i := range n.ManagedFields {
		if f := &n.ManagedFields[i]; f.Manager == "kubelet" && f.Subresource == "status" &&
			f.Time != nil {
			heard = latest(heard, s.stamp(f.Time.Time))
		}
	}
	return heard
}

// stamped is when the API server wrote an object last; now, where it does not say.
func (s *step) stamped(fields []metav1.ManagedFieldsEntry) (at time.Time) {
	for i := range fields {
		if t := fields[i].Time; t != nil {
			at = latest(at, s.stamp(t.Time))
		}
	}
	if at.IsZero() {
		return s.now
	}
	return at
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// unknown are the conditions of a silent node that change.
func (s *step) unknown(n *v1.Node) (out []v1.NodeCondition) {
	for _, t := range silenced {
		c := condition(n, t)
		switch {
		case c == nil:
			out = append(out, v1.NodeCondition{
				Type: t, Status: v1.ConditionUnknown, Reason: reasonNever, Message: messageNever,
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: metav1.Time{Time: s.now},
			})
		case c.Status != v1.ConditionUnknown:
			changed := *c
			changed.Status, changed.Reason, changed.Message = v1.ConditionUnknown, reasonUnknown,
				messageUnknown
			changed.LastTransitionTime = metav1.Time{Time: s.now}
			out = append(out, changed)
		}
	}
	slices.SortFunc(out, func(a, b v1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	return out
}

// conditionsOf are a node's conditions after what silence changes. They are not to be written to.
func (v *view) conditionsOf() []v1.NodeCondition {
	if len(v.changed) == 0 {
		return v.node.Status.Conditions
	}
	out := slices.Clone(v.node.Status.Conditions)
	for _, changed := range v.changed {
		if i := slices.IndexFunc(out,
			func(c v1.NodeCondition) bool { return c.Type == changed.Type }); i >= 0 {
			out[i] = changed
		} else {
			out = append(out, changed)
		}
	}
	return out
}
