package lifecycle

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster"
)

// Excluded nodes count in no zone's state. NoneReady names the zones without a ready node: excluded
// ones count there only if the zone has no others.
func TestExcludedNodes(t *testing.T) {
	for name, c := range map[string]struct {
		ready, not, excludedReady, excludedNot int
		noneReady, disrupted                   bool
	}{
		"ready and not":         {1, 1, 0, 0, false, false},
		"none ready":            {0, 1, 0, 0, true, true},
		"only excluded ready":   {0, 0, 1, 0, false, false},
		"only excluded not":     {0, 0, 0, 1, true, false},
		"both excluded":         {0, 0, 1, 1, false, false},
		"not and excluded":      {0, 1, 1, 0, true, true},
		"ready and excluded":    {1, 0, 0, 1, false, false},
		"not ready, both kinds": {0, 1, 0, 1, true, true},
	} {
		all, i := nodes(c.ready+c.excludedReady, c.not+c.excludedNot), 0
		for _, key := range []string{"n000", "n001", "n002"} {
			n := all[key]
			if n == nil {
				break
			}
			isReady := n.Status.Conditions[0].Status == v1.ConditionTrue
			if isReady && i >= c.ready || !isReady && i-c.ready-c.excludedReady >= c.not {
				n.Labels = map[string]string{labelExcluded: ""}
			}
			i++
		}
		core := New(defaults())
		out := core.Step(start, seen(all))
		_, counted := out.Zones[NoZone]
		if out.NoneReady[NoZone] != c.noneReady || counted != (c.ready+c.not > 0) {
			t.Errorf("%s: none ready %t, zone counts %t, want %t and %t", name, out.NoneReady[NoZone], counted, c.noneReady, c.ready+c.not > 0)
		}
		state, rate := core.Zones()[NoZone].State, core.Zones()[NoZone].Rate
		if (state == FullDisruption) != c.disrupted || (rate == 0) != c.disrupted {
			t.Errorf("%s: zone state %s, rate %v, want full disruption: %t", name, state, rate, c.disrupted)
		}
	}
	// A zone of excluded nodes does not prevent the disruption of all others.
	all := nodes(1, 1)
	inZones(all, 1)
	all["n000"].Labels[labelExcluded] = ""
	core := New(defaults())
	core.Step(start, seen(all))
	if rate := core.Zones()[ZoneOf(all["n001"])].Rate; rate != 0 {
		t.Errorf("all nodes that count are not ready: rate %v, want 0", rate)
	}
}

// The report of a node has its place in the queue and the time of its taint.
func TestReportOfWaitingNodes(t *testing.T) {
	core, all := New(defaults()), nodes(5, 2)
	for i, name := range []string{"n005", "n006"} {
		all[name].Status.Conditions[0].LastTransitionTime = metav1.Time{Time: start.Add(-time.Duration(i+1) * time.Minute)}
	}
	for _, w := range core.Step(start, seen(all)).Taints {
		core.End(start, w.Node, w.UID, WriteTaints, true)
		if w.Evicted && w.Node != "n006" {
			t.Errorf("node %s gets the first token, want n006, which failed first", w.Node)
		}
		if since := w.NotReadySince; !since.Equal(start.Add(-time.Minute)) && !since.Equal(start.Add(-2*time.Minute)) {
			t.Errorf("node %s is not ready since %v, want its transition", w.Node, since)
		}
		n := all[w.Node].DeepCopy()
		n.Spec.Taints = w.Add
		all[w.Node] = n
	}
	later := nodes(8, 0)["n007"]
	later.Status.Conditions[0].Status = v1.ConditionUnknown
	all["n007"] = later
	reports := core.Report(start.Add(time.Second), seen(all))
	for _, r := range reports {
		place, due := 0, time.Time{}
		if r.Node.Name == "n005" {
			place, due = 1, start.Add(10*time.Second)
		}
		if r.Place != place || !r.Due.Equal(due) {
			t.Errorf("node %s: place %d, due %v, want %d and %v", r.Node.Name, r.Place, r.Due, place, due)
		}
	}
	if last := reports[len(reports)-1]; last.Ready != v1.ConditionUnknown || !last.Heard.Equal(start.Add(time.Second)) {
		t.Errorf("node that no step has seen: report %+v, want its condition, heard now", last)
	}
}

// A node with Ready=Unknown fell silent at the transition if the record is new, otherwise at the end
// of its grace period, or now if another program was earlier. A transition in the future is now.
func TestSilenceBegins(t *testing.T) {
	for name, c := range map[string]struct {
		isNew          bool
		transition, at time.Duration
		want           time.Duration
	}{
		"new record":           {true, -time.Hour, 0, -time.Hour},
		"new, in the future":   {true, time.Hour, 0, 0},
		"after the grace":      {false, 55 * time.Second, time.Minute, 50 * time.Second},
		"during the grace":     {false, 20 * time.Second, 30 * time.Second, 30 * time.Second},
		"no time, after grace": {false, -1000 * time.Hour, time.Minute, 50 * time.Second},
	} {
		core, all := New(defaults()), nodes(3, 0)
		if !c.isNew {
			core.Step(start, seen(all))
		}
		ready, now := &all["n000"].Status.Conditions[0], start.Add(c.at)
		ready.Status, ready.LastTransitionTime = v1.ConditionUnknown, metav1.Time{Time: start.Add(c.transition)}
		out := core.Step(now, seen(all))
		if r := core.Report(now, seen(all))[0]; !r.SilentSince.Equal(start.Add(c.want)) || !r.NotReadySince.Equal(start.Add(c.want)) {
			t.Errorf("%s: silent since %v, not ready since %v after start, want %v", name, r.SilentSince.Sub(start), r.NotReadySince.Sub(start), c.want)
		}
		for _, w := range out.Taints {
			if w.Node == "n000" && !w.NotReadySince.Equal(start.Add(c.want)) {
				t.Errorf("%s: taint write has not ready since %v after start, want %v", name, w.NotReadySince.Sub(start), c.want)
			}
		}
	}
}

// A grace period includes its last instant, for the node and for the read that proves the silence.
// A kubelet's old Lease counts for six minutes after its status.
func TestLastInstants(t *testing.T) {
	core, all := New(defaults()), nodes(2, 0)
	core.Step(start, seen(all))
	at := start.Add(50 * time.Second)
	if out := core.Step(at, seen(all)); len(out.Status) != 0 {
		t.Errorf("at the end of the grace period: status writes %+v, want none yet", out.Status)
	}
	s := seen(all)
	s.Read = at
	if out := core.Step(at.Add(time.Second), s); !out.StaleRead || len(out.Status) != 0 {
		t.Errorf("read at the end of the grace period: Step returns %+v, want StaleRead and no write", out)
	}
	for after, want := range map[time.Duration]bool{statusPeriod: true, statusPeriod + 1: false} {
		core, all := New(defaults()), nodes(2, 0)
		s := seen(all)
		l := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "old"}}}}
		s.Leases["n000"] = l
		core.Step(start, s)
		l = l.DeepCopy()
		l.Spec.RenewTime = &metav1.MicroTime{Time: start.Add(after)}
		s.Leases["n000"] = l
		silent := map[string]bool{}
		for _, w := range core.Step(start.Add(after), s).Status {
			silent[w.Node] = true
		}
		if silent["n000"] == want || !silent["n001"] {
			t.Errorf("old Lease renewed %v after the status: silent nodes %v, want n000 to be alive: %t", after, silent, want)
		}
	}
}

// After a gap in the watch, a ready node is not called silent within the return period, or the grace
// period if that is shorter. A node that never posted a status is.
func TestNoSilenceAfterGap(t *testing.T) {
	for _, grace := range []time.Duration{50 * time.Second, 5 * time.Second} {
		config, all := defaults(), nodes(3, 0)
		config.NodeMonitorGracePeriod = grace
		wait := min(grace, cluster.ReturnPeriod)
		all["n002"].Status.Conditions = nil
		s := seen(all)
		s.WatchedSince = start
		for name := range all { // n001 renewed its Lease after the gap, by a clock that is behind
			s.Leases[name] = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{
				Time: &metav1.Time{Time: start.Add(-time.Hour)}}}}}
		}
		s.Arrivals = func(name string) (beat, lease time.Time) {
			if name == "n001" {
				return start.Add(-time.Hour), start.Add(time.Second)
			}
			return start, start
		}
		core := New(config)
		for _, after := range []time.Duration{2 * time.Second, wait, wait + 1} {
			got, want := "", "n002 "
			if after > wait {
				want = "n000 n002 "
			}
			out := core.Step(start.Add(after), s)
			for _, w := range out.Status {
				got += w.Node + " "
				core.End(start.Add(after), w.Node, w.UID, WriteStatus, true)
			}
			if got != want || after < wait && !out.Next.Equal(start.Add(wait)) {
				t.Errorf("grace period %v, %v after the gap: silent nodes %q, next step after %v, want %q and %v", grace, after, got,
					out.Next.Sub(start), want, wait)
			}
		}
	}
}
