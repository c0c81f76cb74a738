package lifecycle

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// readyTaint returns the key of the NoExecute taint for a status of the condition Ready, and the
// key of the taint that it replaces. Both are empty if no taint is needed.
func readyTaint(ready v1.ConditionStatus) (key, opposite string) {
	switch ready {
	case v1.ConditionFalse:
		return v1.TaintNodeNotReady, v1.TaintNodeUnreachable
	case v1.ConditionUnknown:
		return v1.TaintNodeUnreachable, v1.TaintNodeNotReady
	}
	return "", ""
}

// updateNotReady records when a node became not ready.
func (s *step) updateNotReady(v *view) {
	r := v.record
	key, _ := readyTaint(v.ready)
	switch {
	case key == "":
		r.notReadySince, r.hasToken = time.Time{}, false
	case !r.notReadySince.IsZero():
	case v.ready == v1.ConditionUnknown:
		r.notReadySince = r.silentSince
	case r.isNew && !condition(v.node, v1.NodeReady).LastTransitionTime.IsZero():
		r.notReadySince = s.fromServerTime(condition(v.node, v1.NodeReady).LastTransitionTime.Time)
	default:
		r.notReadySince = s.now
	}
	if key != "" && !s.awaitsTaint(v) {
		r.hasToken = false // the node has the taint; if it loses the taint, it needs another token
	}
}

// awaitsTaint reports whether a node needs a NoExecute taint and has neither of the two.
func (s *step) awaitsTaint(v *view) bool {
	key, opposite := readyTaint(v.ready)
	return key != "" && !hasTaint(v.node, key, v1.TaintEffectNoExecute) &&
		!hasTaint(v.node, opposite, v1.TaintEffectNoExecute) &&
		!(s.config.SkipExcluded && !v.counted)
}

// compareQueued orders the nodes that wait for a token by the time at which they failed. Nodes
// whose last write failed come last: otherwise a few nodes with writes that always fail would use
// up all tokens of a zone.
func compareQueued(a, b *record, nameOrder int) int {
	failed := func(r *record) int {
		if r.writes[WriteTaints].Failed() || r.writes[WriteStatus].Failed() {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(failed(a), failed(b)), a.notReadySince.Compare(b.notReadySince), nameOrder)
}

// assignTokens gives tokens to waiting nodes, in each zone in their order. A node with a write in
// flight or backing off gets none.
//
// A failed write is retried with the same token unless another node got one in between. The
// interval to the next token then restarts at the retry: the rate limits taints, not tokens. While
// the rate of a zone is 0, tokens of failed writes are void.
func (s *step) assignTokens() {
	waiting := map[string][]*view{}
	for i := range s.views {
		v := &s.views[i]
		key := v.zone
		if s.zones[key].bucket.Rate() == 0 {
			v.record.hasToken = false
		}
		if s.awaitsTaint(v) {
			s.zones[key].waiting++
			waiting[key] = append(waiting[key], v)
		}
	}
	unserved := map[string]bool{}
	for key, queue := range waiting {
		slices.SortFunc(queue, func(a, b *view) int {
			return compareQueued(a.record, b.record, cmp.Compare(a.node.Name, b.node.Name))
		})
		z := s.zones[key]
		for _, v := range queue {
			switch r := v.record; {
			case !s.writable(v):
			case r.hasToken && z.lastTaker == v.node.UID:
				z.bucket.Restart(s.now)
			case z.bucket.Take(s.now):
				r.hasToken, z.lastTaker = true, v.node.UID
			default:
				r.hasToken, unserved[key] = false, true
				s.wakeAt(z.bucket.NextToken(s.now))
			}
		}
	}
	for key, z := range s.zones {
		z.bucket.SetWaiting(unserved[key])
	}
}

// writable reports whether the node's taints may be written in this step. Changed conditions are
// written before taints.
func (s *step) writable(v *view) bool {
	canStart := func(kind Kind) bool {
		next := v.record.writes[kind].Next(s.now)
		return !next.IsZero() && !next.After(s.now)
	}
	return canStart(WriteTaints) && (len(v.changes) == 0 || canStart(WriteStatus))
}
