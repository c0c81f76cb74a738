package deschedule

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// stalls are what agents tell of two nodes: the first waits for memory for half of the time.
func stalls(s *Snapshot) {
	s.Agents = map[string]AgentLoad{
		"n1": {At: t0.Add(-time.Minute), Percent: map[v1.ResourceName]float64{AgentMemorySome: 50.5}},
		"n2": {At: t0.Add(-time.Minute), Percent: map[v1.ResourceName]float64{AgentMemorySome: 1}},
	}
}

func stalling(edits ...func(*Snapshot)) plan {
	return plan{
		strategy: LowNodeUtilization, nodes: cluster(big("n1", 10), big("n2", 10)), pods: all(many(2, "p", "n1"), many(4, "q", "n2")),
		args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30, AgentMemorySome: 5}, TargetThresholds: Thresholds{"cpu": 50, AgentMemorySome: 20}},
		edit: func(_ *Policy, s *Snapshot) {
			stalls(s)
			for _, e := range edits {
				e(s)
			}
		},
	}
}

// It goes by requests, and sees nothing of a node that stalls while its pods request little. One pod goes, for nobody knows what that does.
func TestANodeThatStallsIsOver(t *testing.T) {
	p := stalling()
	r := p.run(t)
	if len(r.Evictions) != 1 || r.Evictions[0].Node != "n1" || r.Evictions[0].To != "n2" ||
		r.Evictions[0].Reason != "n1 is over targetThresholds: jettison/memory-some 50.5% of 20% (told by its agent)" {
		t.Errorf("%+v, stopped %v, skipped %v", r.Evictions, r.Stopped, r.Skipped)
	}
}

// Figures that do not tell how it is now count as none, and a node of which there are none is neither over nor under.
func TestFiguresThatDoNotCount(t *testing.T) {
	for what, edit := range map[string]func(*Snapshot){
		"too old":       func(s *Snapshot) { s.Agents["n1"] = AgentLoad{At: t0.Add(-time.Hour), Percent: s.Agents["n1"].Percent} },
		"of the future": func(s *Snapshot) { s.Agents["n1"] = AgentLoad{At: t0.Add(time.Hour), Percent: s.Agents["n1"].Percent} },
		"of before the last eviction": func(s *Snapshot) {
			s.EvictedFrom = map[string]time.Time{"n1": t0.Add(-time.Second)}
		},
		"not told": func(s *Snapshot) { delete(s.Agents, "n1") },
		"another one": func(s *Snapshot) {
			s.Agents["n1"] = AgentLoad{At: t0, Percent: map[v1.ResourceName]float64{AgentIOFull: 99}}
		},
		"nobody tells": func(s *Snapshot) { s.Agents = nil },
	} {
		p := stalling(edit)
		if r := p.run(t); len(r.Evictions) != 0 || len(r.Stopped) != 1 {
			t.Errorf("%s: %v, stopped %v", what, names(r), r.Stopped)
		}
	}
}

// Where no node is better off nobody goes.
func TestAllNodesStall(t *testing.T) {
	p := stalling(func(s *Snapshot) { s.Agents["n2"] = s.Agents["n1"] })
	if r := p.run(t); len(r.Evictions) != 0 {
		t.Errorf("%v", names(r))
	}
}

// HighNodeUtilization by real use, which it has nothing of.
func TestHighByRealUse(t *testing.T) {
	p := plan{strategy: HighNodeUtilization, nodes: cluster(big("n1", 10), big("n2", 10)), pods: all(many(2, "p", "n1"), many(2, "q", "n2")),
		args: &HighNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30}, MetricsUtilization: &MetricsUtilization{Source: KubernetesMetrics}},
		edit: func(_ *Policy, s *Snapshot) {
			measure(s, 100)
			s.NodeUse["n2"] = sized("", 3000, 0, 0).Status.Capacity
		}}
	r := p.run(t)
	if len(r.Evictions) != 2 || r.Evictions[0].Node != "n1" ||
		r.Evictions[0].Reason != "n1 is under thresholds: cpu 5.0% of 30% (metrics API)" {
		t.Errorf("%+v, stopped %v", r.Evictions, r.Stopped)
	}
}

func TestUnknownFiguresOfAgentsAreRefused(t *testing.T) {
	p := &Policy{Profiles: []Profile{{PluginConfig: []PluginConfig{{HighNodeUtilization, &HighNodeUtilizationArgs{
		Thresholds: Thresholds{"jettison/memory-sum": 5}}}}}}}
	if err := p.Complete(); err == nil || !strings.Contains(err.Error(), "jettison/memory-sum: no agent tells it: want one of jettison/working-set") {
		t.Errorf("%v", err)
	}
}

// A Prometheus query gives a share of each node, and of no pod: one goes at a time.
func TestPrometheusFigures(t *testing.T) {
	p := plan{strategy: LowNodeUtilization, nodes: cluster(big("n1", 10), big("n2", 10)), pods: all(many(2, "p", "n1"), many(4, "q", "n2")),
		args: &LowNodeUtilizationArgs{Thresholds: Thresholds{MetricResource: 30}, TargetThresholds: Thresholds{MetricResource: 50},
			MetricsUtilization: &MetricsUtilization{Source: PrometheusMetrics, Prometheus: &PrometheusQuery{Query: "q"}}},
		edit: func(_ *Policy, s *Snapshot) {
			s.Queried = map[string]map[string]int64{"q": {"n1": 80, "n2": 10}}
		}}
	r := p.run(t)
	if len(r.Evictions) != 1 || r.Evictions[0].Reason != "n1 is over targetThresholds: MetricResource 80.0% of 50% (Prometheus)" {
		t.Errorf("%+v, stopped %v, skipped %v", r.Evictions, r.Stopped, r.Skipped)
	}
}
