package deschedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

// skipped returns how many pods were skipped for a reason that contains a text.
func skipped(r *Result, text string) (count int) {
	for _, s := range r.Skipped {
		if strings.Contains(s.Reason, text) {
			count++
		}
	}
	return count
}

// lifeTime evicts all pods that are older than ten minutes.
func lifeTime() *PodLifeTimeArgs { return &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600))} }

// A pod that violates a hard rule is evicted only if another node takes it.
func TestHardViolationNeedsAnotherNode(t *testing.T) {
	for name, p := range map[string]plan{
		"anti-affinity": {strategy: InterPodAntiAffinity, args: &AntiAffinityArgs{}, nodes: cluster(node("n1"), node("n2")),
			pods: podsNamed(2, "p", "n1", label("app", "a"), repels("app", "a", v1.LabelHostname))},
		"node affinity": {strategy: NodeAffinity, args: &NodeAffinityArgs{NodeAffinityType: []string{RequiredAffinity}},
			nodes: cluster(node("n1"), node("n2", nodeLabel("pool", "new"))), pods: podList(pod("p", "n1", affine(matchIn("pool", "new"), nil)))},
		"taint": {strategy: NodeTaints, args: &NodeTaintsArgs{}, nodes: cluster(node("n1", taint("t", "v", v1.TaintEffectNoSchedule)), node("n2")),
			pods: podList(pod("p", "n1"))},
	} {
		if r := p.run(t); len(r.Evictions) != 1 {
			t.Errorf("%s: evictions = %v, want one; skipped %v", name, names(r), r.Skipped)
		}
		cordoned(p.nodes[1])
		if r := p.run(t); len(r.Evictions) != 0 || skipped(r, "fits on no other node: node is cordoned") == 0 {
			t.Errorf("%s, the other node is cordoned: evictions = %v, skipped %v, want a pod that fits on no other node", name, names(r), r.Skipped)
		}
	}
}

// A pod on a node that its affinity matches, or prefers as much as any other, stays without a reason.
func TestNodeAffinityIsMet(t *testing.T) {
	prefers := func(keys ...string) edit {
		return func(p *v1.Pod) {
			a := &v1.NodeAffinity{}
			for _, key := range keys {
				a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
					v1.PreferredSchedulingTerm{Weight: 1, Preference: *matchIn(key, "x")})
			}
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: a}
		}
	}
	for name, c := range map[string]struct {
		edit  edit
		third []func(*v1.Node) // of a third node; nil: no third node
		want  string           // part of the reason; empty: none
		moves bool
	}{
		"required, matches":                   {affine(matchIn("a", "x"), nil), nil, "", false},
		"required, does not match":            {affine(matchIn("b", "x"), nil), []func(*v1.Node){nodeLabel("b", "x")}, "", true},
		"selector alone does not match":       {func(p *v1.Pod) { prefers("a")(p); selects("b", "x")(p) }, []func(*v1.Node){nodeLabel("b", "x")}, "", false},
		"preferred, as much as any other":     {prefers("a"), nil, "", false},
		"preferred, less than another":        {prefers("a", "b"), []func(*v1.Node){nodeLabel("a", "x"), nodeLabel("b", "x")}, "", true},
		"preferred, less than a cordoned one": {prefers("a", "b"), []func(*v1.Node){nodeLabel("a", "x"), nodeLabel("b", "x"), cordoned}, "no feasible node would be better", false},
	} {
		p := plan{strategy: NodeAffinity, args: &NodeAffinityArgs{NodeAffinityType: []string{RequiredAffinity, PreferredAffinity}},
			nodes: cluster(node("n1", nodeLabel("a", "x")), node("n2", nodeLabel("a", "x"))), pods: podList(pod("p", "n1", c.edit))}
		if c.third != nil {
			p.nodes = append(p.nodes, node("n3", c.third...))
		}
		r := p.run(t)
		if why := skipReason(r, "p"); (len(r.Evictions) == 1) != c.moves || (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: evictions = %v, skipped %v, want an eviction: %t, reason %q", name, names(r), r.Skipped, c.moves, c.want)
		}
	}
}

// The profile of a pod's own scheduler decides where its replacement runs. A pod stays if that is not
// a better node, or if its present node scores as high.
func TestProfileOfOwnSchedulerDecides(t *testing.T) {
	for name, c := range map[string]struct {
		scheduler string
		third     *v1.Node
		want      string // the reason to stay; empty: the pod moves to n2
	}{
		"default scheduler":           {"", nil, ""},
		"scheduler without profile":   {"unknown", nil, ""},
		"present node scores as high": {"own", nil, "scheduler would likely place the replacement on n1 again"},
		"third node scores higher": {"own", machine("n3", 16000),
			"scheduler would likely place the replacement on n3, no better: preferred node affinity scores none of them higher"},
	} {
		p := plan{strategy: NodeAffinity, args: &NodeAffinityArgs{NodeAffinityType: []string{PreferredAffinity}},
			nodes: cluster(machine("n1", 4000), machine("n2", 4000, nodeLabel("pool", "new"))),
			pods:  podList(pod("p", "n1", affine(nil, matchIn("pool", "new")), func(p *v1.Pod) { p.Spec.SchedulerName = c.scheduler })),
			edit: func(p *Policy, _ *Snapshot) {
				p.SchedulerProfiles = []SchedulerProfile{{SchedulerName: "own", Weights: map[string]int64{"NodeAffinity": 0}}}
			}}
		if c.third != nil {
			p.nodes = append(p.nodes, c.third)
		}
		if r := p.run(t); (len(r.Evictions) == 1) != (c.want == "") || skipReason(r, "p") != c.want {
			t.Errorf("%s: evictions = %v, skipped %v, want reason %q", name, names(r), r.Skipped, c.want)
		}
	}
}

// A replacement that fits nowhere while the pod is being deleted is placed when the pod is gone.
func TestReplacementWaitsForTheEndOfThePod(t *testing.T) {
	zone := nodeLabel(v1.LabelTopologyZone, "z")
	p := plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20}, TargetThresholds: Thresholds{"cpu": 50}},
		nodes: cluster(machine("n1", 4000, zone), machine("n2", 4000, zone)),
		pods: podList(pod("a", "n1", request("cpu", 1000), label("app", "a"), repels("app", "a", v1.LabelTopologyZone)),
			pod("fill", "n1", request("cpu", 2000), daemon))}
	if r := p.run(t); len(r.Evictions) != 1 || r.Evictions[0].To != "n2" {
		t.Errorf("evictions = %+v, want one to n2; skipped %v, stopped %v", r.Evictions, r.Skipped, r.Stopped)
	}
}

// The total limit ends a strategy at the first pod that it keeps.
func TestTotalLimitEndsStrategy(t *testing.T) {
	apart := spreads(v1.LabelHostname, 1, v1.DoNotSchedule)
	required, preferred := affine(matchIn("pool", "new"), nil), affine(nil, matchIn("pool", "new"))
	two := func() []*v1.Node { return cluster(machine("n1", 8000), machine("n2", 8000, nodeLabel("pool", "new"))) }
	for name, p := range map[string]plan{
		PodLifeTime: {args: lifeTime(), pods: podsNamed(4, "p", "n1")},
		RemoveDuplicates: {args: &RemoveDuplicatesArgs{}, pods: all(podsNamed(2, "a", "n1", owned("ReplicaSet", "a")),
			podsNamed(2, "b", "n1", owned("ReplicaSet", "b")), podsNamed(2, "c", "n1", owned("ReplicaSet", "c")))},
		NodeAffinity: {args: &NodeAffinityArgs{NodeAffinityType: []string{RequiredAffinity, PreferredAffinity}},
			pods: all(podsNamed(2, "a", "n1", required), podsNamed(2, "b", "n1", preferred))},
		TopologySpreadConstraint: {args: &SpreadArgs{}, pods: all(podsNamed(5, "a", "n1", apart), podsNamed(5, "b", "n1", apart, inSpace("other")))},
	} {
		p.strategy, p.nodes = name, two()
		if r := p.run(t); len(r.Evictions) < 2 {
			t.Errorf("%s: evictions without a limit = %v, want some of each kind; skipped %v", name, names(r), r.Skipped)
		}
		p.limits = &limits{1, -1, -1}
		if r := p.run(t); len(r.Evictions) != 1 || skipped(r, limitTotal) != 1 || !slices.Equal(stopReasons(r), []string{limitTotal}) {
			t.Errorf("%s: evictions = %v, skipped %v, stopped %v, want one eviction and one pod kept by the limit", name, names(r), r.Skipped, r.Stopped)
		}
	}
	p := plan{strategy: PodLifeTime, args: lifeTime(), nodes: cluster(node("n1", taint("t", "v", v1.TaintEffectNoSchedule)), node("n2")),
		pods: podsNamed(3, "p", "n1"), limits: &limits{1, -1, -1}, edit: func(p *Policy, _ *Snapshot) { p.Profiles[0].Enable(NodeTaints, &NodeTaintsArgs{}) }}
	if r := p.run(t); len(r.Evictions) != 1 || !slices.Equal(stopReasons(r), []string{limitTotal, limitTotal}) {
		t.Errorf("two strategies: evictions = %v, stopped %v, want one eviction, and both to stop at the limit", names(r), r.Stopped)
	}
}

// All groups of duplicates and all namespaces are balanced.
func TestAllGroupsAreBalanced(t *testing.T) {
	apart := spreads(v1.LabelHostname, 1, v1.DoNotSchedule)
	for name, p := range map[string]plan{
		RemoveDuplicates: {args: &RemoveDuplicatesArgs{}, pods: all(podsNamed(2, "a", "n1", owned("ReplicaSet", "a")),
			podsNamed(2, "b", "n1", owned("ReplicaSet", "b")))},
		TopologySpreadConstraint: {args: &SpreadArgs{}, pods: all(podsNamed(2, "a", "n1", apart), podsNamed(2, "b", "n1", apart, inSpace("other")))},
	} {
		p.strategy, p.nodes = name, cluster(machine("n1", 8000), machine("n2", 8000))
		if r := p.run(t); len(r.Evictions) != 2 || r.Evictions[0].Name[0] == r.Evictions[1].Name[0] {
			t.Errorf("%s: evictions = %v, want one of each group; skipped %v", name, names(r), r.Skipped)
		}
	}
}

// Evictions in progress that this process requested count against the limits.
func TestPendingEvictionsCount(t *testing.T) {
	for name, c := range map[string]struct {
		limits limits
		on     string // node of the pending pod
		mine   bool
		want   int
	}{
		"total": {limits{1, -1, -1}, "n1", true, 0}, "node": {limits{-1, 1, -1}, "n1", true, 0}, "namespace": {limits{-1, -1, 1}, "n1", true, 0},
		"another node": {limits{-1, 1, -1}, "n2", true, 1}, "requested by others": {limits{1, -1, -1}, "n1", false, 1},
		"on no node": {limits{1, -1, -1}, "", true, 1},
	} {
		p := plan{strategy: PodLifeTime, args: lifeTime(), nodes: cluster(node("n1"), node("n2")), limits: &c.limits,
			pods: podList(pod("pending", c.on), pod("p", "n1")), edit: func(_ *Policy, s *Snapshot) { s.Pending = map[types.UID]bool{"pending": c.mine} }}
		if r := p.run(t); len(r.Evictions) != c.want {
			t.Errorf("%s: evictions = %v, want %d; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}

// An owner's next pod may be evicted from the end of ownerPause on.
func TestOwnerPauseEnds(t *testing.T) {
	for name, c := range map[string]struct {
		pause, since time.Duration
		want         int
	}{"at the end": {time.Minute, time.Minute, 1}, "before the end": {time.Minute, time.Minute - 1, 0}, "no pause": {0, 0, 2}} {
		p := plan{strategy: PodLifeTime, args: lifeTime(), nodes: two(), pods: podsNamed(2, "p", "n1"), edit: func(p *Policy, s *Snapshot) {
			p.OwnerPause = &metav1.Duration{Duration: c.pause}
			s.Evicted = []PastEviction{{"default", "ReplicaSetreplicaset-1", t0.Add(-c.since)}}
		}}
		if r := p.run(t); len(r.Evictions) != c.want {
			t.Errorf("%s: evictions = %v, want %d; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}

// A priority threshold may name a PriorityClass. Without that class, or above the priority of system
// pods, there is no plan.
func TestThresholdOfPriorityClass(t *testing.T) {
	for class, want := range map[string]string{"low": "", "high": "", "system": "", "above": "can't be greater than 2000000000", "missing": "not found"} {
		p := plan{strategy: PodLifeTime, args: lifeTime(), evictor: &DefaultEvictorArgs{PriorityThreshold: &PriorityThreshold{Name: class}}, nodes: two(),
			pods: podList(pod("p50", "n1", priority(50)), pod("p100", "n1", priority(100)), pod("p200", "n1", priority(200)))}
		policy, s := p.policy(t), &Snapshot{}
		s.Nodes, s.Pods = p.nodes, p.pods
		for name, value := range map[string]int32{"low": 100, "high": 200, "system": criticalPriority, "above": criticalPriority + 1} {
			s.PriorityClasses = append(s.PriorityClasses, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
		}
		r, err := Plan(policy, s, t0)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error = %v, want %q", class, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: error = %v, want none", class, err)
		} else if evicted := map[string]int{"low": 1, "high": 2, "system": 3}[class]; len(r.Evictions) != evicted {
			t.Errorf("%s: evictions = %v, want the %d below the threshold", class, names(r), evicted)
		}
	}
}

// A policy that was not checked and has an invalid selector makes no plan.
func TestInvalidSelectorMakesNoPlan(t *testing.T) {
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	for want, edit := range map[string]func(*Policy, *DefaultEvictorArgs){
		"labelSelector":          func(_ *Policy, a *DefaultEvictorArgs) { a.LabelSelector = invalid },
		"namespaceLabelSelector": func(_ *Policy, a *DefaultEvictorArgs) { a.NamespaceLabelSelector = invalid },
		`profile "p": nodeSelec`: func(_ *Policy, a *DefaultEvictorArgs) { a.NodeSelector = "a==b==c" },
		"nodeSelector":           func(p *Policy, _ *DefaultEvictorArgs) { p.NodeSelector = new("a==b==c") },
	} {
		args := &DefaultEvictorArgs{}
		c := plan{evictor: args}
		policy := c.policy(t)
		edit(policy, args)
		if r, err := Plan(policy, &Snapshot{}, t0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("invalid %s: result %v, error %v, want an error", want, r, err)
		}
	}
}

// The namespace selector of the evictor and nodeFit keep pods, each with its reason.
func TestPreEvictionReasons(t *testing.T) {
	team := &DefaultEvictorArgs{NamespaceLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: "team"}}}
	any := &DefaultEvictorArgs{NamespaceLabelSelector: &metav1.LabelSelector{}}
	fit := &DefaultEvictorArgs{NodeFit: true}
	for name, c := range map[string]struct {
		args  *DefaultEvictorArgs
		nodes []*v1.Node
		edit  edit
		want  string
	}{
		"namespace":          {team, two(), inSpace("team"), ""},
		"another namespace":  {team, two(), inSpace("other"), "namespace does not match namespaceLabelSelector of DefaultEvictor"},
		"empty selector":     {any, two(), inSpace("other"), ""},
		"another node":       {fit, two(), inSpace("x"), ""},
		"no other node":      {fit, cluster(node("n1")), inSpace("x"), "nodeFit: no other ready node"},
		"fits on none":       {fit, cluster(node("n1"), node("n2", cordoned)), inSpace("x"), "nodeFit: pod fits on no other node: node is cordoned"},
		"none, without that": {&DefaultEvictorArgs{}, cluster(node("n1")), inSpace("x"), ""},
	} {
		if _, why := filterResults(t, c.args, c.nodes, podList(pod("p", "n1", c.edit))); why != c.want {
			t.Errorf("%s: preEvictionFilter = %q, want %q", name, why, c.want)
		}
	}
}

// Earlier evictions of a plan count for nodeFit: the only node that the evictor may use takes one pod.
func TestNodeFitCountsEarlierEvictions(t *testing.T) {
	p := plan{strategy: RemoveDuplicates, args: &RemoveDuplicatesArgs{}, evictor: &DefaultEvictorArgs{NodeFit: true, NodeSelector: "pool=a"},
		nodes: cluster(machine("n1", 4000), sized("n2", 32000, 64<<30, 1, nodeLabel("pool", "a")), machine("n3", 4000)), pods: podsNamed(6, "p", "n1")}
	if r := p.run(t); len(r.Evictions) != 1 || r.Evictions[0].To != "n2" || skipped(r, "nodeFit: pod fits on no other node: insufficient pods") == 0 {
		t.Errorf("evictions = %+v, want one to n2; skipped %v", r.Evictions, r.Skipped)
	}
}

// Duplicates are moved to nodes with less than their share: pods that nodeFit keeps there count, and
// those that the plan has moved there. Nodes count for the share only if they take duplicates that
// could also be elsewhere.
func TestShareOfDuplicates(t *testing.T) {
	zones := func() []*v1.Node {
		return cluster(machine("n1", 8000, nodeLabel("a", "x")), machine("n2", 64000, nodeLabel("a", "x"), nodeLabel("b", "x")), machine("n3", 8000, nodeLabel("b", "x"), nodeLabel("c", "x")),
			machine("n4", 8000, nodeLabel("c", "x"), nodeLabel("d", "x")))
	}
	in := func(key string) edit { return selects(key, "x") }
	pinned := selects(v1.LabelHostname, "n2")
	owners := func(second string) edit {
		return func(p *v1.Pod) {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "X", Name: second, UID: types.UID(second)})
		}
	}
	for name, c := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"one is pinned to the other node":  {all(podsNamed(4, "p", "n1", in("a")), podsNamed(1, "q", "n2", pinned)), "p1"},
		"two are pinned to the other node": {all(podsNamed(4, "p", "n1", in("a")), podsNamed(2, "q", "n2", pinned)), ""},
		"a single pod adds no nodes":       {all(podsNamed(2, "p", "n1", in("a")), podsNamed(1, "q", "n3", in("c"))), ""},
		"pods of one node add no node":     {all(podsNamed(3, "p", "n1", in("b")), podsNamed(2, "q", "n1", selects(v1.LabelHostname, "n1"))), "p1 p0"},
		"the same owners":                  {podsNamed(2, "p", "n1", in("a"), owners("x")), "p0"},
		"different second owners":          {podList(pod("p", "n1", in("a"), owners("x")), pod("q", "n1", in("a"), owners("y"))), ""},
		"different images":                 {podList(pod("p", "n1", in("a"), images("x")), pod("q", "n1", in("a"), images("y"))), ""},
	} {
		p := plan{strategy: RemoveDuplicates, args: &RemoveDuplicatesArgs{}, evictor: &DefaultEvictorArgs{NodeFit: name != "pods of one node add no node"},
			nodes: zones(), pods: c.pods}
		if r := p.run(t); strings.Join(names(r), " ") != c.want {
			t.Errorf("%s: evictions = %v, want %q; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}

// HighNodeUtilization evicts no pod without enough nodes under thresholds, and only pods that its
// eviction mode selects. A strategy that has nothing to compare ends with one reason.
func TestHighNodeUtilizationConditions(t *testing.T) {
	args := func(edit func(*HighNodeUtilizationArgs)) *HighNodeUtilizationArgs {
		a := &HighNodeUtilizationArgs{Thresholds: Thresholds{"memory": 30}}
		edit(a)
		return a
	}
	mode := func(a *HighNodeUtilizationArgs) { a.EvictionModes = []string{OnlyThresholdingResources} }
	memory := request(v1.ResourceMemory, 100)
	for name, c := range map[string]struct {
		args *HighNodeUtilizationArgs
		edit edit
		want int
		stop string
	}{
		"one node":                         {args(func(*HighNodeUtilizationArgs) {}), memory, 1, ""},
		"one node, more than one is asked": {args(func(a *HighNodeUtilizationArgs) { a.NumberOfNodes = 1 }), memory, 0, "1 nodes are under thresholds, numberOfNodes requires more than 1"},
		"requests the resource":            {args(mode), memory, 1, ""},
		"requests another":                 {args(mode), func(*v1.Pod) {}, 0, ""},
		"no node has the resource":         {args(func(a *HighNodeUtilizationArgs) { a.Thresholds = Thresholds{testGPU: 30} }), memory, 0, "no node has a resource of thresholds"},
	} {
		p := plan{strategy: HighNodeUtilization, args: c.args, nodes: cluster(node("n1", cordoned), node("n2")), edit: packs,
			pods: podList(pod("p", "n1", c.edit), pod("q", "n2", request(v1.ResourceMemory, 2000)))}
		if r := p.run(t); len(r.Evictions) != c.want || strings.Join(stopReasons(r), "; ") != c.stop {
			t.Errorf("%s: evictions = %v, stopped %v, want %d and %q; skipped %v", name, names(r), r.Stopped, c.want, c.stop, r.Skipped)
		}
	}
}

// A node at a threshold is under it, and one at a target threshold is not over it. A node that does
// not have a resource does not count for its average.
func TestThresholdsAreInclusive(t *testing.T) {
	for name, c := range map[string]struct {
		under, over int64 // requested cpu of 4000m
		want        int
		stop        string
	}{
		"at both":       {800, 2000, 0, "no node is over targetThresholds"},
		"over":          {800, 2400, 1, ""},
		"not under":     {801, 2400, 0, "no schedulable node is under thresholds (cpu 20%)"},
		"both not met":  {801, 2000, 0, "no schedulable node is under thresholds (cpu 20%)"},
		"all are under": {800, 800, 0, "all nodes are under thresholds"},
	} {
		p := plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20}, TargetThresholds: Thresholds{"cpu": 50}},
			nodes: cluster(big("n1", 10), big("n2", 10)), pods: podList(pod("p", "n1", request("cpu", 400)), pod("d", "n1", request("cpu", c.over-400), daemon),
				pod("q", "n2", request("cpu", c.under), owned("ReplicaSet", "q")))}
		r := p.run(t)
		stop, _, _ := strings.Cut(c.stop, " (")
		if len(r.Evictions) != c.want || strings.Join(stopReasons(r), "; ") != stop {
			t.Errorf("%s: evictions = %v, stopped %v, want %d and %q; skipped %v", name, names(r), r.Stopped, c.want, stop, r.Skipped)
		}
	}
	c := model.New(&model.Objects{Nodes: cluster(big("n1", 10, has2(string(testGPU), 8)), big("n2", 10)), Pods: podList(pod("p", "n1", request(testGPU, 4)))}, nil)
	m := &meter{}
	low, high := m.deviationThresholds(c.Nodes, Thresholds{testGPU: 10, "x/none": 10}, Thresholds{testGPU: 20, "x/none": 20})
	if low[testGPU] != 40 || high[testGPU] != 70 || low["x/none"] != 0 || high["x/none"] != 20 {
		t.Errorf("thresholds = %v and %v, want 40 and 70 about the average of n1", low, high)
	}
	if text := m.describe(c.Nodes[0], Thresholds{testGPU: 50}, true); text != "" {
		t.Errorf("resources above 50%% = %q, want none at 50%%", text)
	}
}

// Without the measured usage that a strategy compares, it evicts nothing.
func TestUsageIsUnavailable(t *testing.T) {
	for want, usage := range map[string][2]map[string]v1.ResourceList{
		"measured usage is unavailable":          {},
		"measured usage of node n1 lacks cpu":    {nil, {"default/p0": sized("", 900, 0, 0).Status.Capacity}},
		"measured usage of node n1 lacks memory": {{"n1": {v1.ResourceCPU: resource.MustParse("3")}, "n2": {v1.ResourceCPU: resource.MustParse("0")}}, nil},
	} {
		p := plan{strategy: LowNodeUtilization, nodes: cluster(big("n1", 10), big("n2", 10)), pods: podsNamed(4, "p", "n1", request("cpu", 900)),
			args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30}, TargetThresholds: Thresholds{"cpu": 60}, MetricsUtilization: &MetricsUtilization{Source: KubernetesMetrics}},
			edit: func(_ *Policy, s *Snapshot) { s.NodeUsage, s.PodUsage = usage[0], usage[1] }}
		if r := p.run(t); len(r.Evictions) != 0 || !slices.Equal(stopReasons(r), []string{want}) {
			t.Errorf("evictions = %v, stopped %v, want no eviction and %q", names(r), r.Stopped, want)
		}
	}
}

// If the usage of pods is unknown, a strategy evicts one pod from a node until the next measurement,
// unless the policy sets a limit.
func TestUnknownUsageLimitsEvictions(t *testing.T) {
	for name, c := range map[string]struct {
		limit *EvictionLimits
		want  int
	}{"no limit": {nil, 1}, "limit of two": {&EvictionLimits{Node: new(uint(2))}, 2}} {
		p := plan{strategy: LowNodeUtilization, nodes: cluster(machine("n1", 8000), machine("n2", 8000)), pods: podsNamed(4, "p", "n1"),
			args: &LowNodeUtilizationArgs{Thresholds: Thresholds{AgentMemorySome: 5}, TargetThresholds: Thresholds{AgentMemorySome: 20}, EvictionLimits: c.limit},
			edit: func(_ *Policy, s *Snapshot) { setAgentLoad(s) }}
		if r := p.run(t); len(r.Evictions) != c.want {
			t.Errorf("%s: evictions = %v, want %d; stopped %v, skipped %v", name, names(r), c.want, r.Stopped, r.Skipped)
		}
	}
}

// A pod that tolerates the taints of no destination node stays, with that reason.
func TestTaintsOfDestinations(t *testing.T) {
	p := plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20}, TargetThresholds: Thresholds{"cpu": 50}},
		nodes: cluster(big("n1", 10), big("n2", 10, taint("t", "v", v1.TaintEffectNoSchedule))),
		pods:  podList(pod("p", "n1", request("cpu", 1500)), pod("q", "n1", request("cpu", 1500), tolerates("t", "v", v1.TaintEffectNoSchedule)))}
	if r := p.run(t); !slices.Equal(names(r), []string{"q"}) || skipReason(r, "p") != "pod tolerates the taints of no destination node" {
		t.Errorf("evictions = %v, skipped %v, want q only", names(r), r.Skipped)
	}
}

// PodLifeTime without an age evicts no pod whose replacement matches as soon as it runs: the limit
// ends the plan, and the next one would evict the replacement.
func TestReplacementThatMatchesAtOnce(t *testing.T) {
	fit := &DefaultEvictorArgs{NodeFit: true, NodeSelector: "pool=a"}
	loop := fmt.Sprintf(evictionLoop, PodLifeTime)
	for name, c := range map[string]struct {
		evictor *DefaultEvictorArgs
		edit    edit
		second  *v1.Node
		want    string // the reason to stay; empty: the pod is evicted
	}{
		"matches":                              {nil, func(*v1.Pod) {}, machine("n2", 4000), loop},
		"matches on its own node":              {nil, func(*v1.Pod) {}, machine("n2", 4000, cordoned), loop},
		"ended":                                {nil, phase(v1.PodFailed), machine("n2", 4000), ""},
		"no owner":                             {nil, func(p *v1.Pod) { bare(p); annotation(evictAnnotation)(p) }, machine("n2", 4000), ""},
		"too young":                            {&DefaultEvictorArgs{MinPodAge: &metav1.Duration{Duration: time.Minute}}, started(time.Hour), machine("n2", 4000), ""},
		"fits nowhere":                         {nil, request("cpu", 90000), machine("n2", 4000), ""},
		"gets the only node of the evictor":    {fit, request("cpu", 2000), machine("n2", 64000, nodeLabel("pool", "a")), ""},
		"may get the evictor's node later":     {fit, func(*v1.Pod) {}, machine("n2", 2000, nodeLabel("pool", "a")), loop},
		"stays where nodeFit finds no other n": {&DefaultEvictorArgs{NodeFit: true}, func(*v1.Pod) {}, machine("n2", 4000, cordoned), "nodeFit: pod fits on no other node: node is cordoned"},
	} {
		p := plan{strategy: PodLifeTime, args: &PodLifeTimeArgs{States: []string{"Running", "Failed"}}, evictor: c.evictor,
			nodes: cluster(machine("n1", 8000), c.second),
			pods:  podList(pod("p0", "n1", c.edit), pod("p1", "n1", owned("ReplicaSet", "other"), c.edit)), limits: &limits{1, -1, -1}}
		if r := p.run(t); slices.Contains(names(r), "p0") != (c.want == "") || skipReason(r, "p0") != c.want {
			t.Errorf("%s: evictions = %v, skipped %v, want reason %q", name, names(r), r.Skipped, c.want)
		}
	}
}

// A condition that has just changed matches a minimum time of 0.
func TestConditionThatJustChanged(t *testing.T) {
	p := pod("p", "n1", func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: metav1.NewTime(t0)}}
	})
	a := &PodLifeTimeArgs{Conditions: []PodConditionFilter{{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(0))}}}
	if a.matchReason(&model.Pod{Pod: p}, t0) == "" {
		t.Error("matchReason = \"\", want a match")
	}
}

// The usage of a moved pod counts on its new node.
func TestUsageFollowsPods(t *testing.T) {
	s := &Snapshot{}
	s.Nodes, s.Pods = cluster(node("n1"), node("n2")), podList(pod("p", "n1"), pod("q", "n1"))
	setUsage(s, 1500)
	c, u := model.New(&s.Objects, nil), newUsage(s)
	p := c.Pods()[0]
	u.move(p, c.NewPod(pod("r", "")), c.Find("n2"))
	nodes, pods := u.lists()
	for what, got := range map[string]v1.ResourceList{"n1": nodes["n1"], "n2": nodes["n2"], "q": pods["default/q"], "r": pods["default/r"]} {
		if q := got[v1.ResourceCPU]; q.MilliValue() != 1500 {
			t.Errorf("cpu of %s = %v, want 1500m", what, q.String())
		}
	}
	u.move(c.Pods()[1], nil, nil)
	nodes, pods = u.lists()
	if left := nodes["n1"][v1.ResourceCPU]; len(pods) != 1 || !left.IsZero() {
		t.Errorf("after the last pod of n1 left: usage of pods %v, of n1 %v, want that of r, and none", pods, nodes["n1"])
	}
}

// A meter measures pods by requests, or by usage except for their number. A resource of which the pod
// adds nothing does not matter, even if a node has too little.
func TestMeterOfPods(t *testing.T) {
	s := &Snapshot{}
	s.Nodes, s.Pods = cluster(node("n1"), node("n2")), podList(pod("p", "n1"), pod("q", "n2", request(v1.ResourceMemory, 4000)))
	setUsage(s, 700)
	c := model.New(&s.Objects, nil)
	p := c.Pods()[0]
	for name, want := range map[v1.ResourceName][2]int64{v1.ResourceCPU: {100, 700}, v1.ResourcePods: {1, 1}, AgentIOSome: {-1, -1}} {
		for i, m := range []*meter{{}, {usage: newUsage(s)}} {
			if got, known := m.podUsage(p, name); known != (want[i] >= 0) || known && got != want[i] {
				t.Errorf("usage of %s, measured %t: %d, known %t, want %d", name, i == 1, got, known, want[i])
			}
		}
	}
	m := &meter{resources: []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}}
	if !m.fits(c.Nodes[1], p) {
		t.Error("pod without memory does not fit on a node that has too little, want a fit")
	}
	lacks := &meter{resources: []v1.ResourceName{v1.ResourceCPU, testGPU}, usage: newUsage(s)}
	if why := lacks.unknownValue(c.Nodes[0]); why != "" {
		t.Errorf("unknown value = %q, want none: the node has no GPU", why)
	}
}

// Moves between domains change the violations of a constraint as kube-scheduler counts them.
func TestViolationsOfMoves(t *testing.T) {
	for _, c := range []struct {
		domains    map[string]int
		minDomains int
		from, to   string
		want       int
	}{
		{map[string]int{"a": 3, "b": 0}, 0, "a", "b", -2},
		{map[string]int{"a": 3, "b": 0}, 2, "a", "b", -2},
		{map[string]int{"a": 3, "b": 0}, 3, "a", "b", -1},
		{map[string]int{"a": 1, "b": 0}, 0, "a", "a", 0},
		{map[string]int{"a": 3, "b": 0}, 0, "a", noDomain, -1},
		{map[string]int{"a": 3, "b": 0}, 0, noDomain, "b", -1},
		{map[string]int{"a": 1, "b": 1}, 0, "a", "b", 1},
		{map[string]int{"a": 2, "b": 2, "c": 1}, 0, "c", "a", 3},
	} {
		s := newSpreadCounts(&model.Constraint{MaxSkew: 1, MinDomains: c.minDomains}, c.domains)
		if got := s.change(c.from, c.to); got != c.want {
			t.Errorf("%v, minDomains %d, from %q to %q: change of violations %d, want %d", c.domains, c.minDomains, c.from, c.to, got, c.want)
		}
	}
}

// Pods with a node selector or node affinity are evicted after others.
func TestPinnedPodsAreEvictedLast(t *testing.T) {
	for name, c := range map[string]struct {
		edit edit
		want int
	}{
		"none": {func(*v1.Pod) {}, 0}, "node selector": {selects("a", "b"), 1}, "node affinity": {affine(matchIn("a", "b"), nil), 1},
		"pod affinity": {repels("a", "b", v1.LabelHostname), 0},
	} {
		if got := pinnedToNodes(&model.Pod{Pod: pod("p", "n1", c.edit)}); got != c.want {
			t.Errorf("%s: pinned %d, want %d", name, got, c.want)
		}
	}
}

// Topology spread evicts only pods on the selected nodes, and weighs only constraints of running pods.
func TestSpreadConsidersSelectedPods(t *testing.T) {
	rack := func(value string) func(*v1.Node) { return nodeLabel("rack", value) }
	host, racks := spreads(v1.LabelHostname, 1, v1.DoNotSchedule), spreads("rack", 1, v1.DoNotSchedule)
	labelled := label("foo", "bar")
	notReady := func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionFalse }
	across := func() []*v1.Node {
		return cluster(machine("n1", 8000, rack("a")), machine("n2", 8000, rack("a")), machine("n3", 8000, rack("b")), machine("n4", 8000, rack("a")))
	}
	full := all(podsNamed(1, "a", "n1", host), podsNamed(1, "b", "n2", host), podsNamed(2, "c", "n3", host))
	for name, c := range map[string]struct {
		nodes []*v1.Node
		pods  []*v1.Pod
		want  string
	}{
		"node that is not ready": {cluster(machine("n1", 8000, rack("a")), machine("n2", 8000, rack("a"), notReady), machine("n3", 8000, rack("b"))),
			all(podsNamed(2, "p", "n1", racks), podsNamed(2, "a", "n2", racks)), "p0"},
		"no other constraint":             {across(), full, "c0"},
		"constraint of an ended pod":      {across(), all(full, podsNamed(1, "e", "n1", labelled, racks, phase(v1.PodSucceeded))), "c0"},
		"constraint of another that runs": {across(), all(full[1:], podsNamed(1, "r", "n1", host, racks)), ""},
	} {
		p := plan{strategy: TopologySpreadConstraint, args: &SpreadArgs{}, nodes: c.nodes, pods: c.pods}
		if r := p.run(t); strings.Join(names(r), " ") != c.want {
			t.Errorf("%s: evictions = %v, want %q; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}

// A soft constraint moves a pod only to a domain that then has fewer pods than the present one.
func TestSoftSpreadNeedsAnImprovement(t *testing.T) {
	soft := spreads("rack", 1, v1.ScheduleAnyway)
	for there, want := range map[int]int{1: 1, 2: 0} {
		p := plan{strategy: TopologySpreadConstraint, args: &SpreadArgs{Constraints: []v1.UnsatisfiableConstraintAction{v1.ScheduleAnyway}},
			nodes: cluster(machine("n1", 4000, nodeLabel("rack", "a")), machine("n2", 64000, nodeLabel("rack", "b")), machine("n3", 4000, nodeLabel("rack", "c"), cordoned)),
			pods:  all(podsNamed(3, "p", "n1", soft, request("cpu", 1000)), podsNamed(there, "q", "n2", soft))}
		if r := p.run(t); len(r.Evictions) != want {
			t.Errorf("3 pods in one rack, %d in the other: evictions = %v, want %d; skipped %v", there, names(r), want, r.Skipped)
		}
	}
}

// A pod is the replacement of a move if it was created after all others of the owner, within an hour.
func TestReplacementsOfMoves(t *testing.T) {
	m := &PastMove{Newest: t0, At: t0.Add(time.Second)}
	for age, want := range map[time.Duration]bool{0: false, -1: true, -time.Second - replacementDelay + 1: true, -time.Second - replacementDelay: false} {
		if got := m.madeReplacement(&model.Pod{Pod: pod("p", "n1", aged(age))}); got != want {
			t.Errorf("created %v after the newest pod: replacement %t, want %t", -age, got, want)
		}
	}
}

// A reason lists ten lines, and then the number of those that it leaves out.
func TestAgainstIsBounded(t *testing.T) {
	for count, want := range map[int]string{0: "", 1: "0", maxAgainst: "9", maxAgainst + 1: "and 1 more"} {
		w := &proposal{}
		w.addAgainst(count, func(i int) string { return fmt.Sprint(i) })
		if got := append([]string{""}, w.against...); got[len(got)-1] != want {
			t.Errorf("%d lines: the last is %q, want %q", count, got[len(got)-1], want)
		}
	}
}

// Of equally good nodes a proposal takes the one with the lowest rank, then the first.
func TestBestNodeOfProposal(t *testing.T) {
	c := model.New(&model.Objects{Nodes: cluster(node("a"), node("b"), node("c"), node("d"))}, nil)
	w := &proposal{improves: func(n *model.Node) bool { return n.Name != "a" }}
	if got := w.best(c.Nodes); got.Name != "b" {
		t.Errorf("without ranks: %s, want b", got.Name)
	}
	w.rank = func(n *model.Node) int { return map[string]int{"a": 0, "b": 2, "c": 1, "d": 1}[n.Name] }
	if got := w.best(c.Nodes); got.Name != "c" {
		t.Errorf("with ranks: %s, want c", got.Name)
	}
}

// A policy needs the measured values that its thresholds and metrics name, and is idle without a
// strategy.
func TestRequiredMetricsOfPolicy(t *testing.T) {
	prometheus := func(query string) *MetricsUtilization {
		return &MetricsUtilization{Source: PrometheusMetrics, Prometheus: &PrometheusQuery{Query: query}}
	}
	for name, c := range map[string]struct {
		by   []*MetricsUtilization
		t    Thresholds
		want string
	}{
		"requests":   {[]*MetricsUtilization{nil}, Thresholds{"cpu": 1}, "{false false []}"},
		"agents":     {[]*MetricsUtilization{nil}, Thresholds{AgentIOFull: 1}, "{false true []}"},
		"metrics":    {[]*MetricsUtilization{{Source: KubernetesMetrics}}, Thresholds{"cpu": 1}, "{true false []}"},
		"prometheus": {[]*MetricsUtilization{prometheus("a"), prometheus("b"), prometheus("a")}, Thresholds{MetricResource: 1}, "{false false [a b]}"},
	} {
		p := &Policy{}
		for i, by := range c.by {
			p.Profiles = append(p.Profiles, Profile{Name: fmt.Sprint(i)})
			p.Profiles[i].Enable(LowNodeUtilization, &LowNodeUtilizationArgs{Thresholds: c.t, MetricsUtilization: by})
		}
		if got := fmt.Sprint(p.RequiredMetrics()); got != c.want || p.Idle() {
			t.Errorf("%s: required metrics %s, idle %t, want %s and not idle", name, got, p.Idle(), c.want)
		}
	}
	if p := (&Policy{Profiles: []Profile{{Name: "p"}}}); !p.Idle() {
		t.Error("policy without a strategy: idle false, want true")
	}
}

// The number of plans is bounded.
func TestPlansAreBounded(t *testing.T) {
	c := plan{strategy: PodLifeTime, args: lifeTime(), nodes: two(), pods: podsNamed(2, "p", "n1")}
	s, w := &Snapshot{}, &search{plans: maxPlans - 1, templates: model.NewTemplates()}
	s.Nodes, s.Pods = c.nodes, c.pods
	if p, err := planUntilStable(c.policy(t), s, t0, nil, maxDepth, w); err != nil || w.plans != maxPlans || len(p.evictions) != 2 {
		t.Errorf("%d plans, error %v, want %d and the evictions of the last one", w.plans, err, maxPlans)
	}
}

// The replacements in the resulting cluster run on their node, or are pending without one.
func TestReplacementsInResult(t *testing.T) {
	p := plan{strategy: PodLifeTime, args: lifeTime(), nodes: two(), pods: podList(pod("p", "n1"), pod("q", "n1", selects("no", "node")))}
	got := map[string]string{}
	for _, made := range p.run(t).ResultingSnapshot.Pods {
		got[made.Name] = string(made.Status.Phase) + " " + string(made.UID)
	}
	if want := "map[p+next:Running p+next q+next:Pending q+next]"; fmt.Sprint(got) != want {
		t.Errorf("resulting pods = %v, want %s", got, want)
	}
}

// Only claims of the protected storage classes protect a pod; without such classes all claims do.
func TestProtectedStorageClasses(t *testing.T) {
	for class, want := range map[string]string{"": "uses PersistentVolumeClaim foo", "standard": "protected storage class standard", "other": ""} {
		a := &DefaultEvictorArgs{PodProtections: PodProtections{ExtraEnabled: []string{PodsWithPVC}, Config: &PodProtectionsConfig{}}}
		if class != "" {
			a.PodProtections.Config.PodsWithPVC = &PodsWithPVCConfig{ProtectedStorageClasses: []ProtectedStorageClass{{class}}}
		}
		if why, _ := filterResults(t, a, two(), podList(pod("p", "n1", claims("foo")))); (why == "") != (want == "") || !strings.Contains(why, want) {
			t.Errorf("protected class %q: filter = %q, want %q", class, why, want)
		}
	}
}

// NoExecute taints are left to taint eviction, PreferNoSchedule taints count if the arguments include
// them, and then only if the replacement gets a node without one.
func TestTaintsThatCount(t *testing.T) {
	soft, hard := taint("t", "v", v1.TaintEffectPreferNoSchedule), taint("t", "v", v1.TaintEffectNoSchedule)
	for name, c := range map[string]struct {
		include        bool
		present, other func(*v1.Node)
		want           string // the reason to stay; empty: the pod is evicted
		stays          bool
	}{
		"NoSchedule":                     {false, hard, func(*v1.Node) {}, "", false},
		"NoSchedule, soft there":         {true, hard, soft, "", false},
		"NoExecute":                      {true, taint("t", "v", v1.TaintEffectNoExecute), func(*v1.Node) {}, "", true},
		"PreferNoSchedule, not included": {false, soft, func(*v1.Node) {}, "", true},
		"PreferNoSchedule":               {true, soft, func(*v1.Node) {}, "", false},
		"PreferNoSchedule on both":       {true, soft, soft, "no feasible node would be better: other nodes have such a taint, too", true},
	} {
		p := plan{strategy: NodeTaints, args: &NodeTaintsArgs{IncludePreferNoSchedule: c.include}, nodes: cluster(node("n1", c.present), node("n2", c.other)),
			pods: podList(pod("p", "n1"))}
		if r := p.run(t); (len(r.Evictions) == 0) != c.stays || skipReason(r, "p") != c.want {
			t.Errorf("%s: evictions = %v, skipped %v, want no eviction: %t, reason %q", name, names(r), r.Skipped, c.stays, c.want)
		}
	}
}

// Contradictions of metrics are named.
func TestFaultsOfMetrics(t *testing.T) {
	for want, m := range map[string]*MetricsUtilization{
		"":                       nil,
		"select the same source": {Source: KubernetesMetrics, MetricsServer: true},
		"source is required":     {},
		`source "other": want KubernetesMetrics or Prometheus`: {Source: "other"},
		"prometheus is not allowed":                            {Source: KubernetesMetrics, Prometheus: &PrometheusQuery{}},
		"query is required":                                    {Source: PrometheusMetrics},
	} {
		if faults := fmt.Sprint(m.check(Thresholds{"cpu": 1})); (faults == "[]") != (want == "") || !strings.Contains(faults, want) {
			t.Errorf("%+v: faults %s, want %q", m, faults, want)
		}
	}
	for source, want := range map[MetricsSource]int{KubernetesMetrics: 1, PrometheusMetrics: 0} {
		p := &Policy{MetricsCollector: &MetricsCollector{Enabled: true}, MetricsProviders: []MetricsProvider{{Source: source, Prometheus: &Prometheus{URL: "http://localhost"}}}}
		if faults := p.checkProviders(); len(faults) != want {
			t.Errorf("metricsCollector and provider %s: faults %v, want %d", source, faults, want)
		}
	}
}

// A plan is rewound to the mark before the first proposal for a pinned pod, with all counts. With
// measured usage, or without a pinned pod, it starts from scratch.
func TestRewind(t *testing.T) {
	c := plan{strategy: PodLifeTime, args: lifeTime()}
	for _, measured := range []bool{false, true} {
		s := &Snapshot{}
		s.Nodes, s.Pods = two(), podList(pod("p", "n1"))
		if measured {
			setUsage(s, 100)
		}
		p, err := newPlanner(c.policy(t), s, t0, map[string]string{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, victim := p.runs[0], p.cluster.Pods()[0]
		p.addMark(0, 0)
		if p.rewind() {
			t.Error("rewound without a pinned pod, want a start from scratch")
		}
		p.noteProposal(victim.Key())
		r.countEviction(victim)
		p.moves.ineffective[ownerOf(victim, 0)] = ineffectiveMove{t0, 0}
		p.pin(victim.Key(), PodLifeTime)
		if got := p.rewind(); got == measured {
			t.Errorf("measured usage: %t, rewound %t, want the opposite", measured, got)
		} else if got && (p.total != 0 || p.perNode["n1"] != 0 || p.perNamespace["default"] != 0 || len(p.perOwner) != 0 || len(p.moves.ineffective) != 0) {
			t.Errorf("counts after rewind: total %d, nodes %v, namespaces %v, owners %v, moves %v, want none", p.total, p.perNode, p.perNamespace,
				p.perOwner, p.moves.ineffective)
		}
	}
}
