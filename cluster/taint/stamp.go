package taint

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// sight is a taint of a node that does not say since when it is there.
type sight struct {
	node       types.UID
	name       string
	key, value string
}

// taintsOf are the taints of a node that evict, each with since when it is there. Where it does not
// say so, as no taint does that a person sets, it is when it was seen first. A time that is to come
// would be a mistake of some clock, and counts as none.
func (s *step) taintsOf(n *v1.Node) (out []v1.Taint) {
	stamp := Stamp{Node: n.Name, UID: n.UID}
	for _, t := range n.Spec.Taints {
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		if t.TimeAdded.IsZero() || t.TimeAdded.After(s.now) {
			at := s.firstSight(sight{n.UID, n.Name, t.Key, t.Value})
			t.TimeAdded = &metav1.Time{Time: at}
			stamp.Taints = append(stamp.Taints, t)
		}
		out = append(out, t)
	}
	if len(stamp.Taints) > 0 {
		s.stamp(stamp)
	}
	return out
}

func (s *step) firstSight(of sight) time.Time {
	at, known := s.Core.sights[of]
	if !known {
		at = s.now
	}
	s.sights[of] = at
	return at
}

// stamp has a node's taints stamped.
func (s *step) stamp(stamp Stamp) {
	s.stamped[stamp.UID] = true
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
