package taint

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func one(added *metav1.Time) (Seen, *v1.Node, *v1.Pod) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
	n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute, TimeAdded: added}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "p"}, Spec: v1.PodSpec{NodeName: "n"}}
	return Seen{
		Nodes: map[string]*v1.Node{"n": n}, Pods: func(string) []*v1.Pod { return []*v1.Pod{p} }, Zone: func(*v1.Node) string { return ":" },
	}, n, p
}

// A deletion that fails is tried again, later each time, until the pod is gone. Upstream gives up after five tries.
func TestADeletionThatFailsIsTriedAgain(t *testing.T) {
	c := New(Config{})
	s, n, _ := one(&metav1.Time{Time: start})
	now := start
	for i := range 12 {
		out := c.Step(now, s)
		if len(out.Evict) != 1 || out.Evict[0].UID != "p" {
			t.Fatalf("try %d: %+v", i, out)
		}
		if again := c.Step(now, s); len(again.Evict) != 0 {
			t.Fatalf("it is under way: %+v", again.Evict)
		}
		c.End(now, "p", false)
		next := c.Step(now, s).Next
		if wait := next.Sub(now); wait < 250*time.Millisecond || wait > 30*time.Second {
			t.Fatalf("try %d: again after %v", i, wait)
		}
		now = next
	}
	n.Spec.Taints = nil // pointless from now on
	if out := c.Step(now, s); len(out.Evict) != 0 || len(c.writes) != 0 {
		t.Errorf("%+v", out)
	}
}

// What a person sets says no time: it is stamped with that of its first sight, before anything is counted from it, and once.
func TestATaintWithoutATimeIsStamped(t *testing.T) {
	for name, added := range map[string]*metav1.Time{"none": nil, "year 1": {}, "to come": {Time: start.Add(time.Hour)}} {
		c := New(Config{})
		s, n, p := one(added)
		seconds := int64(10)
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists, TolerationSeconds: &seconds}}
		out := c.Step(start, s)
		if len(out.Stamps) != 1 || !out.Stamps[0].Taints[0].TimeAdded.Time.Equal(start) || !out.Next.Equal(start.Add(10*time.Second)) {
			t.Errorf("%s: %+v", name, out)
		}
		c.EndStamp(start, n.UID, false)
		out = c.Step(start.Add(5*time.Second), s)
		if len(out.Stamps) != 1 || !out.Stamps[0].Taints[0].TimeAdded.Time.Equal(start) {
			t.Errorf("%s: %+v", name, out)
		}
		if out = c.Step(start.Add(10*time.Second), s); len(out.Evict) != 1 || out.Evict[0].After != 10*time.Second {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// A node was not ready for an hour, and is silent now: the taint that came in the place of the other has its time, for pods that bear either as
// long. One that bears the first for ever, or for longer, has its time for the second from then on.
func TestATaintThatCameInThePlaceOfAnother(t *testing.T) {
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
		first, other int64 // seconds for not-ready, unreachable; below 0: for ever
		want         time.Time
	}{
		"for ever, then a time":             {turned, -1, 300, turned.Add(5 * time.Minute)},
		"for longer, then a time":           {turned, 7200, 300, turned.Add(5 * time.Minute)},
		"for longer, and that ends first":   {turned, 3600, 300, start},
		"either for as long":                {turned, 300, 300, began.Add(5 * time.Minute)},
		"for less, then for longer":         {turned, 60, 7200, began.Add(2 * time.Hour)},
		"nobody knows since when":           {time.Time{}, -1, 300, began.Add(5 * time.Minute)},
		"since a time to come, as it seems": {start.Add(time.Hour), -1, 300, began.Add(5 * time.Minute)},
	} {
		s, n, p := one(&metav1.Time{Time: began})
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
			t.Errorf("%s: it has to go at %v, want %v", name, got.Sub(start), c.want.Sub(start))
		}
		if why := core.Explain(start, n, p); len(why) != 1 || !why[0].Deadline.Equal(c.want) {
			t.Errorf("%s: %+v", name, why)
		}
		// A taint that was there from the beginning of the silence is not in the place of another.
		n.Status.Conditions[0].LastTransitionTime.Time = began.Add(-time.Minute)
		if why := core.Explain(start, n, p); !why[0].Deadline.Equal(began.Add(time.Duration(c.other) * time.Second)) {
			t.Errorf("%s: from the beginning: %+v", name, why)
		}
	}
}
