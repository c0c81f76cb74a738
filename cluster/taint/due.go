package taint

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// maxSeconds is the longest time that a Duration holds.
const maxSeconds = int64(math.MaxInt64 / time.Second / 2)

// deadline is when a pod has to go that has such tolerations, and the taint that it is because of;
// never, where each taint is tolerated for ever. Of each taint the first toleration that matches
// counts, as upstream has it. Toleration operators that compare are off, as they are by default
// (feature TaintTolerationComparisonOperators, 1.36.3). A pod that was made after a taint has its
// time from then on: from TimeAdded it would go at once, and so would each one that replaces it
// there.
func deadline(n *v1.Node, taints []v1.Taint, p *v1.Pod, now time.Time) (at time.Time, by *v1.Taint,
	ever bool) {
	made := p.CreationTimestamp.Time
	if made.After(now) {
		made = now
	}
	for i := range taints {
		t := &taints[i]
		since := t.TimeAdded.Time
		if toleration := first(t, p.Spec.Tolerations); toleration != nil {
			if toleration.TolerationSeconds == nil {
				continue
			}
			if made.After(since) {
				since = made
			}
			long := lasts(toleration)
			since = latest(since.Add(long), swapped(n, t, p, since, long, now))
		}
		if !ever || since.Before(at) {
			at, by, ever = since, t, true
		}
	}
	return at, by, ever
}

// lasts is how long a toleration does that says so.
func lasts(t *v1.Toleration) time.Duration {
	return time.Duration(min(max(*t.TolerationSeconds, 0), maxSeconds)) * time.Second
}

// opposite are the taints that come in each other's place, with the TimeAdded of the one that was
// there (lifecycle's swap).
var opposite = map[string]string{v1.TaintNodeNotReady: v1.TaintNodeUnreachable,
	v1.TaintNodeUnreachable: v1.TaintNodeNotReady}

// swapped is when a pod has to go at the earliest because of a taint that may have come in the
// place of its opposite: a pod that bears that for longer bears this one from when the node turned,
// for as long as it says, and both for no longer than the other.
func swapped(n *v1.Node, t *v1.Taint, p *v1.Pod, since time.Time, long time.Duration,
	now time.Time) time.Time {
	key := opposite[t.Key]
	i := slices.IndexFunc(n.Status.Conditions,
		func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady })
	if key == "" || i < 0 {
		return time.Time{}
	}
	turned := n.Status.Conditions[i].LastTransitionTime.Time
	if !turned.After(since) || turned.After(now) {
		return time.Time{} // as of most
	}
	other := first(&v1.Taint{Key: key, Effect: t.Effect}, p.Spec.Tolerations)
	if other == nil {
		return time.Time{}
	}
	end := turned.Add(long)
	if other.TolerationSeconds != nil {
		if both := since.Add(lasts(other)); both.Before(end) {
			return both
		}
	}
	return end
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// first is the first toleration that matches a taint; nil: none does.
func first(t *v1.Taint, tolerations []v1.Toleration) *v1.Toleration {
	for i := range tolerations {
		if tolerations[i].ToleratesTaint(klog.Logger{}, t, false) {
			return &tolerations[i]
		}
	}
	return nil
}
