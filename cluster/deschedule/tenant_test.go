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

// Whoever owns pods can have them hang in their deletion by a finalizer, for ever. That they ask to be evicted takes nobody's turn.
func TestAPodThatIsDeletedAlreadyTakesNobodysTurn(t *testing.T) {
	p := old(func(p *plan) {
		p.limits = &limits{1, -1, -1}
		p.pods = some(pod("stuck", "n1", term, annotation(evictAnnotation)), pod("mine", "n1", aged(24*time.Hour)))
	})
	if r := p.run(t); !slices.Equal(names(r), []string{"mine"}) || why(r, "stuck") != "it is being deleted already" {
		t.Errorf("%v %v", names(r), r.Skipped)
	}
}

// Owners are told by references that whoever makes a pod writes: those of other namespaces, and such as are there many times, are nobody's
// replicas.
func TestForgedReplicasAreNone(t *testing.T) {
	ref := metav1.OwnerReference{Kind: "ReplicaSet", Name: "one", UID: "ReplicaSetone"}
	forged := pod("forged", "n2", inSpace("tenant"), aged(0), func(p *v1.Pod) { p.OwnerReferences = slices.Repeat([]metav1.OwnerReference{ref}, 50) })
	twice := pod("twice", "n1", func(p *v1.Pod) { p.OwnerReferences = nil })
	twice.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "own", UID: "own"}}
	p := old(func(p *plan) {
		p.evictor = &DefaultEvictorArgs{MinReplicas: 2}
		p.pods = some(pod("single", "n1", owned("ReplicaSet", "one")), forged, twice)
	})
	if r := p.run(t); len(r.Evictions) != 0 || !strings.Contains(why(r, "single"), "has 1 pods, fewer than minReplicas 2") {
		t.Errorf("%v %v", names(r), r.Skipped)
	}
}

// In a file that was written by hand owners may have no UID: they are told apart by their names.
func TestOwnersWithoutUID(t *testing.T) {
	of := func(name string) edit {
		return func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name}} }
	}
	p := old(func(p *plan) {
		p.evictor = &DefaultEvictorArgs{MinReplicas: 2}
		p.pods = some(pod("a", "n1", of("a")), pod("b", "n1", of("b")))
	})
	if r := p.run(t); len(r.Evictions) != 0 {
		t.Errorf("%v %v", names(r), r.Skipped)
	}
	p.evictor, p.edit = nil, func(p *Policy, _ *Snapshot) { p.OwnerPause = &metav1.Duration{Duration: time.Minute} }
	if r := p.run(t); len(r.Evictions) != 2 {
		t.Errorf("%v %v", names(r), r.Skipped)
	}
}

// Whatever pods are called, none is taken for another one's successor, and none that is not there is named.
func TestSuccessorsAreNobodysNames(t *testing.T) {
	// Of the evicted pod a successor is made that is less than an hour old, on a node that is looked at by the second strategy.
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
		s.Pods = all(some(pod("web", "n1", restarts, started(24*time.Hour), selects(v1.LabelHostname, "n1")),
			pod(other, "n1", started(24*time.Hour), selects(v1.LabelHostname, "n1"))), many(6, "bare", "n1", started(24*time.Hour), bare))
		r, err := Plan(policy, s, t0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(model.New(&r.Leads.Objects, nil).Pods()); got != len(s.Pods) {
			t.Errorf("%s: %d pods, and then %d", other, len(s.Pods), got)
		}
		for _, skip := range r.Skipped {
			if !slices.ContainsFunc(s.Pods, func(p *v1.Pod) bool { return p.Name == skip.Name }) {
				t.Errorf("%s: there is no %s: %s", other, skip.Name, skip.Reason)
			}
		}
		if !slices.Equal(names(r), []string{"web"}) {
			t.Errorf("%s: %v %v", other, names(r), r.Skipped)
		}
	}
}

// Two strategies that go by queries of their own each go by the answer to theirs.
func TestEachQueryHasItsOwnFigures(t *testing.T) {
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
	s.Nodes, s.Pods = two(), all(many(2, "a", "n1"), many(2, "b", "n2"))
	s.Queried = map[string]map[string]int64{"cpu": {"n1": 10, "n2": 90}, "io": {"n1": 30, "n2": 30}}
	r, err := Plan(policy, s, t0)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Evictions) != 1 || r.Evictions[0].Node != "n2" || r.Evictions[0].Profile != "cpu" {
		t.Errorf("%+v, stopped %v", r.Evictions, r.Stopped)
	}
}

// Budgets by the thousand over one pod do not make a page of each reason.
func TestReasonsAreShort(t *testing.T) {
	p := old(func(p *plan) {
		p.pods = some(pod("p", "n1"))
		p.edit = func(_ *Policy, s *Snapshot) {
			for i := range 1000 {
				s.Budgets = append(s.Budgets, &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("budget-%04d", i)},
					Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{}}})
			}
		}
	})
	r := p.run(t)
	if is := why(r, "p"); len(is) > 300 || !strings.HasSuffix(is, "budget-0009 and 990 more") {
		t.Errorf("%d bytes: %.400s", len(is), is)
	}
}

// What no node has one pod may say that it takes: several of them do not make a node look empty.
func TestRequestsDoNotOverflow(t *testing.T) {
	p := plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"memory": 20}, TargetThresholds: Thresholds{"memory": 50}},
		nodes: cluster(node("n1"), node("n2")),
		pods: all(many(3, "huge", "n1", request(v1.ResourceMemory, 1<<62), phase(v1.PodPending), bare),
			many(6, "mine", "n2", request(v1.ResourceMemory, 400)))}
	r := p.run(t)
	for _, e := range r.Evictions {
		if e.To == "n1" {
			t.Errorf("%s goes to n1: %s", e.Name, e.Reason)
		}
	}
	if is := r.Before["n1"]["memory"]; is <= 100 {
		t.Errorf("n1 is used by %v%%", is)
	}
}

// spent returns the CPU time of this process so far: unlike wall time it does not grow with what else the machine does.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// squared is what a pod takes less than whose cost grows with the square of its length, and ten times as much as one whose does not.
func squared() time.Duration {
	if race.Enabled {
		return 25 * time.Second
	}
	return 3 * time.Second
}

// A pod may name owners by the ten thousand: what that costs grows with their number, not with its square.
func TestThousandsOfOwners(t *testing.T) {
	most := pod("p", "n1")
	for i := range 120_000 {
		most.OwnerReferences = append(most.OwnerReferences, metav1.OwnerReference{Kind: "K", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))})
	}
	p := plan{strategy: RemoveDuplicates, args: &RemoveDuplicatesArgs{}, nodes: cluster(node("n1"), node("n2"), node("n3")), pods: all(some(most), many(4, "q", "n1"))}
	began := spent(t)
	p.run(t)
	if took := spent(t) - began; took > squared() {
		t.Errorf("took %v of CPU time", took)
	}
}

// In a file that was written by hand a pod may have no creation time: it is not taken for one of the year 1.
func TestAPodOfNoKnownAge(t *testing.T) {
	ageless := func(p *v1.Pod) { p.CreationTimestamp = metav1.Time{} }
	p := old(func(p *plan) { p.pods = some(pod("p", "n1", ageless)) })
	if r := p.run(t); len(r.Evictions) != 0 {
		t.Errorf("%v", r.Evictions)
	}
	p = plan{strategy: RemoveFailedPods, args: &RemoveFailedPodsArgs{}, nodes: two(), pods: some(pod("p", "n1", ageless, phase(v1.PodFailed)))}
	if r := p.run(t); len(r.Evictions) != 0 {
		t.Errorf("%v", r.Evictions)
	}
}
