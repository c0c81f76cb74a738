package deschedule

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// wide is so many nodes with ten pods each, of owners with ten pods. The first three nodes are over what the last ones are under.
func wide(nodes int) plan {
	p := plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{
		Thresholds: Thresholds{v1.ResourceCPU: 20}, TargetThresholds: Thresholds{v1.ResourceCPU: 50}}}
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		p.nodes = append(p.nodes, sized(name, 4000, 4000, 110))
		cpu := int64(40)
		if i < 3 {
			cpu = 300
		}
		p.pods = append(p.pods, many(10, fmt.Sprintf("o%03d-", i), name, owned("ReplicaSet", fmt.Sprint("o", i)), request(v1.ResourceCPU, cpu),
			aged(time.Hour))...)
	}
	return p
}

// What an eviction was weighed against is for people: of a cluster of thousands it names some nodes, and how many more there are.
func TestAnEvictionNamesSomeOfManyNodes(t *testing.T) {
	p := wide(60)
	r := p.run(t)
	if len(r.Evictions) == 0 {
		t.Fatal("nothing goes")
	}
	for _, e := range r.Evictions {
		if len(e.Against) != mostAgainst+1 || e.Against[mostAgainst] != "and 47 more" {
			t.Errorf("%s: %d lines, the last one %q", e.Name, len(e.Against), e.Against[len(e.Against)-1])
		}
	}
}

// The work for a pod that nothing is wrong with does not grow with the cluster, and is little: a model of it, and a look at it by each
// strategy.
func TestAPlanTakesLittleOfEachPod(t *testing.T) {
	p := wide(300)
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
		t.Errorf("a model takes %.1f allocations a pod", each)
	}
	made, err := newPlanner(policy, s, t0, map[string]string{}, model.NewTemplates())
	if err != nil {
		t.Fatal(err)
	}
	made.passes() // what goes has gone
	allocations = testing.AllocsPerRun(3, made.passes)
	if each := allocations / float64(len(p.pods)); each > 1 {
		t.Errorf("passes take %.1f allocations a pod", each)
	}
}
