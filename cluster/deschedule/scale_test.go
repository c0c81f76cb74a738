package deschedule

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// largePlan has nodes with ten pods each, and owners with ten pods each. The first three nodes
// are overutilized, the others underutilized.
func largePlan(nodes int) plan {
	p := plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{
		Thresholds: Thresholds{v1.ResourceCPU: 20}, TargetThresholds: Thresholds{v1.ResourceCPU: 50}}}
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		p.nodes = append(p.nodes, sized(name, 4000, 4000, 110))
		cpu := int64(40)
		if i < 3 {
			cpu = 300
		}
		p.pods = append(p.pods, podsNamed(10, fmt.Sprintf("o%03d-", i), name, owned("ReplicaSet", fmt.Sprint("o", i)), request(v1.ResourceCPU, cpu),
			aged(time.Hour))...)
	}
	return p
}

// Eviction.Against is read by people: in a large cluster it lists some nodes and the number of
// the others.
func TestAgainstListsLimitedNodes(t *testing.T) {
	p := largePlan(60)
	r := p.run(t)
	if len(r.Evictions) == 0 {
		t.Fatal("plan has no evictions, want some")
	}
	for _, e := range r.Evictions {
		if len(e.Against) != maxAgainst+1 || e.Against[maxAgainst] != "and 47 more" {
			t.Errorf("%s: Against has %d lines, the last is %q, want %d and \"and 47 more\"", e.Name, len(e.Against), e.Against[len(e.Against)-1], maxAgainst+1)
		}
	}
}

// The cost of a pod without violations is small and independent of the size of the cluster: its
// model and one check by each strategy.
func TestPlanAllocatesLittlePerPod(t *testing.T) {
	p := largePlan(300)
	policy := p.policy(t)
	profile := &policy.Profiles[0]
	profile.Enable(TooManyRestarts, &TooManyRestartsArgs{PodRestartThreshold: 100})
	profile.Enable(NodeTaints, &NodeTaintsArgs{})
	profile.Enable(InterPodAntiAffinity, &AntiAffinityArgs{})
	profile.Enable(RemoveDuplicates, &RemoveDuplicatesArgs{ExcludeOwnerKinds: []string{"Job"}})
	if err := policy.Complete(); err != nil {
		t.Fatal(err)
	}
	s := &Snapshot{Objects: model.Objects{Nodes: p.nodes, Pods: p.pods}}
	allocations := testing.AllocsPerRun(3, func() {
		if _, err := newPlanner(policy, s, t0, map[string]string{}, model.NewTemplates()); err != nil {
			t.Fatal(err)
		}
	})
	if each := allocations / float64(len(p.pods)); each > 4 {
		t.Errorf("model: %.1f allocations for each pod, want at most 4", each)
	}
	made, err := newPlanner(policy, s, t0, map[string]string{}, model.NewTemplates())
	if err != nil {
		t.Fatal(err)
	}
	made.runPasses() // later passes evict nothing
	allocations = testing.AllocsPerRun(3, made.runPasses)
	if each := allocations / float64(len(p.pods)); each > 1 {
		t.Errorf("passes: %.1f allocations for each pod, want at most 1", each)
	}
}

// BenchmarkManyTolerations plans for pods with 100 tolerations on nodes with 500 taints.
func BenchmarkManyTolerations(b *testing.B) {
	p := manyTolerations(100, 100)
	policy := p.policy(b)
	s := &Snapshot{Objects: model.Objects{Nodes: p.nodes, Pods: p.pods}}
	for b.Loop() {
		if _, err := Plan(policy, s, t0); err != nil {
			b.Fatal(err)
		}
	}
}
