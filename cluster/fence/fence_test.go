package fence

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func node(status v1.ConditionStatus, since time.Time, taints ...v1.Taint) map[string]*v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}, Spec: v1.NodeSpec{Taints: taints}}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, LastTransitionTime: metav1.Time{Time: since}}}
	return map[string]*v1.Node{"n": n}
}

// Only a node that is silent for long enough is asked about, and only one that is confirmed dead, and silent still, gets the taint.
func TestANodeIsFencedOnceItIsConfirmedDead(t *testing.T) {
	c := New(Config{After: time.Minute, Every: 30 * time.Second})
	now, silent := start, node(v1.ConditionUnknown, start)
	if out := c.Step(now, silent); len(out.Ask) != 0 || !out.Next.Equal(start.Add(time.Minute)) {
		t.Fatalf("%+v", out)
	}
	now = start.Add(time.Minute)
	if out := c.Step(now, silent); len(out.Ask) != 1 || out.Ask[0] != (Node{"n", "u"}) {
		t.Fatalf("%+v", out)
	}
	if out := c.Step(now, silent); len(out.Ask) != 0 {
		t.Fatalf("it is asked: %+v", out)
	}
	c.Answer(now, "u", false)
	if out := c.Step(now, silent); len(out.Ask)+len(out.Set) != 0 || !out.Next.Equal(now.Add(30*time.Second)) {
		t.Fatalf("%+v", out)
	}
	now = now.Add(30 * time.Second)
	c.Step(now, silent)
	c.Answer(now, "u", true)
	if out := c.Step(now, node(v1.ConditionTrue, now)); len(out.Set) != 0 {
		t.Fatalf("it came back: %+v", out)
	}
	if out := c.Step(now, silent); len(out.Set) != 0 || len(out.Ask) != 1 {
		t.Fatalf("it is asked anew since it was back: %+v", out)
	}
	c.Answer(now, "u", true)
	out := c.Step(now, silent)
	if len(out.Set) != 1 {
		t.Fatalf("%+v", out)
	}
	c.End(now, "u", false)
	if out = c.Step(now, silent); len(out.Set) != 0 || out.Next.IsZero() {
		t.Fatalf("%+v", out)
	}
	if out = c.Step(out.Next, silent); len(out.Set) != 1 {
		t.Fatalf("a write that failed is not tried again: %+v", out)
	}
	c.End(now, "u", true)
	mine := v1.Taint{Key: v1.TaintNodeOutOfService, Value: Value, Effect: v1.TaintEffectNoExecute}
	if out = c.Step(now, node(v1.ConditionUnknown, start, mine)); len(out.Set)+len(out.Ask) != 0 || len(c.records) != 0 {
		t.Fatalf("%+v", out)
	}
}

// A node that is back loses the taint, if it is ours; another's stays.
func TestTheTaintIsLifted(t *testing.T) {
	for value, want := range map[string]int{Value: 1, "nodeshutdown": 0} {
		c := New(Config{})
		out := c.Step(start, node(v1.ConditionTrue, start, v1.Taint{Key: v1.TaintNodeOutOfService, Value: value, Effect: v1.TaintEffectNoExecute}))
		if len(out.Lift) != want || len(out.Ask) != 0 {
			t.Errorf("%s: %+v", value, out)
		}
	}
}
