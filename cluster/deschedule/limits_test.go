package deschedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// The total limit ends a strategy at the first pod that it keeps.
func TestTotalLimitEndsStrategy(t *testing.T) {
	apart := spreads(v1.LabelHostname, 1, v1.DoNotSchedule)
	required, preferred := affine(matchIn("pool", "new"), nil), affine(nil, matchIn("pool", "new"))
	two := func() []*v1.Node { return cluster(machine("n1", 8000), machine("n2", 8000, nodeLabel("pool", "new"))) }
	for name, p := range map[string]plan{
		PodLifeTime: {args: lifeTime(), pods: podsNamed(4, "p", "n1")},
		RemoveDuplicates: {args: &RemoveDuplicatesArgs{}, pods: all(podsNamed(2, "a", "n1", owned("ReplicaSet", "a")),
			podsNamed(2, "b", "n1", owned("ReplicaSet", "b")), podsNamed(2, "c", "n1", owned("ReplicaSet", "c")))},
		NodeAffinity: {args: &NodeAffinityArgs{NodeAffinityType: []string{RequiredAffinity, PreferredAffinity}},
			pods: all(podsNamed(2, "a", "n1", required), podsNamed(2, "b", "n1", preferred))},
		TopologySpreadConstraint: {args: &SpreadArgs{}, pods: all(podsNamed(5, "a", "n1", apart), podsNamed(5, "b", "n1", apart, inSpace("other")))},
	} {
		p.strategy, p.nodes = name, two()
		if r := p.run(t); len(r.Evictions) < 2 {
			t.Errorf("%s: evictions without a limit = %v, want some of each kind; skipped %v", name, names(r), r.Skipped)
		}
		p.limits = &limits{1, -1, -1}
		if r := p.run(t); len(r.Evictions) != 1 || skipped(r, limitTotal) != 1 || !slices.Equal(stopReasons(r), []string{limitTotal}) {
			t.Errorf("%s: evictions = %v, skipped %v, stopped %v, want one eviction and one pod kept by the limit", name, names(r), r.Skipped, r.Stopped)
		}
	}
	p := plan{strategy: PodLifeTime, args: lifeTime(), nodes: cluster(node("n1", taint("t", "v", v1.TaintEffectNoSchedule)), node("n2")),
		pods: podsNamed(3, "p", "n1"), limits: &limits{1, -1, -1}, edit: func(p *Policy, _ *Snapshot) { p.Profiles[0].Enable(NodeTaints, &NodeTaintsArgs{}) }}
	if r := p.run(t); len(r.Evictions) != 1 || !slices.Equal(stopReasons(r), []string{limitTotal, limitTotal}) {
		t.Errorf("two strategies: evictions = %v, stopped %v, want one eviction, and both to stop at the limit", names(r), r.Stopped)
	}
}

// Evictions in progress that this process requested count against the limits.
func TestPendingEvictionsCount(t *testing.T) {
	for name, c := range map[string]struct {
		limits limits
		on     string // node of the pending pod
		mine   bool
		want   int
	}{
		"total": {limits{1, -1, -1}, "n1", true, 0}, "node": {limits{-1, 1, -1}, "n1", true, 0}, "namespace": {limits{-1, -1, 1}, "n1", true, 0},
		"another node": {limits{-1, 1, -1}, "n2", true, 1}, "requested by others": {limits{1, -1, -1}, "n1", false, 1},
		"on no node": {limits{1, -1, -1}, "", true, 1},
	} {
		p := plan{strategy: PodLifeTime, args: lifeTime(), nodes: cluster(node("n1"), node("n2")), limits: &c.limits,
			pods: podList(pod("pending", c.on), pod("p", "n1")), edit: func(_ *Policy, s *Snapshot) { s.Pending = map[types.UID]bool{"pending": c.mine} }}
		if r := p.run(t); len(r.Evictions) != c.want {
			t.Errorf("%s: evictions = %v, want %d; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}

// An owner's next pod may be evicted from the end of ownerPause on.
func TestOwnerPauseEnds(t *testing.T) {
	for name, c := range map[string]struct {
		pause, since time.Duration
		want         int
	}{"at the end": {time.Minute, time.Minute, 1}, "before the end": {time.Minute, time.Minute - 1, 0}, "no pause": {0, 0, 2}} {
		p := plan{strategy: PodLifeTime, args: lifeTime(), nodes: two(), pods: podsNamed(2, "p", "n1"), edit: func(p *Policy, s *Snapshot) {
			p.OwnerPause = &metav1.Duration{Duration: c.pause}
			s.Evicted = []PastEviction{{"default", "ReplicaSetreplicaset-1", t0.Add(-c.since)}}
		}}
		if r := p.run(t); len(r.Evictions) != c.want {
			t.Errorf("%s: evictions = %v, want %d; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}
