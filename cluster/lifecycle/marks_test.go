package lifecycle

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onePod returns the cluster with one ready pod on node n000.
func onePod(all map[string]*v1.Node) Seen {
	s, p := seen(all), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "p"}, Spec: v1.PodSpec{NodeName: "n000"},
		Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}}
	s.Pods = func(node string) []*v1.Pod {
		if node == p.Spec.NodeName {
			return []*v1.Pod{p}
		}
		return nil
	}
	return s
}

// A kubelet that reports NotReady and then falls silent leaves the same marks and event as one that
// was ready (kubernetes#112733): they follow from the silence. Each silence marks a pod once.
func TestNotReadyThenSilent(t *testing.T) {
	for _, before := range []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse} {
		c, all := New(defaults()), nodes(3, 0)
		ready := &all["n000"].Status.Conditions[0]
		ready.Status = before
		s := onePod(all)
		if out := c.Step(start, s); len(out.Marks) != 0 {
			t.Fatalf("Ready=%s: marks while the kubelet reports = %+v, want none", before, out.Marks)
		}
		at := start.Add(51 * time.Second)
		beat(all, at, 1, 3)
		out := c.Step(at, s)
		events := 0
		for _, e := range out.Events {
			if e.Kind == "Node" && e.Reason == ReasonNotReady && e.Name == "n000" {
				events++
			}
		}
		if len(out.Marks) != 1 || !out.Marks[0].Silent || events != 1 {
			t.Errorf("Ready=%s, then silent: marks %+v, %d events, want one of each", before, out.Marks, events)
			continue
		}
		// The status was not written. The caller drops the mark, and the core requests it again.
		c.EndMark(at, out.Marks[0], true)
		c.End(at, "n000", all["n000"].UID, WriteStatus, false)
		at = at.Add(time.Second)
		if out = c.Step(at, s); len(out.Marks) != 1 {
			t.Errorf("Ready=%s: marks before the condition is written = %+v, want one", before, out.Marks)
			continue
		}
		// The answer of the second try is lost, and the watch reports the condition after the caller
		// dropped the mark again.
		c.EndMark(at, out.Marks[0], true)
		ready.Status, ready.Reason = v1.ConditionUnknown, reasonUnknown
		if out = c.Step(at, s); len(out.Marks) != 1 {
			t.Errorf("Ready=%s: marks when the condition is written = %+v, want one", before, out.Marks)
			continue
		}
		c.EndMark(at, out.Marks[0], true)
		if out = c.Step(at.Add(time.Second), s); len(out.Marks) != 0 {
			t.Errorf("Ready=%s: marks of a pod that was marked in this silence = %+v, want none", before, out.Marks)
		}
		restarted := New(defaults())
		if out = restarted.Step(at.Add(2*time.Second), s); len(out.Marks) != 1 {
			t.Errorf("Ready=%s: marks after a restart = %+v, want one", before, out.Marks)
		}
	}
}

// Marks that are not written when a silence ends without Ready=True are dropped: the kubelet posts
// its pods' conditions.
func TestMarksEndWithTheSilence(t *testing.T) {
	c, all := New(defaults()), nodes(3, 0)
	ready := &all["n000"].Status.Conditions[0]
	ready.Status = v1.ConditionFalse
	s := onePod(all)
	c.Step(start, s)
	at := start.Add(51 * time.Second)
	beat(all, at, 1, 3)
	out := c.Step(at, s)
	if len(out.Marks) != 1 {
		t.Fatalf("marks of a silent node = %+v, want one", out.Marks)
	}
	c.EndMark(at, out.Marks[0], false)
	ready.LastHeartbeatTime.Time = at
	if out = c.Step(at.Add(time.Second), s); len(out.Marks) != 0 {
		t.Errorf("marks of a node that reports again = %+v, want none", out.Marks)
	}
}

// A pod that is new on a ready node is not marked, and neither is an answer about a node that is gone
// an error.
func TestReadyNodeMarksNothing(t *testing.T) {
	core, all := New(defaults()), nodes(3, 0)
	core.Step(start, seen(all))
	s := onePod(all)
	if out := core.Step(start.Add(time.Second), s); len(out.Marks) != 0 {
		t.Errorf("marks of a ready node = %+v, want none", out.Marks)
	}
	core.EndMark(start, Mark{Node: "gone", UID: "p"}, true)
}

// A mark that failed waits while the silence is in doubt. The event of a silence is added once, however
// often the status is written.
func TestDoubtDelaysFailedMarks(t *testing.T) {
	core, all := New(defaults()), nodes(3, 0)
	s := onePod(all)
	core.Step(start, s)
	events := 0
	step := func(at time.Duration, read time.Duration) *Actions {
		now := start.Add(at)
		beat(all, now, 1, 3)
		s.Read = now.Add(-read)
		out := core.Step(now, s)
		for _, e := range out.Events {
			if e.Kind == "Node" && e.Reason == ReasonNotReady {
				events++
			}
		}
		for _, w := range out.Status {
			core.End(now, w.Node, w.UID, WriteStatus, false)
		}
		for _, m := range out.Marks {
			core.EndMark(now, m, false)
		}
		return out
	}
	if out := step(51*time.Second, 0); len(out.Marks) != 1 {
		t.Fatalf("marks of a silent node = %+v, want one", out.Marks)
	}
	if out := step(71*time.Second, 11*time.Second); len(out.Marks) != 0 || out.Doubt == "" {
		t.Errorf("in doubt: marks %+v, want none", out.Marks)
	}
	if out := step(140*time.Second, 0); len(out.Marks) != 1 || out.Doubt != "" {
		t.Errorf("after the doubt: marks %+v, want one", out.Marks)
	}
	if events != 1 {
		t.Errorf("%d events of one silence, want 1", events)
	}
}

// The pods of a silent node are selected when the doubt ends, by the state that they have then.
func TestPodsAreSelectedAfterDoubt(t *testing.T) {
	c, all := New(defaults()), nodes(3, 0)
	s := onePod(all)
	ready := &s.Pods("n000")[0].Status.Conditions[0]
	ready.Status = v1.ConditionFalse
	var marked []time.Duration
	for at := time.Duration(0); at <= 3*time.Minute; at += time.Second {
		now := start.Add(at)
		if at >= 55*time.Second && at%(10*time.Second) == 0 {
			beat(all, now, 1, 3)
			ready.Status = v1.ConditionTrue
		}
		out := c.Step(now, s)
		for _, w := range out.Status {
			c.End(now, w.Node, w.UID, WriteStatus, true)
			n := all[w.Node].DeepCopy()
			n.Status.Conditions = w.Conditions
			all[w.Node] = n
		}
		if marked = append(marked, slices.Repeat([]time.Duration{at}, len(out.Marks))...); out.Doubt != "" && len(out.Marks) != 0 {
			t.Errorf("marks in doubt after %v = %+v, want none", at, out.Marks)
		}
	}
	if len(marked) != 1 {
		t.Errorf("pods marked after %v, want one mark after the doubt", marked)
	}
}
