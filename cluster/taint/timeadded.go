package taint

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// taintKey identifies a NoExecute taint without a valid TimeAdded.
type taintKey struct {
	node       types.UID
	name       string
	key, value string
}

// stampTaints returns a copy of the node's NoExecute taints, each with a TimeAdded, and requests a
// Stamp for those without one. Taints that a person sets have no TimeAdded: their tolerations count
// from the first Step that saw the taint. A TimeAdded in the future is a clock error and is
// ignored.
func (s *step) stampTaints(n *v1.Node) (out []v1.Taint) {
	stamp := Stamp{Node: n.Name, UID: n.UID}
	for _, t := range n.Spec.Taints {
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		if t.TimeAdded.IsZero() || t.TimeAdded.After(s.now) {
			at := s.firstSeenAt(taintKey{n.UID, n.Name, t.Key, t.Value})
			t.TimeAdded = &metav1.Time{Time: at}
			stamp.Taints = append(stamp.Taints, t)
		}
		t.TimeAdded = s.younger(t.TimeAdded)
		out = append(out, t)
	}
	if len(stamp.Taints) > 0 {
		s.requestStamp(stamp)
	}
	return out
}

// SetAhead records that the caller's clock is ahead of the clock that dated taints before since.
// These count as younger by ahead: otherwise toleration periods would end early.
func (c *Core) SetAhead(ahead time.Duration, since time.Time) { c.ahead, c.aheadSince = ahead, since }

// younger returns the time of a taint on the caller's clock.
func (c *Core) younger(added *metav1.Time) *metav1.Time {
	if c.ahead == 0 || !added.Time.Before(c.aheadSince) {
		return added
	}
	at := added.Add(c.ahead)
	if at.After(c.aheadSince) {
		at = c.aheadSince
	}
	return &metav1.Time{Time: at}
}

func (s *step) firstSeenAt(key taintKey) time.Time {
	at, seen := s.Core.firstSeen[key]
	if !seen {
		at = s.now
	}
	s.firstSeen[key] = at
	return at
}

// requestStamp adds a Stamp to the actions, unless one for this node is in flight or backing off.
func (s *step) requestStamp(stamp Stamp) {
	s.stampedNodes[stamp.UID] = true
	attempt := s.stamps[stamp.UID]
	if attempt == nil {
		attempt = &cluster.Attempt{}
		s.stamps[stamp.UID] = attempt
	}
	if attempt.Begin(s.now) {
		s.out.Stamps = append(s.out.Stamps, stamp)
		return
	}
	cluster.Earliest(&s.out.Next, attempt.Next(s.now))
}
