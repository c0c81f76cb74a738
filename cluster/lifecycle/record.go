package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// record is what is remembered of a node. It goes with the node.
type record struct {
	uid   types.UID
	first bool      // this is the step that has seen it first
	heard time.Time // of it, by our own clock or the API server's, never by the node's

	// What has to change for the node to have been heard of.
	ready    bool // it had a condition Ready
	beat     metav1.Time
	leased   bool
	renew    metav1.MicroTime
	pressure map[v1.NodeConditionType]beat

	failed time.Time // since when it is not ready; zero: it is, or says nothing of it
	silent time.Time // since when it is silent; zero: it is not
	drawn  bool      // it has had a token for its NoExecute taint
	clear  bool      // its NoExecute taints are to go since all zones fell at once
	said   bool      // that it fell silent

	writes [kinds]cluster.Attempt
	marks  map[types.UID]*cluster.Attempt // pods to be marked
	known  map[types.UID]struct{}         // pods that were there while it was not ready; nil: it is
}

// beat is a heartbeat of a condition, and when it was heard.
type beat struct {
	at    metav1.Time
	heard time.Time
}

// remember finds the record of a node, or makes one.
func (s *step) remember(n *v1.Node) *record {
	r := s.records[n.Name]
	if r == nil {
		r = &record{uid: n.UID, first: true, marks: map[types.UID]*cluster.Attempt{},
			pressure: map[v1.NodeConditionType]beat{}}
		s.records[n.Name] = r
	}
	return r
}

// past is a time of elsewhere, which is not later than now.
func (s *step) past(at time.Time) time.Time {
	if at.After(s.now) {
		return s.now
	}
	return at
}

// stamp is a time of the API server's by the step's clock.
func (s *step) stamp(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return s.past(at.Add(-s.seen.Ahead))
}

// condition finds a node's condition; nil: it has none of the type.
func condition(n *v1.Node, t v1.NodeConditionType) *v1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
