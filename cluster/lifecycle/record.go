package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// record is the state kept for a node, until the node is deleted.
type record struct {
	uid     types.UID
	isNew   bool      // created in this step
	heardAt time.Time // the last contact, never by the node's clock

	// The last observed values: a change is a contact.
	hasReady  bool // the condition Ready existed
	heartbeat metav1.Time
	statusAt  time.Time // arrival of the heartbeat; for a new record, its creation
	hasLease  bool
	renewTime metav1.MicroTime
	pressure  map[v1.NodeConditionType]heartbeat

	notReadySince time.Time // zero: ready, or no condition Ready
	silentSince   time.Time // zero: not silent
	hasToken      bool      // for its NoExecute taint
	clearTaints   bool      // its NoExecute taints are removed because all zones are disrupted
	announced     bool      // the event NodeNotReady was added

	writes [kinds]cluster.Attempt
	marks  map[types.UID]*cluster.Attempt // pods to mark
	// pods present while the node was not ready; nil: it is ready
	knownPods map[types.UID]struct{}
	// the pods were selected for marks because the node is silent
	marksSilence bool
	// its condition was not yet written at that step: the caller drops these marks
	marksEarly bool
}

// heartbeat is the heartbeat time of a condition and its arrival.
type heartbeat struct {
	at      metav1.Time
	heardAt time.Time
}

// recordOf returns the record of a node and creates it if necessary.
func (s *step) recordOf(n *v1.Node) *record {
	r := s.records[n.Name]
	if r == nil {
		r = &record{uid: n.UID, isNew: true, statusAt: s.now, marks: map[types.UID]*cluster.Attempt{},
			pressure: map[v1.NodeConditionType]heartbeat{}}
		s.records[n.Name] = r
	}
	return r
}

// notAfterNow clamps a time of another clock to now.
func (s *step) notAfterNow(at time.Time) time.Time {
	if at.After(s.now) {
		return s.now
	}
	return at
}

// fromServerTime converts a time of the API server to the step's clock.
func (s *step) fromServerTime(at time.Time) time.Time {
	return s.notAfterNow(at.Add(-s.seen.ClockSkew))
}

// serverNow returns the step's time on the API server's clock.
func (s *step) serverNow() metav1.Time { return metav1.Time{Time: s.now.Add(s.seen.ClockSkew)} }

// condition returns a condition of the node, or nil.
func condition(n *v1.Node, t v1.NodeConditionType) *v1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
