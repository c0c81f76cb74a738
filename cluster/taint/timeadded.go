package taint

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// taintKey identifies a NoExecute taint of a node by its TimeAdded, which a taint keeps that replaces
// another one, or by key and value if it has none.
type taintKey struct {
	node       types.UID
	name       string
	timeAdded  int64 // in Unix time
	key, value string
}

func keyOf(n *v1.Node, t *v1.Taint) taintKey {
	if t.TimeAdded.IsZero() {
		return taintKey{node: n.UID, name: n.Name, key: t.Key, value: t.Value}
	}
	return taintKey{node: n.UID, name: n.Name, timeAdded: t.TimeAdded.Unix()}
}

// stampTaints returns a copy of the node's NoExecute taints, each with its time on the caller's clock,
// and requests a Stamp for those without TimeAdded. Taints that a person sets have none: their
// tolerations count from the first Step that saw the taint. A TimeAdded in the future is a clock
// error and is ignored.
func (s *step) stampTaints(n *v1.Node) (out []v1.Taint) {
	stamp := Stamp{Node: n.Name, UID: n.UID}
	for _, t := range n.Spec.Taints {
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		at := s.addedAt(s.now, n, &t)
		s.since[keyOf(n, &t)] = at
		if t.TimeAdded.IsZero() || t.TimeAdded.After(s.now.Add(s.skew)) {
			t.TimeAdded = &metav1.Time{Time: at.Add(s.skew)}
			stamp.Taints = append(stamp.Taints, t)
		}
		t.TimeAdded = &metav1.Time{Time: at}
		out = append(out, t)
	}
	if len(stamp.Taints) > 0 {
		s.requestStamp(stamp)
	}
	return out
}

// addedAt returns when a taint was added, on the caller's clock, at the latest now. Step keeps the
// first answer.
func (c *Core) addedAt(now time.Time, n *v1.Node, t *v1.Taint) time.Time {
	if at, seen := c.since[keyOf(n, t)]; seen {
		return at
	}
	if stated := t.TimeAdded; !stated.IsZero() && stated.Add(-c.skew).Before(now) {
		return stated.Add(-c.skew)
	}
	return now
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
