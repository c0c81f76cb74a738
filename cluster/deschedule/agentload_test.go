package deschedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// setAgentLoad reports memory stalls for two nodes: on n1 some task waits half of the time.
func setAgentLoad(s *Snapshot) {
	s.Agents = map[string]AgentLoad{
		"n1": {At: t0.Add(-time.Minute), Percent: map[v1.ResourceName]float64{AgentMemorySome: 50.5}},
		"n2": {At: t0.Add(-time.Minute), Percent: map[v1.ResourceName]float64{AgentMemorySome: 1}},
	}
}

func stalledPlan(edits ...func(*Snapshot)) plan {
	return plan{
		strategy: LowNodeUtilization, nodes: cluster(big("n1", 10), big("n2", 10)), pods: all(podsNamed(2, "p", "n1"), podsNamed(4, "q", "n2", owned("ReplicaSet", "q"))),
		args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30, AgentMemorySome: 5}, TargetThresholds: Thresholds{"cpu": 50, AgentMemorySome: 20}},
		edit: func(_ *Policy, s *Snapshot) {
			setAgentLoad(s)
			for _, e := range edits {
				e(s)
			}
		},
	}
}

// A node that stalls is overutilized even if its pods request little. Only one pod is evicted:
// its effect is unknown.
func TestStalledNodeIsOverutilized(t *testing.T) {
	p := stalledPlan()
	r := p.run(t)
	if len(r.Evictions) != 1 || r.Evictions[0].Node != "n1" || r.Evictions[0].To != "n2" ||
		r.Evictions[0].Reason != "n1 is over targetThresholds: jettison/memory-some 50.5% of 20% (reported by the agent)" {
		t.Errorf("evictions = %+v, want one from n1 to n2 because of memory-some; stopped %v, skipped %v", r.Evictions, r.Stopped, r.Skipped)
	}
}

// Load that does not describe the present is ignored. A node without agent load is neither over
// nor under thresholds.
func TestInvalidAgentLoadIsIgnored(t *testing.T) {
	for what, edit := range map[string]func(*Snapshot){
		"too old":         func(s *Snapshot) { s.Agents["n1"] = AgentLoad{At: t0.Add(-time.Hour), Percent: s.Agents["n1"].Percent} },
		"from the future": func(s *Snapshot) { s.Agents["n1"] = AgentLoad{At: t0.Add(time.Hour), Percent: s.Agents["n1"].Percent} },
		"older than the last eviction": func(s *Snapshot) {
			s.EvictedFrom = map[string]time.Time{"n1": t0.Add(-time.Second)}
		},
		"missing": func(s *Snapshot) { delete(s.Agents, "n1") },
		"another resource": func(s *Snapshot) {
			s.Agents["n1"] = AgentLoad{At: t0, Percent: map[v1.ResourceName]float64{AgentIOFull: 99}}
		},
		"no agent at all": func(s *Snapshot) { s.Agents = nil },
	} {
		p := stalledPlan(edit)
		r := p.run(t)
		if ends := slices.DeleteFunc(r.Stopped, func(s Stop) bool { return s.Continued }); len(r.Evictions) != 0 || len(ends) != 1 {
			t.Errorf("%s: evictions = %v, stopped = %v, want no eviction and one stop", what, names(r), ends)
		}
	}
}

func TestNoEvictionWithoutBetterNode(t *testing.T) {
	p := stalledPlan(func(s *Snapshot) { s.Agents["n2"] = s.Agents["n1"] })
	if r := p.run(t); len(r.Evictions) != 0 {
		t.Errorf("evictions = %v, want none", names(r))
	}
}

// HighNodeUtilization with measured usage, which 0.36.0 does not have.
func TestHighByMeasuredUsage(t *testing.T) {
	p := plan{strategy: HighNodeUtilization, nodes: cluster(big("n1", 10), big("n2", 10)), pods: all(podsNamed(2, "p", "n1"), podsNamed(2, "q", "n2", request("cpu", 300))),
		args: &HighNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30}, MetricsUtilization: &MetricsUtilization{Source: KubernetesMetrics}},
		edit: func(p *Policy, s *Snapshot) {
			packs(p, s)
			setUsage(s, 100)
			s.NodeUsage["n2"] = sized("", 3000, 0, 0).Status.Capacity
		}}
	r := p.run(t)
	if len(r.Evictions) != 2 || r.Evictions[0].Node != "n1" ||
		r.Evictions[0].Reason != "n1 is under thresholds: cpu 5.0% of 30% (metrics API)" {
		t.Errorf("evictions = %+v, want two from n1 by usage of the metrics API; stopped %v", r.Evictions, r.Stopped)
	}
}

func TestUnknownAgentResourceIsAnError(t *testing.T) {
	p := &Policy{Profiles: []Profile{{PluginConfig: []PluginConfig{{HighNodeUtilization, &HighNodeUtilizationArgs{
		Thresholds: Thresholds{"jettison/memory-sum": 5}}}}}}}
	if err := p.Complete(); err == nil || !strings.Contains(err.Error(), "jettison/memory-sum: unknown agent resource: want one of jettison/working-set") {
		t.Errorf("Complete() = %v, want an error about jettison/memory-sum", err)
	}
}

// A Prometheus query gives a share for each node and none for pods: one pod is evicted at a time.
func TestPrometheusUsage(t *testing.T) {
	p := plan{strategy: LowNodeUtilization, nodes: cluster(big("n1", 10), big("n2", 10)), pods: all(podsNamed(2, "p", "n1"), podsNamed(4, "q", "n2", owned("ReplicaSet", "q"))),
		args: &LowNodeUtilizationArgs{Thresholds: Thresholds{MetricResource: 30}, TargetThresholds: Thresholds{MetricResource: 50},
			MetricsUtilization: &MetricsUtilization{Source: PrometheusMetrics, Prometheus: &PrometheusQuery{Query: "q"}}},
		edit: func(_ *Policy, s *Snapshot) {
			s.Queried = map[string]map[string]int64{"q": {"n1": 80, "n2": 10}}
		}}
	r := p.run(t)
	if len(r.Evictions) != 1 || r.Evictions[0].Reason != "n1 is over targetThresholds: MetricResource 80.0% of 50% (Prometheus)" {
		t.Errorf("evictions = %+v, want one from n1 by the Prometheus query; stopped %v, skipped %v", r.Evictions, r.Stopped, r.Skipped)
	}
}
