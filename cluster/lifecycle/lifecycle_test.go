package lifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func defaults() Config {
	return Config{
		NodeMonitorGracePeriod: 50 * time.Second, NodeStartupGracePeriod: time.Minute, NodeEvictionRate: 0.1,
		SecondaryNodeEvictionRate: 0.01, LargeClusterSizeThreshold: 50, UnhealthyZoneThreshold: 0.55, Doubt: true, PressureTaint: PressurePrefer,
	}
}

// nodes returns nodes of one zone: some ready, then some not ready.
func nodes(ready, not int) map[string]*v1.Node {
	out := map[string]*v1.Node{}
	for i := range ready + not {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i), UID: types.UID(fmt.Sprint("u", i))}}
		status := v1.ConditionTrue
		if i >= ready {
			status = v1.ConditionFalse
		}
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status, LastHeartbeatTime: metav1.Time{Time: start}}}
		out[n.Name] = n
	}
	return out
}

func seen(nodes map[string]*v1.Node) Seen {
	return Seen{Nodes: nodes, Leases: map[string]*coordination.Lease{}, Pods: func(string) []*v1.Pod { return nil }}
}

// XZ10
func TestZoneState(t *testing.T) {
	for _, c := range []struct {
		ready, not int
		want       ZoneState
	}{
		{0, 1, FullDisruption}, {1, 2, Normal}, {2, 3, PartialDisruption}, {3, 3, Normal}, {5, 6, Normal}, {9, 11, PartialDisruption},
		{10, 11, Normal},
	} {
		if got := New(defaults()).Step(start, seen(nodes(c.ready, c.not))).Zones[NoZone]; got != c.want {
			t.Errorf("%d ready, %d not ready: zone state %s, want %s", c.ready, c.not, got, c.want)
		}
	}
	// upstream: 0/0 is Normal, for a zone that does not exist
	if got := New(defaults()).Step(start, seen(nil)); len(got.Zones) != 0 {
		t.Errorf("zones without nodes = %v, want none", got.Zones)
	}
}

// XZ11
func TestRateOfPartialDisruption(t *testing.T) {
	for size, want := range map[int]float64{50: 0, 51: 0.01} {
		c := New(defaults())
		c.Step(start, seen(nodes(10, size-10)))
		if got := c.zones[NoZone].bucket.Rate(); got != want {
			t.Errorf("zone of %d nodes: rate %v nodes/s, want %v", size, got, want)
		}
	}
}

// A failed taint write is retried with a growing backoff on its first token. Upstream takes a token
// for each try.
func TestFailedTaintIsRetried(t *testing.T) {
	c, all := New(defaults()), nodes(1, 1)
	now := start
	for _, wait := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second} {
		out := c.Step(now, seen(all))
		if len(out.Taints) != 1 || !out.Taints[0].Evicted {
			t.Fatalf("after %v: taints %+v, want one NoExecute taint", now.Sub(start), out.Taints)
		}
		if again := c.Step(now, seen(all)); len(again.Taints) != 0 {
			t.Fatalf("after %v: taint requested again while in flight: %+v", now.Sub(start), again.Taints)
		}
		c.End(now, out.Taints[0].Node, out.Taints[0].UID, WriteTaints, false)
		if early := c.Step(now.Add(wait-1), seen(all)); len(early.Taints) != 0 || early.Next.Sub(now) > wait {
			t.Fatalf("after %v: retried before the backoff of %v: %+v, next step in %v", now.Sub(start), wait, early.Taints, early.Next.Sub(now))
		}
		now = now.Add(wait)
	}
}

// A failed taint write is not retried if the node is ready again.
func TestFailedTaintIsDropped(t *testing.T) {
	c, all := New(defaults()), nodes(1, 1)
	out := c.Step(start, seen(all))
	c.End(start, out.Taints[0].Node, out.Taints[0].UID, WriteTaints, false)
	all["n001"].Status.Conditions[0].Status = v1.ConditionTrue
	if out := c.Step(start.Add(time.Minute/2), seen(all)); len(out.Taints) != 0 {
		t.Errorf("taints of a node that is ready again = %+v, want none", out.Taints)
	}
}

// A failed mark is retried until the pod is gone or marked.
func TestFailedMarkIsRetried(t *testing.T) {
	c, all, s := New(defaults()), nodes(2, 0), Seen{}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "p"}, Spec: v1.PodSpec{NodeName: "n000"},
		Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}}
	pods := []*v1.Pod{pod}
	s = seen(all)
	s.Pods = func(node string) []*v1.Pod {
		if node == "n000" {
			return pods
		}
		return nil
	}
	c.Step(start, s)
	at := start.Add(51 * time.Second)
	beat(all, at, 1, 2)
	out := c.Step(at, s)
	if len(out.Marks) != 1 {
		t.Fatalf("marks of a node that fell silent = %+v, want one", out.Marks)
	}
	c.EndMark(at, out.Marks[0], false)
	ready := &all["n000"].Status.Conditions[0]
	ready.Status, ready.Reason = v1.ConditionUnknown, reasonUnknown
	if out = c.Step(at.Add(time.Second), s); len(out.Marks) != 1 {
		t.Fatalf("marks after a failed write = %+v, want one", out.Marks)
	}
	c.EndMark(at, out.Marks[0], false)
	pods = nil
	beat(all, at.Add(time.Minute), 1, 2)
	if out = c.Step(at.Add(time.Minute), s); len(out.Marks) != 0 || len(c.records["n000"].marks) != 0 {
		t.Errorf("marks without the pod = %+v, want none", out.Marks)
	}
}

// Records are deleted with their nodes, and zones with their last node. Upstream keeps health
// records forever.
func TestRecordsAreDeleted(t *testing.T) {
	c := New(defaults())
	c.Step(start, seen(nodes(3, 3)))
	c.Step(start, seen(nil))
	if len(c.records)+len(c.zones) != 0 {
		t.Errorf("%d records and %d zones left without nodes, want none", len(c.records), len(c.zones))
	}
}

// While nodes or Leases cannot be read, and for a minute afterwards, no node is tainted.
func TestStaleReadsAreDoubt(t *testing.T) {
	c, all := New(defaults()), nodes(1, 1)
	s := seen(all)
	s.Read = start.Add(-11 * time.Second)
	if out := c.Step(start, s); out.Doubt == "" || len(out.Taints) != 1 || out.Taints[0].Evicted {
		t.Errorf("11s without a read: Step returns %+v, want doubt and no NoExecute taint", out)
	}
	s.Read = start.Add(59 * time.Second)
	beat(all, s.Read, 0, 1)
	if out := c.Step(s.Read, s); out.Doubt == "" {
		t.Errorf("59s after the doubt: Step returns %+v, want doubt", out)
	}
	s.Read = start.Add(61 * time.Second)
	if out := c.Step(s.Read, s); out.Doubt != "" {
		t.Errorf("61s after the doubt: Step returns %+v, want no doubt", out)
	}
}

// A node is silent only if a read after its grace period shows no contact.
func TestSilenceNeedsCurrentRead(t *testing.T) {
	c, all := New(defaults()), nodes(2, 0)
	s := seen(all)
	s.Read = start
	c.Step(start, s)
	at := start.Add(51 * time.Second)
	s.Read = start.Add(49 * time.Second)
	if out := c.Step(at, s); !out.StaleRead || len(out.Status)+len(out.Taints) != 0 {
		t.Errorf("read before the deadline: Step returns %+v, want StaleRead and no write", out)
	}
	s.Read = at
	if out := c.Step(at, s); out.StaleRead || len(out.Status) != 2 {
		t.Errorf("read after the deadline: Step returns %+v, want two silent nodes", out)
	}
}

// A renewal counts from its arrival, not from the step that sees it.
func TestRenewalCountsFromArrival(t *testing.T) {
	c, all := New(defaults()), nodes(2, 0)
	renewed := func(at time.Time) map[string]*coordination.Lease {
		l := &coordination.Lease{Spec: coordination.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}}}
		return map[string]*coordination.Lease{"n000": l, "n001": l}
	}
	s := seen(all)
	s.Leases = renewed(start)
	c.Step(start, s)
	came := start.Add(10 * time.Second)
	s.Leases = renewed(came)
	s.Arrivals = func(string) (time.Time, time.Time) { return start, came }
	if out := c.Step(start.Add(50*time.Second), s); !out.Next.Equal(came.Add(50 * time.Second)) {
		t.Errorf("next step %v after start, want 1m0s", out.Next.Sub(start))
	}
	if out := c.Step(start.Add(61*time.Second), s); len(out.Status) != 2 {
		t.Errorf("51s after the renewal: Step returns %+v, want two silent nodes", out)
	}
}

// Taints that follow from conditions are written after the conditions.
func TestConditionsBeforeTaints(t *testing.T) {
	c, all := New(defaults()), nodes(2, 0)
	c.Step(start, seen(all))
	at := start.Add(51 * time.Second)
	out := c.Step(at, seen(all))
	if len(out.Status) != 2 || len(out.Taints) != 2 {
		t.Fatalf("silent nodes: Step returns %+v, want two status and two taint writes", out)
	}
	for _, n := range []string{"n000", "n001"} {
		c.End(at, n, all[n].UID, WriteStatus, n == "n000")
		c.End(at, n, all[n].UID, WriteTaints, false)
	}
	silent := all["n000"].DeepCopy()
	silent.Status.Conditions[0].Status = v1.ConditionUnknown
	all["n000"] = silent
	out = c.Step(at.Add(249*time.Millisecond), seen(all))
	if len(out.Status)+len(out.Taints) != 0 {
		t.Errorf("during the backoff: Step returns %+v, want no write", out)
	}
	// a longer backoff
	c.End(at.Add(249*time.Millisecond), "n001", all["n001"].UID, WriteStatus, false)
	out = c.Step(at.Add(251*time.Millisecond), seen(all))
	if len(out.Taints) != 1 || out.Taints[0].Node != "n000" {
		t.Errorf("taints after the backoff = %+v, want those of n000", out.Taints)
	}
}

// With DelayFirstToken the first token comes one interval later.
func TestFirstTokenIsDelayed(t *testing.T) {
	config := defaults()
	config.DelayFirstToken = true
	c, all := New(config), nodes(1, 1)
	for _, after := range []time.Duration{0, 9 * time.Second} {
		out := c.Step(start.Add(after), seen(all))
		for _, w := range out.Taints {
			if w.Evicted {
				t.Errorf("after %v: NoExecute taint %+v, want none yet", after, w)
			}
			c.End(start, w.Node, w.UID, WriteTaints, true)
		}
	}
	if out := c.Step(start.Add(10*time.Second), seen(all)); len(out.Taints) != 1 || !out.Taints[0].Evicted {
		t.Errorf("taints after 10s = %+v, want one NoExecute taint", out.Taints)
	}
}

// A taint that replaces its counterpart keeps TimeAdded if that is set and in the past.
func TestSwappedTaintKeepsTime(t *testing.T) {
	before, later := metav1.NewTime(start.Add(-time.Hour)), metav1.NewTime(start.Add(time.Hour))
	for name, c := range map[string]struct{ had, want *metav1.Time }{
		"in the past":   {&before, &before},
		"unset":         {nil, nil},
		"in the future": {&later, nil},
	} {
		all := nodes(3, 1)
		n := all["n003"]
		n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute, TimeAdded: c.had}}
		core := New(defaults())
		core.Step(start, seen(all))
		core.End(start, n.Name, n.UID, WriteTaints, false)
		now := start.Add(2 * time.Second)
		out := core.Step(now, seen(all))
		if len(out.Taints) != 1 || len(out.Taints[0].Add) != 2 || len(out.Taints[0].Remove) != 1 {
			t.Fatalf("%s: taints %+v, want two added and one removed", name, out.Taints)
		}
		got, want := out.Taints[0].Add[0], metav1.NewTime(now)
		if c.want != nil {
			want = *c.want
		}
		if got.Key != v1.TaintNodeNotReady || got.Effect != v1.TaintEffectNoExecute || !got.TimeAdded.Equal(&want) {
			t.Errorf("TimeAdded %s: added %v with %v, want %v", name, got.Key, got.TimeAdded, want)
		}
	}
}

// The rate limits taints, not tokens. Of two nodes that fail together, neither gets its taint right
// after the other, whichever write fails. A node with writes that always fail delays the other for
// a limited time only.
func TestRateWithFailedWrites(t *testing.T) {
	for fails := range 12 {
		core, all := New(defaults()), nodes(5, 2)
		var tried []struct {
			node string
			at   time.Time
		}
		failed, done := 0, map[string]time.Time{}
		for now := start; now.Before(start.Add(5 * time.Minute)); now = now.Add(250 * time.Millisecond) {
			for name := range all { // all are alive
				n := all[name].DeepCopy()
				n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now)
				all[name] = n
			}
			for _, w := range core.Step(now, seen(all)).Taints {
				executes := slices.ContainsFunc(w.Add, func(t v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute })
				ok := !executes || w.Node != "n005" || failed >= fails
				if core.End(now, w.Node, w.UID, WriteTaints, ok); executes {
					tried = append(tried, struct {
						node string
						at   time.Time
					}{w.Node, now})
				}
				if !ok {
					failed++
					continue
				}
				n := all[w.Node].DeepCopy()
				n.Spec.Taints = append(n.Spec.Taints, w.Add...)
				if all[w.Node] = n; executes {
					done[w.Node] = now
				}
			}
		}
		for i := 1; i < len(tried); i++ {
			if apart := tried[i].at.Sub(tried[i-1].at); tried[i].node != tried[i-1].node && apart < 10*time.Second {
				t.Errorf("after %d failures: %s is written %v after %s, want at least 10s", fails, tried[i].node, apart, tried[i-1].node)
			}
		}
		if at := done["n006"]; at.IsZero() || at.Sub(start) > 40*time.Second {
			t.Errorf("after %d failures of n005: n006 tainted after %v, want at most 40s", fails, at.Sub(start))
		}
		if done["n005"].IsZero() {
			t.Errorf("after %d failures: n005 is not tainted", fails)
		}
	}
}

// Late steps do not lower the rate: a step that is late by up to half a second gives the missed
// tokens. Older tokens are lost, and without waiting nodes no tokens are saved.
func TestRateWithLateSteps(t *testing.T) {
	config := defaults()
	// no node falls silent
	config.NodeEvictionRate, config.NodeMonitorGracePeriod = 20, time.Hour
	c, all := New(config), nodes(200, 0)
	now := start
	c.Step(now, seen(all))
	given := func(late time.Duration) (n int) {
		now = now.Add(late)
		out := c.Step(now, seen(all))
		for i := range out.Taints {
			w := &out.Taints[i]
			if w.Evicted {
				n++
				is := all[w.Node].DeepCopy()
				is.Spec.Taints = w.Add
				all[w.Node] = is
			}
			c.End(now, w.Node, w.UID, WriteTaints, true)
		}
		return n
	}
	fall := func(from, to int) {
		for i := from; i < to; i++ {
			is := all[fmt.Sprintf("n%03d", i)].DeepCopy()
			is.Status.Conditions[0].Status = v1.ConditionFalse
			all[is.Name] = is
		}
	}
	fall(0, 100)
	sum := given(time.Minute)
	if sum != 1 {
		t.Errorf("%d nodes tainted by the first step, want 1", sum)
	}
	for range 40 {
		sum += given(100 * time.Millisecond)
	}
	if sum != 81 {
		t.Errorf("%d nodes tainted within 4 s, want 81", sum)
	}
	if n := given(5 * time.Second); n != 11 {
		t.Errorf("%d nodes tainted by a step after 5 s, want 11", n)
	}
	for range 20 {
		given(50 * time.Millisecond)
	}
	given(100 * time.Millisecond)
	fall(100, 110)
	if n := given(5 * time.Second); n != 1 {
		t.Errorf("%d nodes tainted by the first step after a pause, want 1", n)
	}
}
