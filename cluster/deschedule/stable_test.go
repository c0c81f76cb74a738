package deschedule

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"jettison/cluster/model"
)

// randomCluster returns nodes in zones, some cordoned or tainted, and pods of several owners with
// all properties that strategies check.
func randomCluster(r *rand.Rand) *Snapshot {
	s := &Snapshot{}
	for i := range 2 + r.IntN(6) {
		n := sized(fmt.Sprintf("n%d", i), int64(1000+500*r.IntN(7)), int64(1000+1000*r.IntN(4)), int64(6+r.IntN(12)),
			nodeLabel("zone", string(rune('a'+r.IntN(3)))))
		switch r.IntN(8) {
		case 0:
			cordoned(n)
		case 1:
			taint("t", "v", v1.TaintEffectNoSchedule)(n)
		case 2:
			taint("t", "v", v1.TaintEffectPreferNoSchedule)(n)
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range 1 + r.IntN(6) {
		owner := randomOwner(r, i)
		for j := range r.IntN(10) {
			on := s.Nodes[r.IntN(len(s.Nodes))]
			p := pod(fmt.Sprintf("o%d-%d", i, j), on.Name, owner...)
			for _, e := range randomPod(r) {
				e(p)
			}
			s.Pods = append(s.Pods, p)
		}
	}
	if r.IntN(2) == 0 {
		s.Budgets = []*policyv1.PodDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
			Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(int32(r.IntN(4)))),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"owner": "o0"}}},
		}}
	}
	return s
}

// randomOwner returns the edits shared by all pods of one owner.
func randomOwner(r *rand.Rand, i int) []edit {
	name := fmt.Sprintf("o%d", i)
	out := []edit{owned("ReplicaSet", name), label("owner", name), request(v1.ResourceCPU, int64(50+50*r.IntN(12))),
		request(v1.ResourceMemory, int64(r.IntN(400)))}
	if r.IntN(3) == 0 {
		out = append(out, priority(int32(100*r.IntN(4))))
	}
	if r.IntN(4) == 0 {
		out = append(out, tolerates("t", "v", ""))
	}
	when := []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}[r.IntN(2)]
	switch r.IntN(6) {
	case 0:
		out = append(out, spreads("zone", int32(1+r.IntN(2)), when))
	case 1:
		out = append(out, spreads("zone", 1, when), spreads(v1.LabelHostname, 1, v1.DoNotSchedule))
	case 2:
		out = append(out, repels("owner", name, v1.LabelHostname))
	case 3:
		out = append(out, affine(matchIn("zone", "a", "b"), matchIn("zone", "b")))
	}
	return out
}

// randomPod returns edits that differ between pods of one owner.
func randomPod(r *rand.Rand) []edit {
	out := []edit{aged(time.Duration(r.IntN(48)) * time.Hour)}
	switch r.IntN(12) {
	case 0:
		out = append(out, local)
	case 1:
		out = append(out, phase(v1.PodFailed))
	case 2:
		out = append(out, func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: 200}} })
	case 3:
		out = append(out, term)
	}
	return out
}

// randomPolicy returns a policy with some strategies in one or two profiles.
func randomPolicy(r *rand.Rand) *Policy {
	thresholds := Thresholds{"cpu": float64(10 + r.IntN(30)), "pods": float64(10 + r.IntN(30))}
	target := Thresholds{"cpu": 40 + float64(r.IntN(40)), "pods": 40 + float64(r.IntN(40))}
	strategies := []struct {
		name string
		args any
	}{
		{PodLifeTime, &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(36 * 3600))}},
		{TooManyRestarts, &TooManyRestartsArgs{PodRestartThreshold: 100}},
		{RemoveFailedPods, &RemoveFailedPodsArgs{}},
		{NodeTaints, &NodeTaintsArgs{IncludePreferNoSchedule: r.IntN(2) == 0}},
		{NodeAffinity, &NodeAffinityArgs{NodeAffinityType: []string{RequiredAffinity, PreferredAffinity}}},
		{InterPodAntiAffinity, &AntiAffinityArgs{}},
		{RemoveDuplicates, &RemoveDuplicatesArgs{}},
		{LowNodeUtilization, &LowNodeUtilizationArgs{Thresholds: thresholds, TargetThresholds: target}},
		{LowNodeUtilization, &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 10}, TargetThresholds: Thresholds{"cpu": 10},
			UseDeviationThresholds: true}},
		{HighNodeUtilization, &HighNodeUtilizationArgs{Thresholds: thresholds}},
		{TopologySpreadConstraint, &SpreadArgs{Constraints: []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway},
			TopologyBalanceNodeFit: new(r.IntN(4) > 0)}},
	}
	p := &Policy{}
	for i := range 1 + r.IntN(2) {
		profile := Profile{Name: fmt.Sprint(i), PluginConfig: []PluginConfig{{DefaultEvictor, &DefaultEvictorArgs{NodeFit: r.IntN(2) == 0}}}}
		has := map[string]bool{}
		for range 1 + r.IntN(4) {
			s := strategies[r.IntN(len(strategies))]
			if !has[s.name] {
				has[s.name] = true
				profile.Enable(s.name, s.args)
			}
		}
		p.Profiles = append(p.Profiles, profile)
	}
	return p
}

// clusters returns the number of random clusters that a test tries: JETTISON_CLUSTERS, or 300.
func clusters() int {
	if n, err := strconv.Atoi(os.Getenv("JETTISON_CLUSTERS")); err == nil {
		return n
	}
	return 300
}

// Planning again on the result of a plan evicts nothing, and plans satisfy the rules of
// checkPlan.
func TestPlansAreStable(t *testing.T) {
	evictions, unstable := 0, 0
	for seed := range clusters() {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		s, p := randomCluster(r), randomPolicy(r)
		if err := p.Complete(); err != nil {
			t.Fatal(err)
		}
		first, err := Plan(p, s, t0)
		if err != nil {
			t.Fatal(err)
		}
		evictions += len(first.Evictions)
		checkPlan(t, seed, s, first)
		again, err := Plan(p, first.ResultingSnapshot, t0)
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Evictions) > 0 {
			unstable++
			t.Errorf("seed %d: plan evicts %v, a second plan evicts %v (%s: %s), want none", seed, names(first), names(again), again.Evictions[0].Strategy, again.Evictions[0].Reason)
		}
	}
	t.Logf("%d clusters, %d evictions, %d unstable plans", clusters(), evictions, unstable)
	if evictions == 0 {
		t.Error("no plan evicts a pod, want some evictions")
	}
}

// A plan that is rewound equals one that is made from scratch.
func TestRewoundPlanEqualsFreshPlan(t *testing.T) {
	again := 0
	for seed := range clusters() {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		s, p := randomCluster(r), randomPolicy(r)
		p.Profiles[0].PluginConfig[0].Args.(*DefaultEvictorArgs).MinReplicas = uint(r.IntN(4))
		switch r.IntN(6) {
		case 0:
			p.MaxNoOfPodsToEvictPerNode = new(uint(1 + r.IntN(2)))
		case 1:
			p.MaxNoOfPodsToEvictPerNamespace = new(uint(3 + r.IntN(4)))
		case 2:
			p.MaxNoOfPodsToEvictTotal = new(uint(1 + r.IntN(8)))
		case 3:
			p.OwnerPause = &metav1.Duration{Duration: time.Minute}
		}
		if err := p.Complete(); err != nil {
			t.Fatal(err)
		}
		plan := func(fresh bool) string {
			w := &search{templates: model.NewTemplates(), noRewind: fresh}
			made, err := planUntilStable(p, s, t0, nil, maxDepth, w)
			if err != nil {
				t.Fatal(err)
			}
			if fresh && w.plans > 2 {
				again++
			}
			text, err := json.Marshal(made.result())
			if err != nil {
				t.Fatal(err)
			}
			return strings.NewReplacer(`"Evictions":null`, `"Evictions":[]`, `"Stopped":null`, `"Stopped":[]`).Replace(string(text))
		}
		if rewound, fresh := plan(false), plan(true); rewound != fresh {
			t.Errorf("seed %d: rewound plan\n%s\nwant\n%s", seed, rewound, fresh)
		}
	}
	if again == 0 {
		t.Error("no plan was made more than once, want some")
	}
}

// checkPlan verifies that each pod is evicted at most once, skipped pods are not evicted, budgets
// are respected, and no node becomes overcommitted.
func checkPlan(t *testing.T, seed int, s *Snapshot, r *Result) {
	t.Helper()
	seen, spent := map[string]bool{}, int32(0)
	for _, e := range r.Evictions {
		if seen[e.Name] || e.Reason == "" {
			t.Errorf("seed %d: pod %s is evicted twice or has no reason", seed, e.Name)
		}
		seen[e.Name] = true
		if e.Pod.Labels["owner"] == "o0" && e.Pod.Status.Phase == v1.PodRunning {
			spent++
		}
	}
	for _, skip := range r.Skipped {
		if seen[skip.Name] || strings.HasSuffix(skip.Name, replacementSuffix) {
			t.Errorf("seed %d: pod %s is evicted and skipped, or not in the snapshot", seed, skip.Name)
		}
	}
	if c := model.New(&s.Objects, nil); len(s.Budgets) > 0 {
		if left := model.NewBudgets(c, s.Budgets).Remaining()[0].Status.DisruptionsAllowed; spent > left {
			t.Errorf("seed %d: %d evictions, want at most %d allowed by the budget", seed, spent, left)
		}
	}
	before := model.New(&s.Objects, nil)
	for _, n := range model.New(&r.ResultingSnapshot.Objects, nil).Nodes {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods} {
			whole, _ := n.Allocatable(name)
			if is := n.Requested(name); is > whole && is > before.Find(n.Name).Requested(name) {
				t.Errorf("seed %d: node %s: %d %s requested, want at most %d", seed, n.Name, is, name, whole)
			}
		}
	}
}

// If the replacements of two pods would overload the only node that fits both, one pod is evicted and
// the other stays: pinning one is enough.
func TestFewestPodsArePinned(t *testing.T) {
	// The scheduler prefers n3 to n4, whose pod is evicted last. Then n4 is better for one of the two.
	// ownerPause keeps a pod, so no second plan moves the first one to n4.
	cpu, away := request(v1.ResourceCPU, 600), taint("t", "v", v1.TaintEffectNoSchedule)
	pool, own := nodeLabel("pool", "x"), taint("x", "v", v1.TaintEffectNoSchedule)
	s := &Snapshot{}
	s.Nodes = cluster(node("n1", away), node("n2", away), node("n3"), node("n4", pool), sized("n5", 4000, 3000, 10, pool, own))
	s.Pods = podList(pod("first", "n1", cpu, owned("ReplicaSet", "a"), priority(100)),
		pod("second", "n2", cpu, owned("ReplicaSet", "b"), priority(200)),
		pod("last", "n4", request(v1.ResourceCPU, 900), owned("ReplicaSet", "c"), priority(300), selects("pool", "x"),
			tolerates("x", "v", v1.TaintEffectNoSchedule)),
		pod("later", "n1", owned("ReplicaSet", "c"), priority(400)))
	policy := &Policy{Profiles: []Profile{{Name: "p"}}, OwnerPause: &metav1.Duration{Duration: time.Minute}}
	policy.Profiles[0].Enable(PodLifeTime, &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600))})
	policy.Profiles[0].Enable(LowNodeUtilization, &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20},
		TargetThresholds: Thresholds{"cpu": 50}})
	if err := policy.Complete(); err != nil {
		t.Fatal(err)
	}
	// An earlier move of the same owner does not make the plan keep the replacement instead.
	moved := []PastMove{{Namespace: "default", Owner: "ReplicaSeta", Node: "n9", Newest: t0.Add(-time.Hour), At: t0.Add(-time.Minute)}}
	for name, moves := range map[string][]PastMove{"no earlier move": nil, "an earlier move": moved} {
		s.Moves = moves
		r, err := Plan(policy, s, t0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(names(r), []string{"second", "last"}) || !strings.Contains(skipReason(r, "first"), "eviction loop") {
			t.Errorf("%s: evictions = %v, want second and last; skipped %v, want first because of an eviction loop", name, names(r), r.Skipped)
		}
	}
}

// The order of the objects does not change the plan.
func TestPlanIgnoresObjectOrder(t *testing.T) {
	for seed := range 50 {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		s, p := randomCluster(r), randomPolicy(r)
		if err := p.Complete(); err != nil {
			t.Fatal(err)
		}
		one, err := Plan(p, s, t0)
		if err != nil {
			t.Fatal(err)
		}
		r.Shuffle(len(s.Pods), func(i, j int) { s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i] })
		r.Shuffle(len(s.Nodes), func(i, j int) { s.Nodes[i], s.Nodes[j] = s.Nodes[j], s.Nodes[i] })
		two, err := Plan(p, s, t0)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(names(one), one.Skipped, one.Stopped) != fmt.Sprint(names(two), two.Skipped, two.Stopped) {
			t.Errorf("seed %d: shuffled objects: evictions = %v, then %v, want the same plan", seed, names(one), names(two))
		}
	}
}
