package lifecycle

import (
	"cmp"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster"
)

// silenceConditions lists the conditions that become Unknown when a node is silent. The kubelet
// does not post NetworkUnavailable (pkg/controller/nodelifecycle/node_lifecycle_controller.go
// tryUpdateNodeHealth, 1.37.2).
var silenceConditions = []v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure,
	v1.NodePIDPressure, v1.NodeReady}

// Reasons and messages of conditions that become Unknown, as upstream.
const (
	reasonUnknown  = "NodeStatusUnknown"
	messageUnknown = "Kubelet stopped posting node status."
	reasonNever    = "NodeStatusNeverUpdated"
	messageNever   = "Kubelet never posted node status."
)

// evaluate determines the health of a node.
func (s *step) evaluate(n *v1.Node) view {
	r := s.recordOf(n)
	ready := condition(n, v1.NodeReady)
	s.updateHeard(n, r, ready, s.leaseOf(n, r))
	v := view{node: n, zone: ZoneOf(n), record: r, counted: !s.excluded(n)}
	grace := s.config.NodeStartupGracePeriod
	if ready != nil {
		v.ready, v.reported, grace = ready.Status, ready.Status, s.config.NodeMonitorGracePeriod
	}
	deadline := r.heardAt.Add(grace)
	certain := deadline
	if ready != nil {
		certain = latest(deadline, s.seen.WatchedSince.Add(min(grace, cluster.ReturnPeriod)))
	}
	if v.ready == v1.ConditionUnknown {
		if r.silentSince.IsZero() {
			r.silentSince = s.silenceStart(r, ready, deadline)
		}
		return v
	}
	if !s.now.After(certain) {
		r.silentSince = time.Time{}
		s.wakeAt(certain)
		return v
	}
	if !s.seen.Read.IsZero() && !s.seen.Read.After(certain) {
		// The node may have been in contact since the last read: only a current read proves
		// silence.
		s.out.StaleRead = true
		return v
	}
	if r.silentSince.IsZero() {
		r.silentSince = deadline
	}
	v.changes = s.unknownConditions(n)
	v.wentSilent = v.reported != ""
	v.ready = v1.ConditionUnknown
	return v
}

// statusPeriod is the kubelet's nodeStatusReportFrequency, 5m, with a margin.
const statusPeriod = 6 * time.Minute

// leaseOf returns the Lease that the node's kubelet renews, or nil. A kubelet that registers its
// node again keeps the Lease of the old node until the garbage collector deletes it, so that Lease
// counts while the status is posted. r may be nil.
func (s *step) leaseOf(n *v1.Node, r *record) *coordination.Lease {
	l := s.seen.Leases[n.Name]
	if l != nil && OfOtherNode(l, n) && (r == nil || !s.statusPosted(r)) {
		return nil
	}
	return l
}

// statusPosted reports whether the status of the node is posted.
func (s *step) statusPosted(r *record) bool { return s.now.Sub(r.statusAt) <= statusPeriod }

// OfOtherNode reports whether the owner of a Lease is another node of the same name. The kubelet of
// a deleted node still renews its Lease, which does not keep a new node alive
// (kubernetes#116485). Upstream accepts each Lease of that name.
func OfOtherNode(l *coordination.Lease, n *v1.Node) bool {
	other := false
	for i := range l.OwnerReferences {
		if o := &l.OwnerReferences[i]; o.Kind == "Node" {
			if o.UID == n.UID {
				return false
			}
			other = true
		}
	}
	return other
}

// silenceStart returns when a node with Ready Unknown fell silent: for a new record at the
// condition's transition, otherwise at the deadline, or now if that is earlier.
func (s *step) silenceStart(r *record, ready *v1.NodeCondition, deadline time.Time) time.Time {
	switch at := ready.LastTransitionTime.Time; {
	case r.isNew && !at.IsZero():
		return s.fromServerTime(at)
	case s.now.After(deadline):
		return deadline
	}
	return s.now
}

// updateHeard records the last contact with a node. Any change of the heartbeat or the renewal time
// is a contact, even a change to an earlier time: a node with a corrected clock is alive.
func (s *step) updateHeard(n *v1.Node, r *record, ready *v1.NodeCondition, lease *coordination.Lease) {
	heardAt := r.heardAt
	beatArrived, leaseArrived := s.arrivals(n.Name)
	switch {
	case r.isNew:
		heardAt = s.initialHeard(n, ready, lease)
	case r.hasReady != (ready != nil), ready != nil && !r.heartbeat.Equal(&ready.LastHeartbeatTime):
		heardAt, r.statusAt = latest(heardAt, beatArrived), beatArrived
	}
	if r.hasReady = ready != nil; r.hasReady {
		r.heartbeat = ready.LastHeartbeatTime
	}
	if lease != nil {
		var renew metav1.MicroTime
		if lease.Spec.RenewTime != nil {
			renew = *lease.Spec.RenewTime
		}
		switch {
		case r.isNew: // initialHeard has evaluated it
		case !r.hasLease:
			heardAt = latest(heardAt, s.lastWritten(lease.ManagedFields))
		case !r.renewTime.Equal(&renew):
			heardAt = latest(heardAt, leaseArrived)
		}
		r.hasLease, r.renewTime = true, renew
	}
	if heardAt.After(r.heardAt) {
		r.announced = false
	}
	r.heardAt = heardAt
}

// arrivals returns when the node's current heartbeat and Lease arrived.
func (s *step) arrivals(name string) (beat, lease time.Time) {
	if s.seen.Arrivals == nil {
		return s.now, s.now
	}
	beat, lease = s.seen.Arrivals(name)
	return s.notAfterNow(beat), s.notAfterNow(lease)
}

// initialHeard returns the last contact with a node that has no record yet. It uses the API
// server's timestamps on the Lease, on the status that the kubelet wrote, and on the node itself,
// because the Lease may belong to an earlier node of that name. A renewal that was watched counts from
// its arrival: the clocks of several API servers may differ. Without a Lease it returns now, as
// upstream, or the node's creation if the node never posted a status.
func (s *step) initialHeard(n *v1.Node, ready *v1.NodeCondition,
	lease *coordination.Lease) time.Time {
	heardAt := s.fromServerTime(n.CreationTimestamp.Time)
	switch {
	case lease != nil:
		heardAt = latest(heardAt, s.lastWritten(lease.ManagedFields))
		watched := s.seen.WatchedSince
		if _, arrived := s.arrivals(n.Name); !watched.IsZero() && arrived.After(watched) {
			heardAt = latest(heardAt, arrived)
		}
	case ready != nil:
		return s.now
	}
	if ready == nil {
		return heardAt
	}
	for i := range n.ManagedFields {
		if f := &n.ManagedFields[i]; f.Manager == "kubelet" && f.Subresource == "status" &&
			f.Time != nil {
			heardAt = latest(heardAt, s.fromServerTime(f.Time.Time))
		}
	}
	return heardAt
}

// lastWritten returns when the API server last wrote an object, or now if managedFields has no
// time.
func (s *step) lastWritten(fields []metav1.ManagedFieldsEntry) (at time.Time) {
	for i := range fields {
		if t := fields[i].Time; t != nil {
			at = latest(at, s.fromServerTime(t.Time))
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

// unknownConditions returns the conditions of a silent node that must change.
func (s *step) unknownConditions(n *v1.Node) (out []v1.NodeCondition) {
	for _, t := range silenceConditions {
		c := condition(n, t)
		switch {
		case c == nil:
			out = append(out, v1.NodeCondition{
				Type: t, Status: v1.ConditionUnknown, Reason: reasonNever, Message: messageNever,
				LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: s.serverNow(),
			})
		case c.Status != v1.ConditionUnknown:
			changed := *c
			changed.Status, changed.Reason, changed.Message = v1.ConditionUnknown, reasonUnknown,
				messageUnknown
			changed.LastTransitionTime = s.serverNow()
			out = append(out, changed)
		}
	}
	slices.SortFunc(out, func(a, b v1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	return out
}

// silent reports whether Ready is or becomes Unknown because the kubelet, which posted a status
// before, is silent.
func (v *view) silent() bool {
	if len(v.changes) > 0 {
		return v.wentSilent
	}
	return v.ready == v1.ConditionUnknown && condition(v.node, v1.NodeReady).Reason == reasonUnknown
}

// conditions returns the node's conditions with the changes applied. The caller must not modify
// them.
func (v *view) conditions() []v1.NodeCondition {
	if len(v.changes) == 0 {
		return v.node.Status.Conditions
	}
	out := slices.Clone(v.node.Status.Conditions)
	for _, changed := range v.changes {
		if i := slices.IndexFunc(out,
			func(c v1.NodeCondition) bool { return c.Type == changed.Type }); i >= 0 {
			out[i] = changed
		} else {
			out = append(out, changed)
		}
	}
	return out
}
