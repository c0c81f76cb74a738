package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/internal/bridge/verdict"
	"jettison/stats"
)

var now = time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)

func node(name string, ready v1.ConditionStatus, conditions ...v1.NodeCondition) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{
		Conditions: append([]v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}, conditions...)}}
}

func lease(name string, l *api.NodeLoad) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{api.LoadAnnotation: l.Annotation()}}}
}

func near(percent float64) *api.NodeLoad {
	return &api.NodeLoad{Time: now, AgentVersion: "v1", Nearest: &api.NearestThreshold{Signal: "memory.available", Threshold: "t", HeadroomPercent: percent}}
}

// agentPod returns a pod of the agent that was created some time ago.
func agentPod(node, name string, ago time.Duration, state v1.ContainerState) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-ago))},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "sidecar", Image: "x:1"}, {Name: Container, Image: "r.example:5000/jettison:v2", Args: []string{"run"}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{Name: "sidecar", Ready: true, State: runs},
			{Name: Container, Ready: state.Running != nil, State: state}}}}
}

var (
	runs   = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	killed = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "OOMKilled"}}
)

// Nodes with problems are first, then those nearest to a threshold, then those of unknown load.
func TestOrder(t *testing.T) {
	o := &Objects{Nodes: []*v1.Node{node("unknown-b", "True"), node("far", "True"), node("unknown-a", "True"), node("met", "True"), node("gone", "Unknown"), node("near", "True")},
		Leases: []*coordinationv1.Lease{lease("far", near(50)), lease("met", near(-1)), lease("near", near(0.5)), lease("other", near(0))}}
	for range 3 {
		slices.Reverse(o.Nodes)
		var got []string
		for _, n := range Of(now, o).Nodes {
			got = append(got, n.Name)
		}
		if want := []string{"gone", "met", "near", "far", "unknown-a", "unknown-b"}; !slices.Equal(got, want) {
			t.Errorf("order of nodes = %v, want %v", got, want)
		}
	}
}

// Of the pods of a node, that of the running agent counts, also during a rollout.
func TestAgentOfANode(t *testing.T) {
	old := agentPod("a", "old", time.Hour, runs)
	old.DeletionTimestamp = &metav1.Time{Time: now}
	unread := agentPod("a", "unread", 0, v1.ContainerState{})
	unread.Status = v1.PodStatus{Phase: v1.PodPending}
	for name, c := range map[string]struct {
		pods                    []*v1.Pod
		state, pod, label, runs string
	}{
		"no pod":         {nil, StateNoPod, "", "", ""},
		"ready":          {[]*v1.Pod{agentPod("a", "p", 0, runs)}, StateReady, "p", "image v2", "p"},
		"killed":         {[]*v1.Pod{agentPod("a", "p", 0, killed)}, "OOMKilled", "p", "image v2", ""},
		"a rollout":      {[]*v1.Pod{agentPod("a", "new", time.Minute, killed), old}, "OOMKilled", "new", "image v2", "old"},
		"an older pod":   {[]*v1.Pod{agentPod("a", "failed", time.Hour, killed), agentPod("a", "new", time.Minute, runs)}, StateReady, "new", "image v2", "new"},
		"not started":    {[]*v1.Pod{unread}, "Pending", "unread", "image v2", ""},
		"of another one": {[]*v1.Pod{agentPod("b", "p", 0, runs)}, StateNoPod, "", "", "p"},
	} {
		for range 2 {
			slices.Reverse(c.pods)
			a := Of(now, &Objects{Nodes: []*v1.Node{node("a", "True")}, Agents: c.pods}).Nodes[0].Agent
			if a.State != c.state || a.Pod != c.pod || a.Label() != c.label {
				t.Errorf("%s: agent %+v, label %q, want state %s of pod %s, label %q", name, a, a.Label(), c.state, c.pod, c.label)
			}
			running := ""
			if p, _ := Running(c.pods); p != nil {
				running = p.Name
			}
			if running != c.runs {
				t.Errorf("%s: running pod %q, want %q", name, running, c.runs)
			}
		}
	}
	for image, want := range map[string]string{"jettison": "image latest", "r.example:5000/jettison": "image latest", "a/b:v1.2-rc.1": "image v1.2-rc.1",
		"a/b:v1@sha256:0123456789abcdef0123": "image sha256:0123456789ab", "": ""} {
		if got := (&Agent{Image: image}).Label(); got != want {
			t.Errorf("label of image %q = %q, want %q", image, got, want)
		}
	}
}

// A load is unknown, with the reason, if it is old, malformed or absent. An absent field is not zero.
func TestLoadIsUnknown(t *testing.T) {
	malformed := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{api.LoadAnnotation: "{"}}}
	none := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for name, c := range map[string]struct {
		lease   *coordinationv1.Lease
		unknown string
		problem bool
	}{
		"no lease":    {lease("b", near(1)), "no bridge has reported it", false},
		"fresh":       {lease("a", &api.NodeLoad{Time: now.Add(-staleAfter)}), "", false},
		"old":         {lease("a", &api.NodeLoad{Time: now.Add(-staleAfter - 1)}), "the bridge reported it 11m ago", true},
		"malformed":   {malformed, "the annotation jettison/load is malformed", true},
		"of no time":  {lease("a", &api.NodeLoad{}), "the annotation jettison/load is malformed", true},
		"without one": {none, "no bridge has reported it", true},
	} {
		n := Of(now, &Objects{Nodes: []*v1.Node{node("a", "True")}, Leases: []*coordinationv1.Lease{c.lease}}).Nodes[0]
		if n.Unknown[FieldLoad] != c.unknown || (n.Load == nil) != (c.unknown != "") || (len(n.Problems) > 0) != c.problem {
			t.Errorf("%s: load %+v, unknown %q, problems %q, want unknown %q", name, n.Load, n.Unknown, n.Problems, c.unknown)
		}
	}
	if staleAfter <= 2*verdict.LoadMaxInterval {
		t.Errorf("a load is old after %v, want more than two intervals of %v", staleAfter, verdict.LoadMaxInterval)
	}
}

// The bridge's conditions, events of findings and events of evictions are recognized as it writes them.
func TestReadsWhatBridgesWrite(t *testing.T) {
	state := &api.State{Time: now, Kubelet: true, BreakerOpen: "three pods died", Headroom: api.HeadroomState{ThresholdBytes: 1, NeededBytes: 2},
		Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: true}}}
	conditions := verdict.NodeConditions(now, state, now, nil, verdict.NodeOptions{})
	events := verdict.Findings(state, "a")
	events = append(events, verdict.RecordsLost(now, "a", &api.RecordsGap{Reason: "disk full"}),
		verdict.GarbageCollectionFailed(&api.Event{Kind: api.EventGarbage, Message: api.MessageGarbageFails, Time: now}, "a"))
	r := api.Record{ID: "20261128T0200", Pod: api.Victim{UID: "u", Namespace: "shop", Name: "web"}, Signal: "memory.available", Threshold: "memory.available<100Mi",
		StatusReason: "Evicted", Annotations: map[string]string{"starved_resource": "memory"}, Began: api.Stamp{Time: now.Add(-time.Minute)},
		Emptied: api.Stamp{Time: now}, Outcome: api.OutcomeBack}
	events = append(events, verdict.Events(now, &r, verdict.Verdict{RestartedContainer: "c"}, "a", false)...)
	abandoned := r
	abandoned.Outcome, abandoned.Emptied, abandoned.Pod.Name = api.OutcomeAbandoned, api.Stamp{}, "stuck"
	events = append(events, verdict.Events(now, &abandoned, verdict.Verdict{}, "a", false)...)
	other := events[0].DeepCopy()
	other.Source.Component, other.Reason = "kubelet", "EvictionsStopped"
	events = append(events, other)
	n := Of(now, &Objects{Nodes: []*v1.Node{node("a", "True", conditions...)}, Events: events}).Nodes[0]
	var got []string
	for _, p := range n.Problems {
		word, _, _ := strings.Cut(p, ":")
		got = append(got, word)
	}
	want := []string{"MemoryPressure True", "EvictionAbandoned shop/stuck", "EvictionHeadroomTooSmall", "EvictionOutlived shop/web", "EvictionRecordsLost", "EvictionsStopped",
		"GarbageCollectionFailed"}
	if !slices.Equal(got, want) {
		t.Errorf("problems %q, want %q", got, want)
	}
	if e := n.LastEviction; e == nil || e.Namespace != "shop" || e.Pod != "web" || e.Signal != "memory" || !e.Time.Equal(now.Add(-time.Minute)) || e.Node != "a" {
		t.Errorf("last eviction %+v, want that of the event", e)
	}
	later := Of(now.Add(findingAge+time.Minute), &Objects{Nodes: []*v1.Node{node("a", "True")}, Events: events}).Nodes[0]
	if len(later.Problems) != 3 || strings.Contains(fmt.Sprint(later.Problems), "Stopped") {
		t.Errorf("problems after the findings have ended %q, want those of the last hour", later.Problems)
	}
	if Component != verdict.Component || conditionPrefix != verdict.ConditionPrefix {
		t.Errorf("names %s, %s, want those of the bridge", Component, conditionPrefix)
	}
}

// The last eviction is the later one of the event and of the agent's history.
func TestLastEviction(t *testing.T) {
	event := func(ago time.Duration) []*v1.Event {
		return []*v1.Event{{Reason: "Evicted", Source: v1.EventSource{Component: Component, Host: "a"}, LastTimestamp: metav1.NewTime(now.Add(-ago)),
			InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"}}}
	}
	history := func(ago time.Duration) []*coordinationv1.Lease {
		return []*coordinationv1.Lease{lease("a", &api.NodeLoad{Time: now, AgentVersion: "v1", LastEviction: &api.LastEviction{Time: now.Add(-ago), Signal: "pid.available"}})}
	}
	for name, c := range map[string]struct {
		objects Objects
		want    string
	}{
		"neither":                {Objects{}, "unknown: no bridge reports evictions"},
		"no history":             {Objects{Leases: []*coordinationv1.Lease{lease("a", near(1))}}, "none"},
		"an older bridge":        {Objects{Leases: []*coordinationv1.Lease{lease("a", &api.NodeLoad{Time: now})}}, "unknown: no bridge reports evictions"},
		"only the event":         {Objects{Events: event(time.Hour)}, "shop/web the pod's own limit"},
		"only the history":       {Objects{Leases: history(48 * time.Hour)}, "unknown pid.available"},
		"the same":               {Objects{Events: event(time.Hour), Leases: history(time.Hour - time.Second)}, "shop/web the pod's own limit"},
		"a later one in history": {Objects{Events: event(time.Hour), Leases: history(time.Minute)}, "unknown pid.available"},
		"no permission":          {Objects{Unknown: map[Kind]string{Events: "forbidden"}}, "unknown: cannot list events: forbidden"},
	} {
		c.objects.Nodes = []*v1.Node{node("a", "True")}
		n := Of(now, &c.objects).Nodes[0]
		got := "none"
		if e := n.LastEviction; e != nil {
			got = Title(e) + " " + e.Signal
		} else if why := n.Unknown[FieldEvictions]; why != "" {
			got = "unknown: " + why
		}
		if got != c.want {
			t.Errorf("%s: last eviction %q, want %q", name, got, c.want)
		}
	}
}

// Evictions of records: dry runs are marked, and lost records are no eviction.
func TestFromRecord(t *testing.T) {
	base := api.Record{ID: "id", Pod: api.Victim{UID: "u", Namespace: "shop", Name: "web"}, Signal: "memory.available", Began: api.Stamp{Time: now}, Outcome: api.OutcomeBack}
	for name, c := range map[string]struct {
		change func(*api.Record)
		want   string
	}{
		"evicted":        {func(*api.Record) {}, "shop/web memory.available recovered false"},
		"dry run":        {func(r *api.Record) { r.DryRun = true }, "shop/web memory.available recovered true"},
		"dry by outcome": {func(r *api.Record) { r.Outcome = api.OutcomeDryRun }, "shop/web memory.available dry run, not evicted true"},
		"no name":        {func(r *api.Record) { r.Pod.Name, r.Pod.Namespace = "", "" }, "uid:u memory.available recovered false"},
		"preempted":      {func(r *api.Record) { r.StatusReason = "Preempting" }, "shop/web preemption recovered false"},
		"repeated":       {func(r *api.Record) { r.DryRun, r.Repeats, r.LastDecided = true, 3, now.Add(time.Hour) }, "shop/web memory.available recovered true"},
		"own limit":      {func(r *api.Record) { r.Signal = "" }, "shop/web the pod's own limit recovered false"},
		"lost":           {func(r *api.Record) { r.Outcome = api.OutcomeLost }, ""},
	} {
		r := base
		c.change(&r)
		got := ""
		if e, ok := FromRecord("a", &r); ok {
			got = fmt.Sprintf("%s %s %s %v", Title(&e), e.Signal, e.Outcome, e.DryRun)
			if e.Times != 1+r.Repeats || !e.Last.Equal(now.Add(time.Duration(min(r.Repeats, 1))*time.Hour)) {
				t.Errorf("%s: %d times, last %v, want %d with the last decision", name, e.Times, e.Last, 1+r.Repeats)
			}
		}
		if got != c.want {
			t.Errorf("%s: eviction %q, want %q", name, got, c.want)
		}
	}
}

// Totals are sorted by number, and equal ones by name. An empty report has lists, not nulls.
func TestTotals(t *testing.T) {
	later := now.Add(time.Hour)
	r := &Report{Evictions: []Eviction{
		{Time: now, Node: "b", Namespace: "shop", Pod: "x", Signal: "memory.available", DryRun: true, Times: 4, Last: later},
		{Time: now.Add(-time.Hour), Node: "b", Namespace: "shop", Pod: "x", Signal: "memory.available", Times: 1, Last: now.Add(-time.Hour)},
		{Time: now, Node: "a", Pod: "uid:1", Signal: string(stats.SignalPIDAvailable), Times: 1, Last: now},
	}}
	r.Count()
	want := Totals{Evicted: 2, WouldEvict: 4,
		Nodes:      []Total{{"b", 1, 4, later}, {"a", 1, 0, now}},
		Namespaces: []Total{{"shop", 1, 4, later}, {"unknown", 1, 0, now}},
		Signals:    []Total{{"memory.available", 1, 4, later}, {"pid.available", 1, 0, now}},
		Pods:       []Total{{"shop/x", 1, 4, later}, {"uid:1", 1, 0, now}}}
	if fmt.Sprint(r.Totals) != fmt.Sprint(want) || r.Evictions[0].Time != now.Add(-time.Hour) {
		t.Errorf("totals %v of %v, want %v, oldest first", r.Totals, r.Evictions, want)
	}
	r.AddUnanswered("z", "slow")
	r.AddUnanswered("a", "slow")
	r.AddUnanswered("b", "down")
	if got := fmt.Sprint(r.Unanswered); got != "[{slow [a z]} {down [b]}]" {
		t.Errorf("unanswered %s, want the nodes by reason", got)
	}
	empty := &Report{Evictions: []Eviction{}}
	empty.Count()
	if text, err := json.Marshal(empty); err != nil || strings.Contains(string(text), "null") {
		t.Errorf("empty report %s, error %v, want no null", text, err)
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0s", 59 * time.Second: "59s", 90 * time.Second: "1m", 47 * time.Hour: "47h", 49 * time.Hour: "2d"} {
		if got := Ago(d); got != want {
			t.Errorf("Ago(%v) = %q, want %q", d, got, want)
		}
	}
}
