package deschedule

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
