package deschedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

const cycleTime = 5 * time.Minute

// scheduler places replacement pods as kube-scheduler does: on a random one of the top-scored
// nodes, while the evicted pod is still being deleted, or once it is gone.
type scheduler struct {
	*rand.Rand
	profiles schedulers
	gone     bool
	placed   int
}

// replace evicts a pod of a snapshot and places its replacement. It returns the name of the node.
func (c *scheduler) replace(s *Snapshot, uid types.UID, now time.Time) string {
	i := slices.IndexFunc(s.Pods, func(p *v1.Pod) bool { return p.UID == uid })
	victim := s.Pods[i].DeepCopy()
	victim.DeletionTimestamp = &metav1.Time{Time: now}
	s.Pods = slices.Clone(s.Pods)
	s.Pods[i] = victim
	if c.gone {
		s.Pods = slices.Delete(s.Pods, i, i+1)
	}
	if len(victim.OwnerReferences) == 0 || victim.Status.Phase != v1.PodRunning {
		return ""
	}
	c.placed++
	made := victim.DeepCopy()
	made.Name, made.UID = fmt.Sprintf("r%d", c.placed), types.UID(fmt.Sprintf("r%d", c.placed))
	made.CreationTimestamp, made.DeletionTimestamp, made.Spec.NodeName = metav1.NewTime(now), nil, ""
	made.Status = v1.PodStatus{Phase: v1.PodPending}
	cluster := model.New(&s.Objects, nil)
	if top := cluster.FitCheck(cluster.NewPod(made)).TopNodes(c.profiles.of(made)); len(top) > 0 {
		made.Spec.NodeName, made.Status.Phase = top[c.IntN(len(top))].Name, v1.PodRunning
	}
	s.Pods = append(s.Pods, made)
	return made.Spec.NodeName
}

// run makes ten plans in a row and carries them out. It returns the evictions: pod, node, and the
// node of the replacement.
func (c *scheduler) run(t *testing.T, policy *Policy, s *Snapshot) (out []string) {
	t.Helper()
	c.profiles = policy.schedulers()
	for i := range 10 {
		now := t0.Add(time.Duration(i) * cycleTime)
		plan, err := Plan(policy, s, now)
		if err != nil {
			t.Fatal(err)
		}
		next := *s
		for _, e := range plan.Evictions {
			to := c.replace(&next, e.UID, now.Add(time.Second))
			out = append(out, fmt.Sprintf("cycle %d: %s %s>%s", i, e.Name, e.Node, to))
			next.Moves = append(slices.Clone(next.Moves), e.Moves...)
		}
		next.Pods = slices.DeleteFunc(slices.Clone(next.Pods), func(p *v1.Pod) bool { return p.DeletionTimestamp != nil })
		s = &next
	}
	return out
}

// eachScheduler runs ten cycles with several random choices of the scheduler, before and after the
// evicted pods are gone.
func eachScheduler(t *testing.T, p *plan, check func(evictions []string)) {
	t.Helper()
	for seed := range 6 {
		s := &Snapshot{}
		s.Nodes, s.Pods = p.nodes, p.pods
		c := &scheduler{Rand: rand.New(rand.NewPCG(uint64(seed), 1)), gone: seed%2 == 1}
		policy := p.policy(t)
		if p.edit != nil {
			p.edit(policy, s)
		}
		check(c.run(t, policy, s))
	}
}

func machine(name string, cpu int64, edits ...func(*v1.Node)) *v1.Node {
	return sized(name, cpu, 16<<30, 110, edits...)
}

// avoids gives a pod preferred anti-affinity to pods with a label on the same node.
func avoids(key, value string) edit {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: v1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}, TopologyKey: v1.LabelHostname}}},
		}}
	}
}

// Four strategies of descheduler 0.36.0 evict a pod in every cycle that the scheduler puts back
// (descheduler#1920, #827, #828, #1707, #1410). The pods are those of reported clusters.
func TestSchedulerDoesNotPutPodsBack(t *testing.T) {
	ask := func(cpu int64, edits ...edit) edit {
		return func(p *v1.Pod) {
			for _, e := range append([]edit{request(v1.ResourceCPU, cpu), request(v1.ResourceMemory, 128<<20)}, edits...) {
				e(p)
			}
		}
	}
	gate := ask(500, owned("ReplicaSet", "gate"), label("app", "gate"), avoids("app", "gate"))
	web := ask(500, owned("ReplicaSet", "web"), label("app", "web"))
	daemon := ask(2000, daemon)
	for name, p := range map[string]*plan{
		"HighNodeUtilization on a Deployment of three": {
			strategy: HighNodeUtilization, args: &HighNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30}},
			nodes: cluster(machine("n1", 4000), machine("n2", 4000), machine("n3", 4000)),
			pods: podList(pod("web-1", "n1", web), pod("web-2", "n2", web), pod("web-3", "n3", web),
				pod("fill-1", "n1", daemon), pod("fill-2", "n2", daemon)),
		},
		"LowNodeUtilization against preferred anti-affinity": {
			strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20}, TargetThresholds: Thresholds{"cpu": 60}},
			nodes: cluster(machine("n1", 4000), machine("n2", 4000), machine("n3", 4000)),
			pods: podList(pod("gate-1", "n1", gate), pod("gate-2", "n2", gate), pod("gate-3", "n3", gate),
				pod("db-1", "n1", ask(2200, owned("StatefulSet", "db"), bare))),
		},
		"RemoveDuplicates against preferred node affinity": {
			strategy: RemoveDuplicates, args: &RemoveDuplicatesArgs{},
			nodes: cluster(machine("big", 32000, nodeLabel("pool", "new")), machine("old1", 4000), machine("old2", 4000)),
			pods: podList(pod("api-1", "big", web, affine(nil, matchIn("pool", "new"))), pod("api-2", "big", web, affine(nil, matchIn("pool", "new"))),
				pod("api-3", "old1", web, affine(nil, matchIn("pool", "new"))), pod("fill-1", "old1", daemon), pod("fill-2", "old2", daemon)),
		},
		"preferred node affinity against PreferNoSchedule": {
			strategy: NodeAffinity, args: &NodeAffinityArgs{NodeAffinityType: []string{PreferredAffinity}},
			nodes: cluster(machine("spot1", 4000, nodeLabel("cap", "spot"), taint("spot", "", v1.TaintEffectPreferNoSchedule)),
				machine("od1", 4000), machine("od2", 4000)),
			pods: podList(pod("x", "od1", web, affine(nil, matchIn("cap", "spot")))),
		},
		"PreferNoSchedule against preferred node affinity": {
			strategy: NodeTaints, args: &NodeTaintsArgs{IncludePreferNoSchedule: true},
			nodes: cluster(machine("spot1", 4000, nodeLabel("cap", "spot"), taint("spot", "", v1.TaintEffectPreferNoSchedule)),
				machine("spot2", 4000, nodeLabel("cap", "spot"), taint("spot", "", v1.TaintEffectPreferNoSchedule)), machine("od1", 1000)),
			pods: podList(pod("x", "spot1", web, prefersStrongly("cap", "spot")), pod("fill", "od1", ask(400, bare))),
		},
	} {
		p.evictor = &DefaultEvictorArgs{NodeFit: true}
		eachScheduler(t, p, func(evictions []string) {
			back := slices.ContainsFunc(evictions, func(e string) bool {
				from, to, _ := strings.Cut(e[strings.LastIndex(e, " ")+1:], ">")
				return from == to
			})
			if len(evictions) > 1 || back {
				t.Errorf("%s: evictions in ten cycles = %v, want none, or one that moves the pod", name, evictions)
			}
		})
	}
}

// prefersStrongly gives a pod the strongest preference for a node label.
func prefersStrongly(key, value string) edit {
	return func(p *v1.Pod) {
		affine(nil, matchIn(key, value))(p)
		p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight = 100
	}
}

// A scheduler with a profile for packing in schedulerProfiles empties nodes: each pod moves once.
func TestPackingProfileEmptiesNodes(t *testing.T) {
	web := []edit{request(v1.ResourceCPU, 500), request(v1.ResourceMemory, 500<<20), owned("Job", "batch")}
	fill := []edit{request(v1.ResourceCPU, 2000), request(v1.ResourceMemory, 8<<30), daemon}
	p := &plan{
		strategy: HighNodeUtilization, args: &HighNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30, "memory": 30}}, evictor: &DefaultEvictorArgs{NodeFit: true},
		nodes: cluster(machine("n1", 4000), machine("n2", 4000), machine("n3", 4000)),
		pods:  podList(pod("a", "n3", web...), pod("b", "n3", web...), pod("f1", "n1", fill...), pod("f2", "n2", fill...)),
		edit: func(p *Policy, _ *Snapshot) {
			p.SchedulerProfiles = []SchedulerProfile{{ScoringStrategy: mostAllocated}}
		},
	}
	eachScheduler(t, p, func(evictions []string) {
		if len(evictions) != 2 {
			t.Errorf("evictions in ten cycles = %v, want one of a and one of b", evictions)
		}
	})
	p.edit = nil
	if r := p.run(t); len(r.Evictions) != 0 || !strings.Contains(skipReason(r, "a"), "schedulerProfiles has no MostAllocated for it") {
		t.Errorf("default profile: evictions = %v, want none; skipped %v, want a because of the profile", names(r), r.Skipped)
	}
}

// A pod whose scheduler the policy does not describe is planned with the default scores, with a
// warning.
func TestUnknownSchedulerIsNamed(t *testing.T) {
	p := lifeTimePlan(func(p *plan) {
		p.pods = podList(pod("p", "n1", func(p *v1.Pod) { p.Spec.SchedulerName = "volcano" }), pod("q", "n1"))
	})
	want := "scheduler volcano of 1 pods is not in schedulerProfiles: the plan assumes default scores"
	if r := p.run(t); !slices.Equal(r.Warnings, []string{want}) {
		t.Errorf("warnings = %q, want %q", r.Warnings, want)
	}
	p.edit = func(p *Policy, _ *Snapshot) { p.SchedulerProfiles = []SchedulerProfile{{SchedulerName: "volcano"}} }
	if r := p.run(t); r.Warnings != nil {
		t.Errorf("warnings with a profile = %q, want none", r.Warnings)
	}
}

func TestSchedulerProfilesAreChecked(t *testing.T) {
	p := &Policy{SchedulerProfiles: []SchedulerProfile{{ScoringStrategy: "Most"}, {SchedulerName: v1.DefaultSchedulerName,
		Weights: map[string]int64{"ImageLocality": 1, "NodeAffinity": -1}}}}
	err := p.Complete()
	for _, want := range []string{`scoringStrategy "Most": want LeastAllocated or MostAllocated`, "default-scheduler is described twice",
		`plugin "ImageLocality" is unknown`, "NodeAffinity -1: want 0 to"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Complete() = %v, want an error with %q", err, want)
		}
	}
}

// moveOfGate returns a plan that moves pods of ReplicaSet gate from n1, the edits of these pods, and
// the plan's result.
func moveOfGate(t *testing.T) (p plan, gate []edit, first *Result) {
	t.Helper()
	gate = []edit{request(v1.ResourceCPU, 500), owned("ReplicaSet", "gate")}
	p = plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20}, TargetThresholds: Thresholds{"cpu": 60}},
		nodes: cluster(machine("n1", 4000), machine("n2", 4000)),
		pods:  all(podsNamed(3, "gate", "n1", gate...), podList(pod("db", "n1", request(v1.ResourceCPU, 1800), bare)))}
	first = p.run(t)
	if len(first.Evictions) == 0 || len(first.Evictions[0].Moves) != 1 {
		t.Fatalf("evictions = %+v, want some with a move; skipped %v", first.Evictions, first.Skipped)
	}
	return p, gate, first
}

// What the model cannot know, such as images or another scheduler, may send a replacement back: the
// pods of that owner stay from then on.
func TestMoveWithoutEffectIsRemembered(t *testing.T) {
	p, gate, first := moveOfGate(t)
	moves := first.Evictions[0].Moves
	for name, c := range map[string]struct {
		back string // node of the replacement
		want int
	}{"back on its node": {"n1", 0}, "moved": {"n2", len(first.Evictions)}} {
		young := pod("young", c.back, append(gate, aged(-time.Second))...)
		next := p
		next.pods = append(slices.Clone(p.pods[1:]), young, pod("another", "n1", gate...))
		next.edit = func(_ *Policy, s *Snapshot) { s.Moves = moves }
		r := next.run(t)
		if len(r.Evictions) > c.want || c.want > 0 && len(r.Evictions) == 0 {
			t.Errorf("%s: evictions = %v, want at most %d; skipped %v", name, names(r), c.want, r.Skipped)
		}
		if c.want == 0 && !strings.Contains(skipReason(r, "gate1"), "an earlier move of a pod of ReplicaSet gate had no effect") {
			t.Errorf("%s: skipped %v, want gate1 because of the move without effect", name, r.Skipped)
		}
	}
}

// A pod that was added long after a move is no replacement: it does not show that the move had no
// effect.
func TestLaterPodIsNoReplacement(t *testing.T) {
	p, gate, first := moveOfGate(t)
	for on, node := range map[string]string{"the node of the move": "n1", "another node": "n3"} {
		move := first.Evictions[0].Moves[0]
		move.Node, move.At = node, move.At.Add(-5*time.Hour)
		p.edit = func(_ *Policy, s *Snapshot) { s.Moves = []PastMove{move} }
		p.pods[0] = pod("young", "n1", append(gate, aged(0))...)
		if r := p.run(t); len(r.Evictions) == 0 {
			t.Errorf("pod added 5h after a move, on %s: no evictions, want some; skipped %v", on, r.Skipped)
		}
	}
}

// Plans settle when the scheduler, and not the plan, chooses the nodes of replacements: nothing is
// evicted in the last of ten cycles.
func TestPlansSettleWithScheduler(t *testing.T) {
	evictions, back := 0, 0
	for seed := range 200 {
		r := rand.New(rand.NewPCG(uint64(seed), 39))
		s, all := randomCluster(r), randomPolicy(r)
		policy := &Policy{}
		for _, profile := range all.Profiles {
			made := Profile{Name: profile.Name, PluginConfig: profile.PluginConfig}
			for _, name := range slices.Concat(profile.Plugins.Deschedule.Enabled, profile.Plugins.Balance.Enabled) {
				switch name {
				case NodeTaints, NodeAffinity:
					made.Plugins.Deschedule.Enabled = append(made.Plugins.Deschedule.Enabled, name)
				case RemoveDuplicates, LowNodeUtilization, HighNodeUtilization, TopologySpreadConstraint:
					made.Plugins.Balance.Enabled = append(made.Plugins.Balance.Enabled, name)
				}
			}
			policy.Profiles = append(policy.Profiles, made)
		}
		if err := policy.Complete(); err != nil {
			t.Fatal(err)
		}
		c := &scheduler{Rand: r, gone: seed%2 == 1}
		out := c.run(t, policy, s)
		for _, e := range out {
			evictions++
			if from, to, _ := strings.Cut(e[strings.LastIndex(e, " ")+1:], ">"); from == to {
				back++
			}
			if strings.HasPrefix(e, "cycle 9") {
				t.Errorf("seed %d: evictions in ten cycles = %v, want none in the last", seed, out)
				break
			}
		}
	}
	t.Logf("%d evictions, %d replacements back on their node", evictions, back)
	if evictions == 0 || back*20 > evictions {
		t.Errorf("%d evictions, %d replacements back on their node, want some and at most 5 %%", evictions, back)
	}
}
