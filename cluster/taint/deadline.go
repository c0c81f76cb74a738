package taint

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// maxSeconds bounds TolerationSeconds so that it fits a Duration.
const maxSeconds = int64(math.MaxInt64 / time.Second / 2)

// times holds the times of a node and a pod that their deadline depends on.
type times struct {
	transition time.Time // the last change of the node's condition Ready; zero: unknown
	created    time.Time // creation of the pod
	settled    time.Time // see Seen.WatchedSince
}

// deadline returns when the pod must leave the node and the taint that requires it. limited is
// false if the pod tolerates every taint without a limit.
//
// For each taint the first matching toleration counts, as upstream. Comparison operators in
// tolerations are disabled, as by default upstream (feature gate
// TaintTolerationComparisonOperators, 1.37.2). If the pod is younger than the taint, its toleration
// period starts at its creation. If the period started at TimeAdded, each replacement of the pod on
// that node would be evicted immediately.
//
// A taint that follows from the node's condition Ready requires nothing before the time settled.
func deadline(taints []v1.Taint, when times, tolerations []v1.Toleration) (
	at time.Time, by *v1.Taint, limited bool) {
	for i := range taints {
		t := &taints[i]
		since := t.TimeAdded.Time
		if toleration := firstMatch(t, tolerations); toleration != nil {
			if toleration.TolerationSeconds == nil {
				continue
			}
			since = latest(since, when.created)
			period := tolerationPeriod(toleration)
			since = latest(since.Add(period), swapDeadline(t, when.transition, tolerations, since, period))
		}
		if counterpart[t.Key] != "" {
			since = latest(since, when.settled)
		}
		if !limited || since.Before(at) {
			at, by, limited = since, t, true
		}
	}
	return at, by, limited
}

// createdAt returns when a pod was created, on the caller's clock, at the latest now. Step keeps the
// first answer: a creation in the future would otherwise move the deadline with each step.
func (c *Core) createdAt(now time.Time, p *v1.Pod) time.Time {
	if at, seen := c.created[p.UID]; seen {
		return at
	}
	if at := p.CreationTimestamp.Add(-c.skew); at.Before(now) {
		return at
	}
	return now
}

// transition returns the last change of a node's condition Ready, on the caller's clock, and its key
// in since. It is zero if it is unknown or in the future.
func (c *Core) transition(now time.Time, n *v1.Node) (key taintKey, at time.Time) {
	i := slices.IndexFunc(n.Status.Conditions,
		func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady })
	if i < 0 || n.Status.Conditions[i].LastTransitionTime.IsZero() {
		return key, at
	}
	stated := n.Status.Conditions[i].LastTransitionTime.Time
	key = taintKey{node: n.UID, name: n.Name, timeAdded: stated.Unix(), key: string(v1.NodeReady)}
	at, seen := c.since[key]
	if !seen {
		at = stated.Add(-c.skew)
	}
	if at.After(now) {
		return key, time.Time{}
	}
	return key, at
}

// tolerationPeriod returns TolerationSeconds, clamped to [0, maxSeconds].
func tolerationPeriod(t *v1.Toleration) time.Duration {
	return time.Duration(min(max(*t.TolerationSeconds, 0), maxSeconds)) * time.Second
}

// counterpart maps each of the two node taints to the one that it replaces when the node's state
// changes. The new taint keeps the TimeAdded of the old one (see swap in package lifecycle).
var counterpart = map[string]string{v1.TaintNodeNotReady: v1.TaintNodeUnreachable,
	v1.TaintNodeUnreachable: v1.TaintNodeNotReady}

// swapDeadline returns the earliest deadline for a taint that may have replaced its counterpart, or
// the zero time if it replaced none or the pod does not tolerate the counterpart. The taint's
// period then starts at the transition of the node, but the deadline is at most the end of the
// counterpart's period.
func swapDeadline(t *v1.Taint, transition time.Time, tolerations []v1.Toleration, since time.Time,
	period time.Duration) time.Time {
	key := counterpart[t.Key]
	if key == "" || !transition.After(since) {
		return time.Time{} // the usual case: the taint did not replace another one
	}
	other := firstMatch(&v1.Taint{Key: key, Effect: t.Effect}, tolerations)
	if other == nil {
		return time.Time{}
	}
	end := transition.Add(period)
	if other.TolerationSeconds != nil {
		if combined := since.Add(tolerationPeriod(other)); combined.Before(end) {
			return combined
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

// firstMatch returns the first toleration that matches a taint, or nil.
func firstMatch(t *v1.Taint, tolerations []v1.Toleration) *v1.Toleration {
	if i := matchIndex(t, tolerations); i >= 0 {
		return &tolerations[i]
	}
	return nil
}

// matchIndex returns the index of the first toleration that matches a taint, or -1.
func matchIndex(t *v1.Taint, tolerations []v1.Toleration) int {
	for i := range tolerations {
		if tolerations[i].ToleratesTaint(klog.Logger{}, t, false) {
			return i
		}
	}
	return -1
}
