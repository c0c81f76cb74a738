package deschedule

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"jettison/cluster/model"
	"jettison/internal/base/race"
)

// A tenant can keep a pod in deletion with a finalizer. Its evict annotation must not use up a
// limit.
func TestDeletedPodUsesNoLimit(t *testing.T) {
	p := lifeTimePlan(func(p *plan) {
		p.limits = &limits{1, -1, -1}
		p.pods = podList(pod("stuck", "n1", term, annotation(evictAnnotation)), pod("mine", "n1", aged(24*time.Hour)))
	})
	if r := p.run(t); !slices.Equal(names(r), []string{"mine"}) || skipReason(r, "stuck") != "pod is already being deleted" {
		t.Errorf("evictions = %v, want mine; skipped %v, want stuck", names(r), r.Skipped)
	}
}

// Owner references are written by tenants: references from other namespaces and repeated
// references do not count as replicas.
func TestForgedOwnersAreNoReplicas(t *testing.T) {
	ref := metav1.OwnerReference{Kind: "ReplicaSet", Name: "one", UID: "ReplicaSetone"}
	forged := pod("forged", "n2", inSpace("tenant"), aged(0), func(p *v1.Pod) { p.OwnerReferences = slices.Repeat([]metav1.OwnerReference{ref}, 50) })
	twice := pod("twice", "n1", func(p *v1.Pod) { p.OwnerReferences = nil })
	twice.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "own", UID: "own"}}
	p := lifeTimePlan(func(p *plan) {
		p.evictor = &DefaultEvictorArgs{MinReplicas: 2}
		p.pods = podList(pod("single", "n1", owned("ReplicaSet", "one")), forged, twice)
	})
	if r := p.run(t); len(r.Evictions) != 0 || !strings.Contains(skipReason(r, "single"), "has 1 active pods, fewer than minReplicas 2") {
		t.Errorf("evictions = %v, want none; skipped %v, want single because of minReplicas", names(r), r.Skipped)
	}
}

// Owners without UID, as in hand-written files, are identified by kind and name.
func TestOwnersWithoutUID(t *testing.T) {
	of := func(name string) edit {
		return func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name}} }
	}
	p := lifeTimePlan(func(p *plan) {
		p.evictor = &DefaultEvictorArgs{MinReplicas: 2}
		p.pods = podList(pod("a", "n1", of("a")), pod("b", "n1", of("b")))
	})
	if r := p.run(t); len(r.Evictions) != 0 {
		t.Errorf("evictions = %v, want none because of minReplicas; skipped %v", names(r), r.Skipped)
	}
	p.evictor, p.edit = nil, func(p *Policy, _ *Snapshot) { p.OwnerPause = &metav1.Duration{Duration: time.Minute} }
	if r := p.run(t); len(r.Evictions) != 2 {
		t.Errorf("evictions = %v, want one for each owner; skipped %v", names(r), r.Skipped)
	}
}

// A replacement never has the name of an existing pod, and a skip never names a replacement.
func TestReplacementNamesAreUnique(t *testing.T) {
	// The replacement is less than an hour old and runs on a node that the second strategy considers.
	policy := &Policy{Profiles: []Profile{{Name: "p", PluginConfig: []PluginConfig{
		{DefaultEvictor, &DefaultEvictorArgs{MinPodAge: &metav1.Duration{Duration: time.Hour}}}}}}}
	policy.Profiles[0].Enable(TooManyRestarts, &TooManyRestartsArgs{PodRestartThreshold: 100})
	policy.Profiles[0].Enable(LowNodeUtilization, &LowNodeUtilizationArgs{Thresholds: Thresholds{"pods": 10}, TargetThresholds: Thresholds{"pods": 20}})
	if err := policy.Complete(); err != nil {
		t.Fatal(err)
	}
	restarts := func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: 200}} }
	for _, other := range []string{"other", "web-next"} {
		s := &Snapshot{}
		s.Nodes = cluster(sized("n1", 100000, 3000, 10), sized("n2", 100000, 3000, 10))
		s.Pods = all(podList(pod("web", "n1", restarts, started(24*time.Hour), selects(v1.LabelHostname, "n1")),
			pod(other, "n1", started(24*time.Hour), selects(v1.LabelHostname, "n1"))), podsNamed(6, "bare", "n1", started(24*time.Hour), bare))
		r, err := Plan(policy, s, t0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(model.New(&r.ResultingSnapshot.Objects, nil).Pods()); got != len(s.Pods) {
			t.Errorf("%s: %d pods after the plan, want %d", other, got, len(s.Pods))
		}
		for _, skip := range r.Skipped {
			if !slices.ContainsFunc(s.Pods, func(p *v1.Pod) bool { return p.Name == skip.Name }) {
				t.Errorf("%s: skip names unknown pod %s: %s", other, skip.Name, skip.Reason)
			}
		}
		if !slices.Equal(names(r), []string{"web"}) {
			t.Errorf("%s: evictions = %v, want web; skipped %v", other, names(r), r.Skipped)
		}
	}
}

// Two strategies with different queries use the answers to their own.
func TestEachQueryHasItsOwnUsage(t *testing.T) {
	by := func(query string) *LowNodeUtilizationArgs {
		return &LowNodeUtilizationArgs{Thresholds: Thresholds{MetricResource: 20}, TargetThresholds: Thresholds{MetricResource: 50},
			MetricsUtilization: &MetricsUtilization{Source: PrometheusMetrics, Prometheus: &PrometheusQuery{Query: query}}}
	}
	policy := &Policy{Profiles: []Profile{{Name: "cpu"}, {Name: "io"}}}
	policy.Profiles[0].Enable(LowNodeUtilization, by("cpu"))
	policy.Profiles[1].Enable(LowNodeUtilization, by("io"))
	if err := policy.Complete(); err != nil {
		t.Fatal(err)
	}
	s := &Snapshot{}
	s.Nodes, s.Pods = two(), all(podsNamed(2, "a", "n1"), podsNamed(2, "b", "n2", owned("ReplicaSet", "b")))
	s.Queried = map[string]map[string]int64{"cpu": {"n1": 10, "n2": 90}, "io": {"n1": 30, "n2": 30}}
	r, err := Plan(policy, s, t0)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Evictions) != 1 || r.Evictions[0].Node != "n2" || r.Evictions[0].Profile != "cpu" {
		t.Errorf("evictions = %+v, want one from n2 in profile cpu; stopped %v", r.Evictions, r.Stopped)
	}
}

// Thousands of budgets that cover a pod do not make a reason long.
func TestReasonsAreShort(t *testing.T) {
	p := lifeTimePlan(func(p *plan) {
		p.pods = podList(pod("p", "n1"))
		p.edit = func(_ *Policy, s *Snapshot) {
			for i := range 1000 {
				s.Budgets = append(s.Budgets, &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("budget-%04d", i)},
					Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{}}})
			}
		}
	})
	r := p.run(t)
	if is := skipReason(r, "p"); len(is) > 300 || !strings.HasSuffix(is, "budget-0009 and 990 more") {
		t.Errorf("skip reason has %d bytes, want at most 300 and a count: %.400s", len(is), is)
	}
}

// A pod may request more than any node has: several of them must not make a node look empty.
func TestRequestsDoNotOverflow(t *testing.T) {
	p := plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"memory": 20}, TargetThresholds: Thresholds{"memory": 50}},
		nodes: cluster(node("n1"), node("n2")),
		pods: all(podsNamed(3, "huge", "n1", request(v1.ResourceMemory, 1<<62), phase(v1.PodPending), bare),
			podsNamed(6, "mine", "n2", request(v1.ResourceMemory, 400)))}
	r := p.run(t)
	for _, e := range r.Evictions {
		if e.To == "n1" {
			t.Errorf("replacement of %s is placed on n1, want n2 or none: %s", e.Name, e.Reason)
		}
	}
	if is := r.Before["n1"]["memory"]; is <= 100 {
		t.Errorf("memory load of n1 = %v%%, want above 100%%", is)
	}
}

// cpuTime returns the CPU time of this process so far. Unlike wall time it does not depend on
// other processes.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// timeLimit is exceeded if the cost of a pod grows with the square of its size, and ten times the
// cost if it grows linearly.
func timeLimit() time.Duration {
	if race.Enabled {
		return 25 * time.Second
	}
	return 3 * time.Second
}

// A pod may have tens of thousands of owner references: the cost grows linearly with their
// number.
func TestManyOwnersTakeLinearTime(t *testing.T) {
	most := pod("p", "n1")
	for i := range 120_000 {
		most.OwnerReferences = append(most.OwnerReferences, metav1.OwnerReference{Kind: "K", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))})
	}
	p := plan{strategy: RemoveDuplicates, args: &RemoveDuplicatesArgs{}, nodes: cluster(node("n1"), node("n2"), node("n3")), pods: all(podList(most), podsNamed(4, "q", "n1"))}
	began := cpuTime(t)
	p.run(t)
	if took := cpuTime(t) - began; took > timeLimit() {
		t.Errorf("plan took %v of CPU time, want at most %v", took, timeLimit())
	}
}

// manyTolerations has nodes with 500 taints and pods with 100 tolerations, which tolerate all taints
// but the last one.
func manyTolerations(nodes, pods int) plan {
	p := plan{strategy: NodeTaints, args: &NodeTaintsArgs{}, evictor: &DefaultEvictorArgs{NodeFit: true}}
	var tolerations []v1.Toleration
	for i := range 99 {
		tolerations = append(tolerations, v1.Toleration{Key: fmt.Sprint("other", i), Operator: v1.TolerationOpExists})
	}
	tolerations = append(tolerations, v1.Toleration{Key: "dedicated", Operator: v1.TolerationOpExists})
	for i := range nodes {
		n := sized(fmt.Sprintf("n%03d", i), 100_000, 100_000, int64(pods))
		for j := range 499 {
			taint("dedicated", fmt.Sprint(j), v1.TaintEffectNoSchedule)(n)
		}
		taint("last", "", v1.TaintEffectNoSchedule)(n)
		p.nodes = append(p.nodes, n)
	}
	p.pods = podsNamed(pods, "p", "n000", func(p *v1.Pod) { p.Spec.Tolerations = tolerations })
	return p
}

// Tolerations are compared with each taint of the cluster once, not for each node.
func TestManyTolerationsAndTaints(t *testing.T) {
	p := manyTolerations(200, 200)
	began := cpuTime(t)
	r := p.run(t)
	if took := cpuTime(t) - began; took > timeLimit() {
		t.Errorf("plan took %v of CPU time, want at most %v", took, timeLimit())
	}
	if why := skipReason(r, "p0"); !strings.HasSuffix(why, "taint last:NoSchedule is not tolerated") {
		t.Errorf("skip reason = %q, want the taint that is not tolerated", why)
	}
}

// A pod without creation time, as in hand-written files, does not count as one of the year 1.
func TestPodWithoutCreationTimeStays(t *testing.T) {
	ageless := func(p *v1.Pod) { p.CreationTimestamp = metav1.Time{} }
	p := lifeTimePlan(func(p *plan) { p.pods = podList(pod("p", "n1", ageless)) })
	if r := p.run(t); len(r.Evictions) != 0 {
		t.Errorf("evictions = %v, want none", r.Evictions)
	}
	p = plan{strategy: RemoveFailedPods, args: &RemoveFailedPodsArgs{}, nodes: two(), pods: podList(pod("p", "n1", ageless, phase(v1.PodFailed)))}
	if r := p.run(t); len(r.Evictions) != 0 {
		t.Errorf("evictions = %v, want none", r.Evictions)
	}
}
