package lifecycle

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// wanted is the NoExecute taint that a node's condition Ready asks for, and the one that it
// excludes; empty: it asks for none.
func wanted(ready v1.ConditionStatus) (key, opposite string) {
	switch ready {
	case v1.ConditionFalse:
		return v1.TaintNodeNotReady, v1.TaintNodeUnreachable
	case v1.ConditionUnknown:
		return v1.TaintNodeUnreachable, v1.TaintNodeNotReady
	}
	return "", ""
}

// fail notes since when a node is not ready.
func (s *step) fail(v *view) {
	r := v.record
	key, _ := wanted(v.ready)
	switch {
	case key == "":
		r.failed, r.drawn = time.Time{}, false
	case !r.failed.IsZero():
	case v.ready == v1.ConditionUnknown:
		r.failed = r.silent
	case r.first && !condition(v.node, v1.NodeReady).LastTransitionTime.IsZero():
		r.failed = s.past(condition(v.node, v1.NodeReady).LastTransitionTime.Time)
	default:
		r.failed = s.now
	}
	if key != "" && !s.waits(v) {
		r.drawn = false // it has its taint: when it loses that, another token is due
	}
}

// waits reports whether a node is to have a NoExecute taint and has neither of the two.
func (s *step) waits(v *view) bool {
	key, opposite := wanted(v.ready)
	return key != "" && !has(v.node, key, v1.TaintEffectNoExecute) &&
		!has(v.node, opposite, v1.TaintEffectNoExecute) &&
		!(s.config.LeaveExcluded && !v.counted)
}

// order is that of nodes that wait for a token: that in which they failed, but those whose write
// has failed come last. Else a few that nobody lets be tainted would have all tokens of a zone, try
// by try.
func order(a, b *record, nodes int) int {
	late := func(r *record) int {
		if r.writes[WriteTaints].Failed() || r.writes[WriteStatus].Failed() {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(late(a), late(b)), a.failed.Compare(b.failed), nodes)
}

// drawTokens gives tokens to nodes that wait for one, in each zone in their order. None is given
// for a node whose write could not be made now. A write that failed is tried again on its token,
// which counts from then, until another node has had one since: the rate is that of taints, not of
// tokens. While the rate of a zone is 0 one that was given for a write that has failed is void.
func (s *step) drawTokens() {
	waiting := map[string][]*view{}
	for i := range s.views {
		v := &s.views[i]
		key := v.zone
		if s.zones[key].bucket.Rate() == 0 {
			v.record.drawn = false
		}
		if s.waits(v) {
			s.zones[key].waiting++
			waiting[key] = append(waiting[key], v)
		}
	}
	left := map[string]bool{}
	for key, queue := range waiting {
		slices.SortFunc(queue, func(a, b *view) int {
			return order(a.record, b.record, cmp.Compare(a.node.Name, b.node.Name))
		})
		z := s.zones[key]
		for _, v := range queue {
			switch r := v.record; {
			case !s.writable(v):
			case r.drawn && z.taker == v.node.UID:
				z.bucket.Again(s.now)
			case z.bucket.Take(s.now):
				r.drawn, z.taker = true, v.node.UID
			default:
				r.drawn, left[key] = false, true
				s.again(z.bucket.Next(s.now))
			}
		}
	}
	for key, z := range s.zones {
		z.bucket.Await(left[key])
	}
}

// writable reports whether a node's taints may be written in this step: its conditions come before
// them.
func (s *step) writable(v *view) bool {
	may := func(kind Kind) bool {
		next := v.record.writes[kind].Next(s.now)
		return !next.IsZero() && !next.After(s.now)
	}
	return may(WriteTaints) && (len(v.changed) == 0 || may(WriteStatus))
}
