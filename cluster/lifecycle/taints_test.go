package lifecycle

import (
	"slices"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keysOf returns the keys of the taints with an effect, in order.
func keysOf(taints []v1.Taint, effect v1.TaintEffect) (out []string) {
	for _, t := range taints {
		if t.Effect == effect {
			out = append(out, t.Key)
		}
	}
	return out
}

// Each condition has its NoSchedule taint while it holds, and only then.
func TestTaintsFollowConditions(t *testing.T) {
	is := func(what v1.NodeConditionType, status v1.ConditionStatus) func(*v1.Node) {
		return func(n *v1.Node) {
			n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == what })
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: what, Status: status, LastHeartbeatTime: metav1.Time{Time: start}})
		}
	}
	for name, c := range map[string]struct {
		edit func(*v1.Node)
		want []string
	}{
		"memory pressure":      {is(v1.NodeMemoryPressure, v1.ConditionTrue), []string{v1.TaintNodeMemoryPressure}},
		"disk pressure":        {is(v1.NodeDiskPressure, v1.ConditionTrue), []string{v1.TaintNodeDiskPressure}},
		"pid pressure":         {is(v1.NodePIDPressure, v1.ConditionTrue), []string{v1.TaintNodePIDPressure}},
		"no network":           {is(v1.NodeNetworkUnavailable, v1.ConditionTrue), []string{v1.TaintNodeNetworkUnavailable}},
		"not ready":            {is(v1.NodeReady, v1.ConditionFalse), []string{v1.TaintNodeNotReady}},
		"silent":               {is(v1.NodeReady, v1.ConditionUnknown), []string{v1.TaintNodeUnreachable}},
		"cordoned":             {func(n *v1.Node) { n.Spec.Unschedulable = true }, []string{v1.TaintNodeUnschedulable}},
		"no pid pressure":      {is(v1.NodePIDPressure, v1.ConditionFalse), nil},
		"unknown pid pressure": {is(v1.NodePIDPressure, v1.ConditionUnknown), nil},
		"network":              {is(v1.NodeNetworkUnavailable, v1.ConditionFalse), nil},
	} {
		core, all := New(defaults()), nodes(3, 0)
		c.edit(all["n000"])
		var added []v1.Taint
		for _, w := range core.Step(start, seen(all)).Taints {
			core.End(start, w.Node, w.UID, WriteTaints, true)
			added = append(added, w.Add...)
		}
		if got := keysOf(added, v1.TaintEffectNoSchedule); !slices.Equal(got, c.want) {
			t.Errorf("%s: NoSchedule taints %v are added, want %v", name, got, c.want)
		}
		all["n000"] = nodes(1, 0)["n000"]
		all["n000"].Spec.Taints = added
		var removed []v1.Taint
		for _, w := range core.Step(start.Add(2*time.Second), seen(all)).Taints {
			removed = append(removed, w.Remove...)
		}
		if got := keysOf(removed, v1.TaintEffectNoSchedule); !slices.Equal(got, c.want) {
			t.Errorf("%s, which ended: NoSchedule taints %v are removed, want %v", name, got, c.want)
		}
	}
}

// The taints of a node that falls silent follow from its new conditions, in the same step.
func TestSilenceEndsPressureTaints(t *testing.T) {
	core, all := New(defaults()), nodes(3, 0)
	n := all["n000"]
	for _, what := range []v1.NodeConditionType{v1.NodePIDPressure, v1.NodeMemoryPressure} {
		n.Status.Conditions = append([]v1.NodeCondition{{Type: what, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Time{Time: start}}},
			n.Status.Conditions...)
	}
	n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule},
		{Key: v1.TaintNodePIDPressure, Effect: v1.TaintEffectNoSchedule}}
	if out := core.Step(start, seen(all)); len(out.Taints) != 0 {
		t.Fatalf("taints of a node that has them = %+v, want no write", out.Taints)
	}
	at := start.Add(51 * time.Second)
	beat(all, at, 1, 3)
	out := core.Step(at, seen(all))
	if len(out.Taints) != 1 || len(out.Taints[0].Remove) != 2 {
		t.Errorf("taints of a node that fell silent = %+v, want both pressure taints removed", out.Taints)
	}
}

// A condition of the bridge has a taint with the configured effect while its heartbeat is younger
// than 15 minutes.
func TestPressureTaintOfBridge(t *testing.T) {
	const hard, soft = v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule
	for name, c := range map[string]struct {
		setting PressureTaint
		status  v1.ConditionStatus
		age     time.Duration
		want    map[v1.TaintEffect]int
	}{
		"prefer":   {PressurePrefer, v1.ConditionTrue, 0, map[v1.TaintEffect]int{soft: 1}},
		"hard":     {PressureHard, v1.ConditionTrue, 0, map[v1.TaintEffect]int{hard: 1}},
		"off":      {PressureOff, v1.ConditionTrue, 0, nil},
		"False":    {PressurePrefer, v1.ConditionFalse, 0, nil},
		"young":    {PressurePrefer, v1.ConditionTrue, maxHeartbeatAge - 1, map[v1.TaintEffect]int{soft: 1}},
		"too old":  {PressurePrefer, v1.ConditionTrue, maxHeartbeatAge, nil},
		"in 1h":    {PressurePrefer, v1.ConditionTrue, -time.Hour, map[v1.TaintEffect]int{soft: 1}},
		"and hard": {PressureHard, v1.ConditionTrue, maxHeartbeatAge, nil},
	} {
		for i := range bridgeConditions {
			config, all := defaults(), nodes(3, 0)
			config.PressureTaint = c.setting
			n := all["n000"]
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: bridgeConditions[i].condition, Status: c.status,
				LastHeartbeatTime: metav1.Time{Time: start.Add(-c.age)}})
			got := map[v1.TaintEffect]int{}
			for _, w := range New(config).Step(start, seen(all)).Taints {
				for _, a := range w.Add {
					if got[a.Effect]++; a.Key != bridgeConditions[i].key {
						t.Errorf("%s: %s has the taint %s, want %s", name, bridgeConditions[i].condition, a.Key, bridgeConditions[i].key)
					}
				}
			}
			if got[hard] != c.want[hard] || got[soft] != c.want[soft] {
				t.Errorf("%s: %s has taints %v, want %v", name, bridgeConditions[i].condition, got, c.want)
			}
		}
	}
}

// A node that loses its NoExecute taint needs another token for the next one.
func TestLostTaintNeedsToken(t *testing.T) {
	core, all := New(defaults()), nodes(3, 1)
	executes := func(out *Actions) (count int) {
		for _, w := range out.Taints {
			if core.End(start, w.Node, w.UID, WriteTaints, true); w.Evicted {
				all[w.Node].Spec.Taints = w.Add
				count++
			}
		}
		return count
	}
	if got := executes(core.Step(start, seen(all))); got != 1 {
		t.Fatalf("%d nodes get a NoExecute taint, want 1", got)
	}
	executes(core.Step(start.Add(time.Second), seen(all)))
	all["n003"].Spec.Taints = keepEffect(all["n003"].Spec.Taints, v1.TaintEffectNoSchedule)
	if got := executes(core.Step(start.Add(5*time.Second), seen(all))); got != 0 {
		t.Errorf("taint removed 5s after it was added: %d nodes get one again, want none yet", got)
	}
	if got := executes(core.Step(start.Add(10*time.Second), seen(all))); got != 1 {
		t.Errorf("taint removed 10s after it was added: %d nodes get one again, want 1", got)
	}
}

func keepEffect(taints []v1.Taint, effect v1.TaintEffect) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t v1.Taint) bool { return t.Effect != effect })
}

// The first token of a zone comes one interval after the newest NoExecute taint of this program in
// it: another instance used the last one.
func TestFirstTokenFollowsOldTaints(t *testing.T) {
	const other, executes = "example.com/other", v1.TaintEffectNoExecute
	for name, c := range map[string]struct {
		key    string
		effect v1.TaintEffect
		want   time.Duration
	}{
		"not-ready": {v1.TaintNodeNotReady, executes, 6 * time.Second}, "unreachable": {v1.TaintNodeUnreachable, executes, 6 * time.Second},
		"other key": {other, executes, 0}, "other effect": {v1.TaintNodeNotReady, v1.TaintEffectNoSchedule, 0},
	} {
		core, all := New(defaults()), nodes(3, 2)
		all["n003"].Spec.Taints = []v1.Taint{{Key: c.key, Effect: c.effect, TimeAdded: &metav1.Time{Time: start.Add(-4 * time.Second)}}}
		if c.key != other && c.effect == executes {
			delete(all, "n002")
		}
		first := time.Duration(-1)
		for at := time.Duration(0); at <= 10*time.Second && first < 0; at += time.Second {
			for _, w := range core.Step(start.Add(at), seen(all)).Taints {
				if w.Evicted {
					first = at
				}
				core.End(start.Add(at), w.Node, w.UID, WriteTaints, true)
				n := all[w.Node].DeepCopy()
				n.Spec.Taints = append(slices.DeleteFunc(n.Spec.Taints, func(t v1.Taint) bool {
					return slices.ContainsFunc(w.Remove, func(r v1.Taint) bool { return r.Key == t.Key && r.Effect == t.Effect })
				}), w.Add...)
				all[w.Node] = n
			}
		}
		if first != c.want {
			t.Errorf("taint %s 4s before the start: first token after %v, want %v", name, first, c.want)
		}
	}
}

// A new record keeps the NoExecute taints that another instance added, and decides a second later.
func TestNewRecordKeepsTaints(t *testing.T) {
	for status, key := range map[v1.ConditionStatus]string{v1.ConditionTrue: v1.TaintNodeNotReady, v1.ConditionUnknown: v1.TaintNodeNotReady,
		v1.ConditionFalse: v1.TaintNodeUnreachable} {
		core, all := New(defaults()), nodes(3, 0)
		n := all["n000"]
		n.Status.Conditions[0].Status = status
		n.Spec.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: start.Add(-time.Hour)}}}
		removed := func(at time.Duration) (out []string, next time.Time) {
			done := core.Step(start.Add(at), seen(all))
			for _, w := range done.Taints {
				core.End(start.Add(at), w.Node, w.UID, WriteTaints, true)
				out = append(out, keysOf(w.Remove, v1.TaintEffectNoExecute)...)
			}
			return out, done.Next
		}
		if got, next := removed(0); len(got) != 0 || next.After(start.Add(recheckDelay)) {
			t.Errorf("Ready=%s: first step removes %v, next step after %v, want nothing and 1s", status, got, next.Sub(start))
		}
		if got, _ := removed(recheckDelay); !slices.Equal(got, []string{key}) {
			t.Errorf("Ready=%s: second step removes %v, want %s", status, got, key)
		}
	}
}

// A program that swaps the two NoExecute taints in two writes may end in between. The node then loses
// the one that does not match its condition.
func TestNodeWithBothTaints(t *testing.T) {
	added := &metav1.Time{Time: start.Add(-time.Hour)}
	core, all := New(defaults()), nodes(3, 1)
	for _, key := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable} {
		all["n003"].Spec.Taints = append(all["n003"].Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoExecute, TimeAdded: added})
	}
	core.Step(start, seen(all))
	core.End(start, "n003", all["n003"].UID, WriteTaints, false)
	out := core.Step(start.Add(2*time.Second), seen(all))
	if len(out.Taints) != 1 || len(keysOf(out.Taints[0].Add, v1.TaintEffectNoExecute)) != 0 ||
		!slices.Equal(keysOf(out.Taints[0].Remove, v1.TaintEffectNoExecute), []string{v1.TaintNodeUnreachable}) {
		t.Errorf("not ready node with both NoExecute taints: Step requests %+v, want unreachable removed", out.Taints)
	}
}

// When all zones are disrupted, the NoExecute taints of silent nodes are removed after their status
// is written. The one of an excluded node that is ready does not wait.
func TestTaintsEndWithAllZones(t *testing.T) {
	core, all := New(defaults()), nodes(2, 1)
	old := []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: start.Add(-time.Hour)}}}
	all["n001"].Labels = map[string]string{labelExcluded: ""}
	all["n002"].Spec.Taints = old
	for _, w := range core.Step(start, seen(all)).Taints {
		core.End(start, w.Node, w.UID, WriteTaints, true)
	}
	all["n000"].Status.Conditions[0].Status = v1.ConditionFalse
	all["n001"].Spec.Taints = old
	got := map[string]bool{}
	for _, w := range core.Step(start.Add(2*time.Second), seen(all)).Taints {
		if len(keysOf(w.Remove, v1.TaintEffectNoExecute)) > 0 {
			got[w.Node] = w.AllDisrupted
		}
	}
	if disrupted, removed := got["n002"]; !removed || !disrupted || len(got) != 2 || got["n001"] {
		t.Errorf("removed NoExecute taints (true: because of the disruption) = %v, want true for n002, false for n001", got)
	}
}

// Derived labels are written where they are missing or wrong, and only there.
func TestDerivedLabels(t *testing.T) {
	for name, c := range map[string]struct{ labels, want map[string]string }{
		"none":    {nil, nil},
		"missing": {map[string]string{v1.LabelOSStable: "linux"}, map[string]string{"beta.kubernetes.io/os": "linux"}},
		"wrong": {map[string]string{v1.LabelArchStable: "arm64", "beta.kubernetes.io/arch": "amd64"},
			map[string]string{"beta.kubernetes.io/arch": "arm64"}},
		"right":       {map[string]string{v1.LabelOSStable: "linux", "beta.kubernetes.io/os": "linux"}, nil},
		"not derived": {map[string]string{"beta.kubernetes.io/os": "linux"}, nil},
	} {
		all := nodes(1, 0)
		all["n000"].Labels = c.labels
		out := New(defaults()).Step(start, seen(all)).Labels
		if len(out) != min(len(c.want), 1) {
			t.Errorf("labels %s: Step requests %+v, want %v", name, out, c.want)
			continue
		}
		for label, value := range c.want {
			if len(out[0].Set) != 1 || out[0].Set[label] != value {
				t.Errorf("labels %s: Step requests %v, want %v", name, out[0].Set, c.want)
			}
		}
	}
}

// At a start, the last contact with a node is the newest of the API server's times: of its creation,
// its Lease, and the status that its kubelet wrote.
func TestLastContactAtStart(t *testing.T) {
	written := func(manager, subresource string, age time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: &metav1.Time{Time: start.Add(-age)}}
	}
	untimed := written("kubelet", "status", 0)
	untimed.Time = nil
	zero := written("kubelet", "", 0)
	zero.Time = &metav1.Time{}
	const sec = time.Second
	for name, c := range map[string]struct {
		lease, status []metav1.ManagedFieldsEntry
		noReady       bool
		want          time.Duration // before the start
	}{
		"Lease alone":               {[]metav1.ManagedFieldsEntry{written("kubelet", "", 40*sec)}, nil, false, 40 * sec},
		"newer status":              {[]metav1.ManagedFieldsEntry{written("kubelet", "", 40*sec)}, []metav1.ManagedFieldsEntry{written("kubelet", "status", 20*sec)}, false, 20 * sec},
		"older status":              {[]metav1.ManagedFieldsEntry{written("kubelet", "", 40*sec)}, []metav1.ManagedFieldsEntry{written("kubelet", "status", 50*sec)}, false, 40 * sec},
		"status of another":         {[]metav1.ManagedFieldsEntry{written("kubelet", "", 40*sec)}, []metav1.ManagedFieldsEntry{written("other", "status", 20*sec)}, false, 40 * sec},
		"no status of the kubelet":  {[]metav1.ManagedFieldsEntry{written("kubelet", "", 40*sec)}, []metav1.ManagedFieldsEntry{written("kubelet", "", 20*sec)}, false, 40 * sec},
		"status without time":       {[]metav1.ManagedFieldsEntry{written("kubelet", "", 40*sec)}, []metav1.ManagedFieldsEntry{untimed}, false, 40 * sec},
		"Lease without time":        {[]metav1.ManagedFieldsEntry{untimed}, nil, false, 0},
		"Lease with time zero":      {[]metav1.ManagedFieldsEntry{zero}, nil, false, 0},
		"no Lease":                  {nil, nil, false, 0},
		"never Ready":               {nil, []metav1.ManagedFieldsEntry{written("kubelet", "status", 20*sec)}, true, 45 * sec},
		"a clock in the future":     {[]metav1.ManagedFieldsEntry{written("kubelet", "", -40*sec)}, nil, false, 0},
		"never Ready, with a Lease": {[]metav1.ManagedFieldsEntry{written("kubelet", "", 30*sec)}, nil, true, 30 * sec},
	} {
		for _, skew := range []time.Duration{0, 5 * time.Second} {
			all := nodes(1, 0)
			n := all["n000"]
			n.CreationTimestamp, n.ManagedFields = metav1.Time{Time: start.Add(-45*sec + skew)}, shifted(c.status, skew)
			if c.noReady {
				n.Status.Conditions = nil
			}
			s := seen(all)
			if s.ClockSkew = skew; c.lease != nil {
				s.Leases["n000"] = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: shifted(c.lease, skew)},
					Spec: coordination.LeaseSpec{RenewTime: &metav1.MicroTime{Time: start}}}
			}
			core := New(defaults())
			before := core.Report(start, s)[0]
			core.Step(start, s)
			after := core.Report(start, s)[0]
			want := start.Add(-c.want)
			if !before.Heard.Equal(want) || !after.Heard.Equal(want) || (before.Ready == "") != c.noReady {
				t.Errorf("%s, clock skew %v: last contact %v before the first step, %v after it, want %v", name, skew,
					before.Heard.Sub(start), after.Heard.Sub(start), -c.want)
			}
		}
	}
}

// shifted returns the entries in the time of a clock that is ahead. A missing time stays missing.
func shifted(fields []metav1.ManagedFieldsEntry, ahead time.Duration) (out []metav1.ManagedFieldsEntry) {
	for _, f := range fields {
		if f.Time != nil && !f.Time.IsZero() {
			f.Time = &metav1.Time{Time: f.Time.Add(ahead)}
		}
		out = append(out, f)
	}
	return out
}

// A swapped taint keeps the time of the one that it replaces, also if it is the only one that is
// added. A time in the future is not kept.
func TestSwappedTaintKeepsItsTime(t *testing.T) {
	for since, want := range map[time.Duration]bool{-time.Minute: true, time.Minute: false} {
		at := metav1.NewTime(start.Add(since))
		n := nodes(1, 0)["n000"]
		n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoExecute, TimeAdded: &at}}
		c := &taintChange{node: n}
		c.swap(v1.TaintNodeNotReady, v1.TaintNodeUnreachable, start)
		if len(c.add) != 1 || len(c.remove) != 1 || (c.add[0].TimeAdded != nil) != want || want && !c.add[0].TimeAdded.Equal(&at) {
			t.Errorf("taint since %v: added %+v, removed %+v, want its time kept: %t", since, c.add, c.remove, want)
		}
	}
}
