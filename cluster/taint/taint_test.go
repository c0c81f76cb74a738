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
