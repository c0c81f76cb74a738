package deschedule

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const testGPU v1.ResourceName = "gpu.example/v"

// gpuNodes returns two nodes with GPUs, and two without: h1 and c1.
func gpuNodes() []*v1.Node {
	return cluster(big("v1", 10, has2(string(testGPU), 8)), big("v2", 10, has2(string(testGPU), 8)), big("h1", 10), big("c1", 10))
}

func stopReasons(r *Result) (out []string) {
	for _, s := range r.Stopped {
		out = append(out, s.Reason)
	}
	return out
}

// A node without a resource of thresholds is not under them: 0.36.0 takes 0 % for it and evicts the
// pods of busy nodes (descheduler#1634).
func TestNodeWithoutResourceIsNotUnderThresholds(t *testing.T) {
	gpus := func(amount int64) edit { return request(testGPU, amount) }
	for name, empty := range map[string]func(*v1.Node){"absent": func(*v1.Node) {}, "zero": has2(string(testGPU), 0)} {
		nodes := gpuNodes()
		cordoned(nodes[1]) // no replacement returns to v2
		empty(nodes[2])
		empty(nodes[3])
		p := plan{strategy: HighNodeUtilization, evictor: &DefaultEvictorArgs{NodeFit: true}, nodes: nodes,
			args: &HighNodeUtilizationArgs{Thresholds: Thresholds{testGPU: 40}},
			pods: podList(pod("train", "v1", gpus(6)), pod("small", "v2", gpus(1)), pod("api", "h1", request("cpu", 1000)),
				pod("web", "c1", request("cpu", 3000)))}
		r := p.run(t)
		if !slices.Equal(names(r), []string{"small"}) {
			t.Errorf("%s: evictions = %+v, want small of v2 only; skipped %v, stopped %v", name, r.Evictions, r.Skipped, r.Stopped)
		}
	}
}

// The other resources of thresholds still count for a node without a GPU: it takes pods that request
// none. In 0.36.0 no GPU is left on such nodes, so nothing is evicted (descheduler#1635).
func TestNodeWithoutResourceTakesOtherPods(t *testing.T) {
	p := plan{strategy: LowNodeUtilization, nodes: cluster(big("n1", 10, has2(string(testGPU), 8)), big("n2", 10)),
		args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20, testGPU: 20}, TargetThresholds: Thresholds{"cpu": 50, testGPU: 50}},
		pods: all(podsNamed(6, "p", "n1", request("cpu", 400)), podList(pod("train", "n1", request(testGPU, 2))))}
	r := p.run(t)
	if len(r.Evictions) != 2 || r.Evictions[0].To != "n2" || r.Evictions[0].Reason != "n1 is over targetThresholds: cpu 62.5% of 50%" {
		t.Errorf("evictions = %+v, want two to n2; skipped %v, stopped %v", r.Evictions, r.Skipped, r.Stopped)
	}
	if want := "n2 is under thresholds: cpu 0.0% of 20%"; len(r.Evictions) > 0 && !slices.Contains(r.Evictions[0].Against, want) {
		t.Errorf("against = %q, want %q without the GPU", r.Evictions[0].Against, want)
	}
}

// A node that lost its GPUs does not lose more pods for the GPUs that these still request.
func TestLostResourceIsNotExceeded(t *testing.T) {
	lost := request(testGPU, 1)
	p := plan{strategy: LowNodeUtilization, nodes: cluster(big("n1", 10), big("n2", 10, has2(string(testGPU), 8))),
		args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20, testGPU: 20}, TargetThresholds: Thresholds{"cpu": 50, testGPU: 90}},
		pods: podsNamed(6, "p", "n1", request("cpu", 400), lost)}
	if r := p.run(t); len(r.Evictions) != 1 {
		t.Errorf("evictions = %v, want one until cpu is at 50 %%; skipped %v, stopped %v", names(r), r.Skipped, r.Stopped)
	}
}

// Whatever ends a strategy leaves a reason.
func TestEndOfStrategyHasReason(t *testing.T) {
	gpuOnly := func(above float64) *LowNodeUtilizationArgs {
		return &LowNodeUtilizationArgs{Thresholds: Thresholds{testGPU: 5}, TargetThresholds: Thresholds{testGPU: above}}
	}
	deviation := gpuOnly(5)
	deviation.UseDeviationThresholds = true
	busy := podsNamed(4, "p", "n1", request("cpu", 900), request(testGPU, 1))
	one := cluster(big("n1", 10, has2(string(testGPU), 4)), big("n2", 10, has2(string(testGPU), 1)))
	for name, c := range map[string]struct {
		plan
		want string
	}{
		"no node has it":            {plan{args: gpuOnly(50), nodes: cluster(big("n1", 10), big("n2", 10))}, "no node has a resource of thresholds"},
		"no node has it, deviation": {plan{args: deviation, nodes: cluster(big("n1", 10), big("n2", 10))}, "no node has a resource of thresholds"},
		"one GPU is more than half": {plan{args: gpuOnly(50), nodes: one}, "the nodes that could take more pods have no " + string(testGPU) + " left"},
		"nothing is left": {plan{nodes: cluster(big("n1", 10), big("n2", 1)), pods: podsNamed(4, "p", "n1", request("cpu", 900)),
			args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30}, TargetThresholds: Thresholds{"cpu": 50}}},
			"the nodes that could take more pods have no pods left"},
	} {
		if c.strategy = LowNodeUtilization; c.pods == nil {
			c.pods = busy
		}
		if r := c.run(t); !slices.Equal(stopReasons(r), []string{c.want}) {
			t.Errorf("%s: stopped = %v, want %q; evictions %v, skipped %v", name, r.Stopped, c.want, names(r), r.Skipped)
		}
	}
}

// One node without metrics is left out, with a line, and the others are balanced: 0.36.0 stops
// (descheduler PR#1852).
func TestNodeWithoutMetricsIsLeftOut(t *testing.T) {
	nodes := func() []*v1.Node { return cluster(big("n1", 10), big("n2", 10), big("n3", 10)) }
	// n3 has more requests than n2, so that a scheduler prefers n2
	pods := all(podsNamed(4, "p", "n1", request("cpu", 300)), podList(pod("q", "n2", request("cpu", 300))), podsNamed(2, "r", "n3", request("cpu", 300)))
	for name, c := range map[string]struct {
		plan
		missing string
	}{
		"metrics API": {plan{strategy: LowNodeUtilization,
			args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30}, TargetThresholds: Thresholds{"cpu": 60},
				MetricsUtilization: &MetricsUtilization{Source: KubernetesMetrics}},
			edit: func(_ *Policy, s *Snapshot) { setUsage(s, 900); delete(s.NodeUsage, "n3") }}, "measured usage of node n3 lacks cpu"},
		"figures lack cpu": {plan{strategy: LowNodeUtilization,
			args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30}, TargetThresholds: Thresholds{"cpu": 60},
				MetricsUtilization: &MetricsUtilization{Source: KubernetesMetrics}},
			edit: func(_ *Policy, s *Snapshot) { setUsage(s, 900); delete(s.NodeUsage["n3"], "cpu") }}, "measured usage of node n3 lacks cpu"},
		"Prometheus": {plan{strategy: LowNodeUtilization,
			args: &LowNodeUtilizationArgs{Thresholds: Thresholds{MetricResource: 30}, TargetThresholds: Thresholds{MetricResource: 60},
				MetricsUtilization: &MetricsUtilization{Source: PrometheusMetrics, Prometheus: &PrometheusQuery{Query: "q"}}},
			edit: func(_ *Policy, s *Snapshot) {
				s.Queried = map[string]map[string]int64{"q": {"n1": 90, "n2": 10}}
			}}, "measured usage of node n3 lacks MetricResource"},
		"agents": {plan{strategy: LowNodeUtilization,
			args: &LowNodeUtilizationArgs{Thresholds: Thresholds{AgentMemorySome: 5}, TargetThresholds: Thresholds{AgentMemorySome: 20}},
			edit: func(_ *Policy, s *Snapshot) { setAgentLoad(s) }}, "no agent has a recent jettison/memory-some in its Lease"},
	} {
		c.nodes, c.pods = nodes(), pods
		r := c.run(t)
		if len(r.Evictions) != 1 || r.Evictions[0].To != "n2" {
			t.Errorf("%s: evictions = %+v, want one from n1 to n2; skipped %v", name, r.Evictions, r.Skipped)
		}
		want := "1 of 3 nodes left out: " + c.missing
		if len(r.Stopped) == 0 || !r.Stopped[0].Continued || !strings.HasPrefix(r.Stopped[0].Reason, want) {
			t.Errorf("%s: stopped = %+v, want %q first", name, r.Stopped, want)
		}
	}
}

// HighNodeUtilization neither drains a node without metrics nor moves pods to it.
func TestHighLeavesOutNodeWithoutMetrics(t *testing.T) {
	p := plan{strategy: HighNodeUtilization, nodes: cluster(big("n1", 10, cordoned), big("n2", 30), big("n3", 30)),
		args: &HighNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30}, MetricsUtilization: &MetricsUtilization{Source: KubernetesMetrics}},
		pods: all(podsNamed(1, "p", "n1"), podsNamed(20, "q", "n2"), podsNamed(25, "r", "n3")),
		edit: func(_ *Policy, s *Snapshot) { setUsage(s, 100); delete(s.NodeUsage, "n3") }}
	if r := p.run(t); len(r.Evictions) != 1 || r.Evictions[0].To != "n2" || len(r.Stopped) != 1 || !r.Stopped[0].Continued {
		t.Errorf("evictions = %+v, stopped = %+v, want one from n1 to n2 and n3 left out", r.Evictions, r.Stopped)
	}
}
