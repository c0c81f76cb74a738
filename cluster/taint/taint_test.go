package taint

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func fixture(added *metav1.Time) (Seen, *v1.Node, *v1.Pod) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
	n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute, TimeAdded: added}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "p"}, Spec: v1.PodSpec{NodeName: "n"}}
	return Seen{
		Nodes: map[string]*v1.Node{"n": n}, Pods: func(string) []*v1.Pod { return []*v1.Pod{p} }, Zone: func(*v1.Node) string { return ":" },
	}, n, p
}

// A failed deletion is retried with a growing backoff until the pod is gone. Upstream gives up
// after five tries.
func TestFailedDeletionIsRetried(t *testing.T) {
	c := New(Config{})
	s, n, _ := fixture(&metav1.Time{Time: start})
	now := start
	for i := range 12 {
		out := c.Step(now, s)
		if len(out.Evict) != 1 || out.Evict[0].UID != "p" {
			t.Fatalf("try %d: Step returns %+v, want an eviction of pod p", i, out)
		}
		if again := c.Step(now, s); len(again.Evict) != 0 {
			t.Fatalf("try %d: evicted again while the deletion is in flight: %+v", i, again.Evict)
		}
		c.End(now, "p", false)
		next := c.Step(now, s).Next
		if wait := next.Sub(now); wait < 250*time.Millisecond || wait > 30*time.Second {
			t.Fatalf("try %d: backoff is %v, want 250ms to 30s", i, wait)
		}
		now = next
	}
	n.Spec.Taints = nil // the deletion is no longer needed
	if out := c.Step(now, s); len(out.Evict) != 0 || len(c.deletions) != 0 {
		t.Errorf("without the taint: Step returns %+v and keeps %d deletions, want none", out, len(c.deletions))
	}
}

// A taint without a valid TimeAdded is stamped with the time of its first observation, and only
// once.
func TestTaintWithoutTimeIsStamped(t *testing.T) {
	for name, added := range map[string]*metav1.Time{"none": nil, "year 1": {}, "future": {Time: start.Add(time.Hour)}} {
		c := New(Config{})
		s, n, p := fixture(added)
		seconds := int64(10)
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}
		out := c.Step(start, s)
		if len(out.Stamps) != 1 || !out.Stamps[0].Taints[0].TimeAdded.Time.Equal(start) || !out.Next.Equal(start.Add(10*time.Second)) {
			t.Errorf("TimeAdded %s: Step returns %+v, want a stamp of %v and a step after 10s", name, out, start)
		}
		c.EndStamp(start, n.UID, false)
		out = c.Step(start.Add(5*time.Second), s)
		if len(out.Stamps) != 1 || !out.Stamps[0].Taints[0].TimeAdded.Time.Equal(start) {
			t.Errorf("TimeAdded %s: after a failed write Step returns %+v, want the same stamp", name, out)
		}
		if out = c.Step(start.Add(10*time.Second), s); len(out.Evict) != 1 || out.Evict[0].After != 10*time.Second {
			t.Errorf("TimeAdded %s: after 10s Step returns %+v, want an eviction", name, out)
		}
	}
}

// A node was not ready for an hour and is unreachable now. The new taint keeps the TimeAdded of the
// one that it replaced for pods that tolerate both for the same period. If a pod tolerates the
// first one without a limit or for longer, the period of the second one starts at the transition.
func TestReplacedTaintDeadline(t *testing.T) {
	toleration := func(key string, seconds int64) v1.Toleration {
		out := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
		if seconds >= 0 {
			out.TolerationSeconds = &seconds
		}
		return out
	}
	began, turned := start.Add(-time.Hour), start.Add(-time.Minute)
	for name, c := range map[string]struct {
		turned       time.Time
		first, other int64 // seconds for not-ready, unreachable; below 0: no limit
		want         time.Time
	}{
		"no limit, then 5m":        {turned, -1, 300, turned.Add(5 * time.Minute)},
		"2h, then 5m":              {turned, 7200, 300, turned.Add(5 * time.Minute)},
		"1h, which ends first":     {turned, 3600, 300, start},
		"5m for both":              {turned, 300, 300, began.Add(5 * time.Minute)},
		"1m, then 2h":              {turned, 60, 7200, began.Add(2 * time.Hour)},
		"unknown transition":       {time.Time{}, -1, 300, began.Add(5 * time.Minute)},
		"transition now":           {start, -1, 300, start.Add(5 * time.Minute)},
		"transition in the future": {start.Add(time.Hour), -1, 300, began.Add(5 * time.Minute)},
	} {
		s, n, p := fixture(&metav1.Time{Time: began})
		n.Spec.Taints[0].Key = v1.TaintNodeUnreachable
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.Time{Time: c.turned}}}
		p.Spec.Tolerations = []v1.Toleration{toleration(v1.TaintNodeNotReady, c.first), toleration(v1.TaintNodeUnreachable, c.other)}
		core := New(Config{})
		out := core.Step(start, s)
		got := out.Next
		if len(out.Evict) == 1 {
			got = out.Evict[0].Deadline
		}
		if !got.Equal(c.want) {
			t.Errorf("%s: deadline %v after start, want %v", name, got.Sub(start), c.want.Sub(start))
		}
		if why := core.Explain(start, n, p); len(why) != 1 || !why[0].Deadline.Equal(c.want) {
			t.Errorf("%s: Explain returns %+v, want one verdict with deadline %v", name, why, c.want)
		}
		// A taint that is as old as the transition did not replace another one.
		n.Status.Conditions[0].LastTransitionTime.Time = began.Add(-time.Minute)
		if why := core.Explain(start, n, p); !why[0].Deadline.Equal(began.Add(time.Duration(c.other) * time.Second)) {
			t.Errorf("%s: taint as old as the transition: Explain returns %+v, want its own toleration period", name, why)
		}
	}
}

// A pod that is being deleted or has finished stays, and so do pods on nodes with taints of other
// effects.
func TestPodsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		edit     func(*v1.Node, *v1.Pod)
		verdicts int
	}{
		"being deleted": {func(_ *v1.Node, p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: start} }, 1},
		"succeeded":     {func(_ *v1.Node, p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, 1},
		"failed":        {func(_ *v1.Node, p *v1.Pod) { p.Status.Phase = v1.PodFailed }, 1},
		"NoSchedule":    {func(n *v1.Node, _ *v1.Pod) { n.Spec.Taints[0].Effect = v1.TaintEffectNoSchedule }, 0},
	} {
		core := New(Config{})
		s, n, p := fixture(&metav1.Time{Time: start})
		c.edit(n, p)
		if out := core.Step(start, s); len(out.Evict)+len(out.Stamps) != 0 {
			t.Errorf("%s: Step returns %+v, want no eviction and no stamp", name, out)
		}
		if why := core.Explain(start, n, p); len(why) != c.verdicts {
			t.Errorf("%s: Explain returns %+v, want %d verdicts", name, why, c.verdicts)
		}
	}
}

// Of two taints that require the same, the first is the reason. A TimeAdded of now is valid.
func TestFirstTaintIsReason(t *testing.T) {
	c := New(Config{})
	s, n, p := fixture(&metav1.Time{Time: start})
	n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "other", Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: start}})
	if out := c.Step(start, s); len(out.Evict) != 1 || out.Evict[0].Taint.Key != "k" || len(out.Stamps) != 0 {
		t.Errorf("two taints of the same time: Step returns %+v, want an eviction because of k and no stamp", out)
	}
	n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}
	c.Step(start, s)
	now := start.Add(10 * time.Second)
	n.Spec.Taints[0].TimeAdded = &metav1.Time{Time: now}
	if why := c.Explain(now, n, p); !why[0].Taint.TimeAdded.Time.Equal(now) {
		t.Errorf("taint stamped now: Explain returns TimeAdded %v, want %v", why[0].Taint.TimeAdded, now)
	}
}

// PodEvictionRate limits the evictions of each zone.
func TestEvictionsAreLimited(t *testing.T) {
	c := New(Config{PodEvictionRate: 2})
	s, n, _ := fixture(&metav1.Time{Time: start})
	m := n.DeepCopy()
	m.Name, m.UID = "m", "m"
	pods := map[string][]*v1.Pod{}
	for _, node := range []string{"m", "n"} {
		for _, name := range []string{"0", "1", "2"} {
			pods[node] = append(pods[node], &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: node + name, UID: types.UID(node + name)}})
		}
	}
	s.Nodes["m"], s.Pods = m, func(node string) []*v1.Pod { return pods[node] }
	s.Zone = func(n *v1.Node) string { return n.Name }
	for i, now := 0, start; i < 3; i++ {
		out := c.Step(now, s)
		if len(out.Evict) != 2 || out.Evict[0].Node == out.Evict[1].Node {
			t.Fatalf("after %v: evictions %+v, want one in each zone", now.Sub(start), out.Evict)
		}
		for _, e := range out.Evict {
			c.End(now, e.UID, true)
			pods[e.Node] = slices.DeleteFunc(pods[e.Node], func(p *v1.Pod) bool { return p.UID == e.UID })
		}
		out, next := c.Step(now, s), now.Add(500*time.Millisecond)
		if i < 2 && (len(out.Evict) != 0 || !out.Next.Equal(next)) {
			t.Fatalf("after %v: Step returns %+v, want no eviction and a step after 500ms", now.Sub(start), out)
		}
		now = next
	}
}

// The API server's clock is set by an hour: the deadline stays, also when another taint replaces the
// first one, in a new term, and when the taint gets a new TimeAdded because its own is in the future.
func TestServerClockChangesNoDeadline(t *testing.T) {
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		c := New(Config{})
		s, n, p := fixture(&metav1.Time{Time: start})
		seconds := int64(300)
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}
		now := start.Add(time.Minute)
		check := func(what string, deadline, stamps int) {
			t.Helper()
			out := c.Step(now, s)
			if want := start.Add(time.Duration(deadline) * time.Second); len(out.Evict) > 0 || !out.Next.Equal(want) || len(out.Stamps) != stamps {
				t.Errorf("skew %v, %s: Step returns %+v, want %d stamps and a step after %ds", skew, what, out, stamps, deadline)
			}
			for _, stamp := range out.Stamps {
				n.Spec.Taints[0].TimeAdded = stamp.Taints[0].TimeAdded
				c.EndStamp(now, n.UID, true)
			}
			now = now.Add(time.Second)
		}
		check("before", 300, 0)
		s.ClockSkew = skew
		n.Spec.Taints[0].Key = "another"
		future := 0
		if skew < 0 {
			future = 1
		}
		check("after", 300, future)
		check("later", 300, 0)
		c = c.Restart()
		check("in a new term", 300, 0)
		p.UID, p.CreationTimestamp = "another", metav1.Time{Time: start.Add(10*time.Second + skew)}
		check("created after the taint", 310, 0)
	}
}

// The API server's clock is set after a pod was created, so that the pod's creation is in the future
// or long ago. Its toleration period keeps its length and ends.
func TestServerClockChangesNoPodsAge(t *testing.T) {
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		for name, created := range map[string]time.Duration{"before the taint": -10 * time.Minute, "after the taint": 10 * time.Minute} {
			c := New(Config{})
			s, _, p := fixture(&metav1.Time{Time: start})
			seconds := int64(1800)
			p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}
			p.CreationTimestamp = metav1.Time{Time: start.Add(created)}
			want := start.Add(30*time.Minute + max(0, created))
			for now := start.Add(15 * time.Minute); now.Before(want); now = now.Add(time.Minute) {
				if out := c.Step(now, s); len(out.Evict) > 0 || !out.Next.Equal(want) {
					t.Fatalf("skew %v, created %s: step at %v returns %d evictions and a step at %v, want none and %v", s.ClockSkew, name,
						now.Sub(start), len(out.Evict), out.Next.Sub(start), want.Sub(start))
				}
				s.ClockSkew = skew
				c = c.Restart()
			}
			if out := c.Step(want, s); len(out.Evict) != 1 {
				t.Errorf("skew %v, created %s: %d evictions at the deadline, want 1", skew, name, len(out.Evict))
			}
		}
	}
	// the pod was created when the clock was ahead, and its node fails after the clock was set back
	c := New(Config{})
	s, _, p := fixture(&metav1.Time{Time: start})
	seconds := int64(300)
	p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}
	p.CreationTimestamp = metav1.Time{Time: start.Add(50 * time.Minute)}
	c.Step(start, s)
	if out := c.Step(start.Add(5*time.Minute), s); len(out.Evict) != 1 {
		t.Errorf("creation in the future: %d evictions after the toleration period, want 1", len(out.Evict))
	}
}

// A node was not ready for an hour and is unreachable now. The API server's clock is set after that.
// The toleration period of the second taint keeps its start.
func TestServerClockChangesNoTransition(t *testing.T) {
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		c := New(Config{})
		s, n, p := fixture(&metav1.Time{Time: start.Add(-time.Hour)})
		n.Spec.Taints[0].Key = v1.TaintNodeUnreachable
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown, LastTransitionTime: metav1.Time{Time: start}}}
		seconds := int64(300)
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists},
			{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}
		want := start.Add(5 * time.Minute)
		for now := start; now.Before(want); now = now.Add(time.Minute) {
			if out := c.Step(now, s); len(out.Evict) > 0 || !out.Next.Equal(want) {
				t.Fatalf("skew %v: step at %v returns %d evictions and a step at %v, want none and 5m", s.ClockSkew, now.Sub(start), len(out.Evict),
					out.Next.Sub(start))
			}
			if why := c.Explain(now, n, p); !why[0].Deadline.Equal(want) {
				t.Errorf("skew %v: Explain returns the deadline %v, want 5m", s.ClockSkew, why[0].Deadline.Sub(start))
			}
			s.ClockSkew = skew
			c = c.Restart()
		}
		if out := c.Step(want, s); len(out.Evict) != 1 {
			t.Errorf("skew %v: %d evictions at the deadline, want 1", skew, len(out.Evict))
		}
	}
}

// After a gap in the watch, a pod whose toleration of a taint for its node's condition ended long ago
// leaves at the end of the return period. Other taints have no such period.
func TestDeadlineAfterGap(t *testing.T) {
	for key, wait := range map[string]time.Duration{v1.TaintNodeNotReady: cluster.ReturnPeriod, v1.TaintNodeUnreachable: cluster.ReturnPeriod, "k": 0} {
		for _, seconds := range []int64{-1, 300} {
			c := New(Config{})
			s, n, p := fixture(&metav1.Time{Time: start.Add(-time.Hour)})
			s.WatchedSince, n.Spec.Taints[0].Key = start, key
			if seconds >= 0 {
				p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}
			}
			for _, early := range []time.Duration{0, wait - 1} {
				if out := c.Step(start.Add(early), s); wait > 0 && (len(out.Evict) > 0 || !out.Next.Equal(start.Add(wait)) || c.Due(start.Add(early), n, p)) {
					t.Errorf("taint %s, tolerated for %d s, %v after the gap: Step returns %+v, want a step after %v", key, seconds, early, out, wait)
				}
			}
			c = c.Restart()
			if out := c.Step(start.Add(wait), s); len(out.Evict) != 1 || wait > 0 && !out.Evict[0].Deadline.Equal(start.Add(wait)) {
				t.Errorf("taint %s, tolerated for %d s, %v after the gap: Step returns %+v, want an eviction", key, seconds, wait, out)
			}
		}
	}
}
