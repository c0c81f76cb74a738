package fence

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func node(status v1.ConditionStatus, since time.Time, taints ...v1.Taint) Seen {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}, Spec: v1.NodeSpec{Taints: taints}}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, LastTransitionTime: metav1.Time{Time: since}}}
	return Seen{
		Nodes: map[string]*v1.Node{"n": n}, Leases: map[string]*coordination.Lease{},
		Zone: func(*v1.Node) string { return "z" }, Suspended: func(string) bool { return false },
	}
}

// A node is checked after the delay, and gets the taint when it is confirmed dead and still silent.
func TestDeadNodeIsFenced(t *testing.T) {
	c := New(Config{Delay: time.Minute, RetryPeriod: 30 * time.Second, Interval: time.Minute})
	now, silent := start, node(v1.ConditionUnknown, start)
	if out := c.Step(now, silent); len(out.Check) != 0 || !out.Next.Equal(start.Add(time.Minute)) {
		t.Fatalf("before the delay: Step returns %+v, want no check and a step after 1m", out)
	}
	now = start.Add(time.Minute)
	if out := c.Step(now, silent); len(out.Check) != 1 || out.Check[0] != (Node{"n", "u"}) {
		t.Fatalf("after the delay: Step returns %+v, want a check of n", out)
	}
	if out := c.Step(now, silent); len(out.Check) != 0 {
		t.Fatalf("checked again while a check is in flight: %+v", out)
	}
	c.EndCheck(now, "u", false)
	if out := c.Step(now, silent); len(out.Check)+len(out.Set) != 0 || !out.Next.Equal(now.Add(30*time.Second)) {
		t.Fatalf("not confirmed dead: Step returns %+v, want a step after 30s", out)
	}
	now = now.Add(30 * time.Second)
	c.Step(now, silent)
	c.EndCheck(now, "u", true)
	if out := c.Step(now, node(v1.ConditionTrue, now)); len(out.Set) != 0 {
		t.Fatalf("taint on a node that is ready again: %+v", out)
	}
	if out := c.Step(now, silent); len(out.Set)+len(out.Check) != 0 {
		t.Fatalf("silent again: Step returns %+v, want a new delay", out)
	}
	now = now.Add(time.Minute)
	if out := c.Step(now, silent); len(out.Set) != 0 || len(out.Check) != 1 {
		t.Fatalf("after the new delay: Step returns %+v, want a new check", out)
	}
	c.EndCheck(now, "u", true)
	out := c.Step(now, silent)
	if len(out.Set) != 1 {
		t.Fatalf("confirmed dead: Step returns %+v, want the taint", out)
	}
	c.End(now, "u", false)
	if out = c.Step(now, silent); len(out.Set) != 0 || out.Next.IsZero() {
		t.Fatalf("after a failed write: Step returns %+v, want a retry later", out)
	}
	if out = c.Step(out.Next, silent); len(out.Set) != 0 || len(out.Check) != 1 {
		t.Fatalf("after the backoff: Step returns %+v, want a new check", out)
	}
	c.EndCheck(now, "u", true)
	if out = c.Step(now.Add(time.Minute), silent); len(out.Set) != 1 {
		t.Fatalf("confirmed dead again: Step returns %+v, want the taint", out)
	}
	c.End(now, "u", true)
	mine := v1.Taint{Key: v1.TaintNodeOutOfService, Value: Value, Effect: v1.TaintEffectNoExecute}
	if out = c.Step(now, node(v1.ConditionUnknown, start, mine)); len(out.Set)+len(out.Check) != 0 || len(c.records) != 0 {
		t.Fatalf("tainted node: Step returns %+v and keeps %d records, want nothing", out, len(c.records))
	}
}

// A ready node loses the taint if this package set it. Taints of other writers stay.
func TestTaintIsLifted(t *testing.T) {
	for value, want := range map[string]int{Value: 1, "nodeshutdown": 0} {
		c := New(Config{})
		out := c.Step(start, node(v1.ConditionTrue, start, v1.Taint{Key: v1.TaintNodeOutOfService, Value: value, Effect: v1.TaintEffectNoExecute}))
		if len(out.Lift) != want || len(out.Check) != 0 {
			t.Errorf("ready node with taint value %s: Step returns %+v, want %d lifted", value, out, want)
		}
	}
}

// An answer of a check that began before a sign of life, or that arrives while fencing is
// suspended, has no effect.
func TestStaleAnswer(t *testing.T) {
	for _, how := range []string{"renewed", "suspended", "none"} {
		c := New(Config{Delay: time.Minute, RetryPeriod: 30 * time.Second, Interval: time.Minute})
		seen := node(v1.ConditionUnknown, start)
		c.Step(start, seen)
		now := start.Add(time.Minute)
		if out := c.Step(now, seen); len(out.Check) != 1 {
			t.Fatalf("%s: Step returns %+v, want a check", how, out)
		}
		switch how {
		case "renewed":
			seen.Leases["n"] = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{UID: "l"}}
			c.Step(now, seen)
		case "suspended":
			seen.Suspended = func(string) bool { return true }
		}
		c.EndCheck(now, "u", true)
		out := c.Step(now, seen)
		seen.Suspended = func(string) bool { return false }
		again := c.Step(now, seen)
		if got := len(out.Set) + len(again.Set); (got == 1) != (how == "none") {
			t.Errorf("%s: %d nodes get the taint after the answer", how, got)
		}
	}
}

// A failed write takes no part of the rate, also if the node reports again before the write ends.
func TestFailedWriteReturnsToken(t *testing.T) {
	c := New(Config{Delay: time.Minute, RetryPeriod: 30 * time.Second, Interval: time.Minute})
	seen := node(v1.ConditionUnknown, start)
	c.Step(start, seen)
	now := start.Add(time.Minute)
	c.Step(now, seen)
	c.EndCheck(now, "u", true)
	if out := c.Step(now, seen); len(out.Set) != 1 {
		t.Fatalf("confirmed dead: Step returns %+v, want the taint", out)
	}
	seen.Nodes["n"] = node(v1.ConditionTrue, now).Nodes["n"]
	other := node(v1.ConditionUnknown, now).Nodes["n"]
	other.Name, other.UID = "o", "o"
	seen.Nodes["o"] = other
	c.Step(now, seen)
	c.End(now, "u", false) // the Lease was renewed
	if out := c.Step(now.Add(2*time.Minute), seen); len(out.Check) != 1 || out.Check[0].Name != "o" {
		t.Errorf("2m after a failed write for another node: Step returns %+v, want a check of o", out)
	}
}

// The time of a taint may be in the future: the clock of the writer was wrong, or a kubelet
// registered its node with the taint. The node counts for an hour, not until then.
func TestTaintFromTheFuture(t *testing.T) {
	c := New(Config{Delay: time.Minute, RetryPeriod: 30 * time.Second, Interval: time.Minute})
	seen := node(v1.ConditionUnknown, start)
	added := metav1.Time{Time: start.Add(10 * 365 * 24 * time.Hour)}
	tainted := node(v1.ConditionFalse, start, v1.Taint{Key: v1.TaintNodeOutOfService, Value: Value, Effect: v1.TaintEffectNoExecute,
		TimeAdded: &added}).Nodes["n"]
	tainted.Name, tainted.UID = "o", "o"
	seen.Nodes["o"] = tainted
	var set time.Duration
	for now := start; set == 0 && now.Before(start.Add(5*time.Hour)); now = now.Add(time.Second) {
		out := c.Step(now, seen)
		for _, n := range out.Check {
			c.EndCheck(now, n.UID, true)
		}
		if len(out.Set) > 0 {
			set = now.Sub(start)
		}
	}
	if set < time.Hour || set > time.Hour+time.Minute {
		t.Errorf("the other node gets the taint after %v, want 1h (0: not within 5h)", set)
	}
}

// A Lease that changes or is another object is a sign of life, which restarts the delay. A Lease that
// stays the same is none.
func TestChangedLeaseRestartsDelay(t *testing.T) {
	lease := func(uid types.UID, renewed time.Duration) *coordination.Lease {
		return &coordination.Lease{ObjectMeta: metav1.ObjectMeta{UID: uid},
			Spec: coordination.LeaseSpec{RenewTime: &metav1.MicroTime{Time: start.Add(renewed)}}}
	}
	for name, c := range map[string]struct {
		then    *coordination.Lease
		checked bool
	}{
		"unchanged": {lease("l", 0), true}, "deleted": {nil, true}, "renewed": {lease("l", time.Second), false},
		"made again": {lease("other", 0), false},
	} {
		core := New(Config{Delay: time.Minute, RetryPeriod: 30 * time.Second, Interval: time.Minute})
		seen := node(v1.ConditionUnknown, start)
		seen.Leases["n"] = lease("l", 0)
		core.Step(start, seen)
		if seen.Leases["n"] = c.then; c.then == nil {
			delete(seen.Leases, "n")
		}
		if out := core.Step(start.Add(time.Minute), seen); (len(out.Check) == 1) != c.checked {
			t.Errorf("Lease %s: Step returns %+v after the delay, want a check: %t", name, out, c.checked)
		}
	}
}

// A new instance continues the rate: in a zone of two nodes, one gets the taint in an hour. The API
// server's clock may differ from that of the steps.
func TestRateContinuesAfterRestart(t *testing.T) {
	for _, skew := range []time.Duration{0, -2 * time.Hour, 2 * time.Hour} {
		c := New(Config{Delay: time.Minute, RetryPeriod: 30 * time.Second, Interval: time.Minute})
		added := metav1.Time{Time: start.Add(skew - 50*time.Minute)}
		seen := node(v1.ConditionUnknown, start)
		other := node(v1.ConditionUnknown, start, v1.Taint{Key: v1.TaintNodeOutOfService, Value: Value, Effect: v1.TaintEffectNoExecute,
			TimeAdded: &added}).Nodes["n"]
		other.Name, other.UID = "o", "o"
		seen.Nodes["o"], seen.ClockSkew = other, skew
		c.Step(start, seen)
		if out := c.Step(start.Add(time.Minute), seen); len(out.Check) != 0 || !out.Next.Equal(start.Add(10*time.Minute)) {
			t.Errorf("skew %v: 51m after a taint in the zone: Step returns %+v, want no check and a step at 10m", skew, out)
		}
		if out := c.Step(start.Add(10*time.Minute), seen); len(out.Check) != 1 {
			t.Errorf("skew %v: 1h after a taint in the zone: Step returns %+v, want a check", skew, out)
		}
	}
}

// A node without the condition Ready is not checked, and an answer for a node that is gone has no
// effect.
func TestUnknownNodeIsLeftAlone(t *testing.T) {
	c := New(Config{Delay: time.Minute, RetryPeriod: 30 * time.Second, Interval: time.Minute})
	seen := node(v1.ConditionUnknown, start)
	seen.Nodes["n"].Status.Conditions = nil
	c.Step(start, seen)
	c.EndCheck(start, "u", true)
	if out := c.Step(start.Add(time.Hour), seen); len(out.Check)+len(out.Set) != 0 || !out.Next.IsZero() {
		t.Errorf("node without Ready: Step returns %+v, want nothing", out)
	}
}
