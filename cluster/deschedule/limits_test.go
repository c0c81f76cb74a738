package deschedule

import (
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits and pauses apply to the whole plan, even if it consists of several plans.
func TestLimitsApplyToWholePlan(t *testing.T) {
	for seed := range clusters() {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		s, p := randomCluster(r), randomPolicy(r)
		total, each := uint(r.IntN(6)), uint(1+r.IntN(3))
		pause := r.IntN(3) == 0
		p.MaxNoOfPodsToEvictTotal, p.MaxNoOfPodsToEvictPerNode = &total, &each
		if pause {
			p.MaxNoOfPodsToEvictTotal, p.MaxNoOfPodsToEvictPerNode = nil, nil
			p.OwnerPause = &metav1.Duration{Duration: time.Minute}
		}
		if err := p.Complete(); err != nil {
			t.Fatal(err)
		}
		plan, err := Plan(p, s, t0)
		if err != nil {
			t.Fatal(err)
		}
		onNode, ofOwner := map[string]uint{}, map[string]uint{}
		for _, e := range plan.Evictions {
			onNode[e.Node]++
			if len(e.Pod.OwnerReferences) > 0 {
				ofOwner[e.Pod.OwnerReferences[0].Name]++
			}
		}
		if !pause && uint(len(plan.Evictions)) > total {
			t.Errorf("seed %d: %d evictions in total, want at most %d", seed, len(plan.Evictions), total)
		}
		for node, count := range onNode {
			if !pause && count > each {
				t.Errorf("seed %d: %d evictions from node %s, want at most %d", seed, count, node, each)
			}
		}
		for owner, count := range ofOwner {
			if pause && count > 1 {
				t.Errorf("seed %d: %d pods of owner %s evicted within ownerPause, want 1", seed, count, owner)
			}
		}
	}
}
