package deschedule

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/cluster/model"
)

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
