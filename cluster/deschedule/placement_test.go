package deschedule

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// A pod that violates a hard rule is evicted only if another node takes it.
func TestHardViolationNeedsAnotherNode(t *testing.T) {
	for name, p := range map[string]plan{
		"anti-affinity": {strategy: InterPodAntiAffinity, args: &AntiAffinityArgs{}, nodes: cluster(node("n1"), node("n2")),
			pods: podsNamed(2, "p", "n1", label("app", "a"), repels("app", "a", v1.LabelHostname))},
		"node affinity": {strategy: NodeAffinity, args: &NodeAffinityArgs{NodeAffinityType: []string{RequiredAffinity}},
			nodes: cluster(node("n1"), node("n2", nodeLabel("pool", "new"))), pods: podList(pod("p", "n1", affine(matchIn("pool", "new"), nil)))},
		"taint": {strategy: NodeTaints, args: &NodeTaintsArgs{}, nodes: cluster(node("n1", taint("t", "v", v1.TaintEffectNoSchedule)), node("n2")),
			pods: podList(pod("p", "n1"))},
	} {
		if r := p.run(t); len(r.Evictions) != 1 {
			t.Errorf("%s: evictions = %v, want one; skipped %v", name, names(r), r.Skipped)
		}
		cordoned(p.nodes[1])
		if r := p.run(t); len(r.Evictions) != 0 || skipped(r, "fits on no other node: node is cordoned") == 0 {
			t.Errorf("%s, the other node is cordoned: evictions = %v, skipped %v, want a pod that fits on no other node", name, names(r), r.Skipped)
		}
	}
}

// A pod on a node that its affinity matches, or prefers as much as any other, stays without a reason.
func TestNodeAffinityIsMet(t *testing.T) {
	prefers := func(keys ...string) edit {
		return func(p *v1.Pod) {
			a := &v1.NodeAffinity{}
			for _, key := range keys {
				a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
					v1.PreferredSchedulingTerm{Weight: 1, Preference: *matchIn(key, "x")})
			}
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: a}
		}
	}
	for name, c := range map[string]struct {
		edit  edit
		third []func(*v1.Node) // of a third node; nil: no third node
		want  string           // part of the reason; empty: none
		moves bool
	}{
		"required, matches":                   {affine(matchIn("a", "x"), nil), nil, "", false},
		"required, does not match":            {affine(matchIn("b", "x"), nil), []func(*v1.Node){nodeLabel("b", "x")}, "", true},
		"selector alone does not match":       {func(p *v1.Pod) { prefers("a")(p); selects("b", "x")(p) }, []func(*v1.Node){nodeLabel("b", "x")}, "", false},
		"preferred, as much as any other":     {prefers("a"), nil, "", false},
		"preferred, less than another":        {prefers("a", "b"), []func(*v1.Node){nodeLabel("a", "x"), nodeLabel("b", "x")}, "", true},
		"preferred, less than a cordoned one": {prefers("a", "b"), []func(*v1.Node){nodeLabel("a", "x"), nodeLabel("b", "x"), cordoned}, "no feasible node would be better", false},
	} {
		p := plan{strategy: NodeAffinity, args: &NodeAffinityArgs{NodeAffinityType: []string{RequiredAffinity, PreferredAffinity}},
			nodes: cluster(node("n1", nodeLabel("a", "x")), node("n2", nodeLabel("a", "x"))), pods: podList(pod("p", "n1", c.edit))}
		if c.third != nil {
			p.nodes = append(p.nodes, node("n3", c.third...))
		}
		r := p.run(t)
		if why := skipReason(r, "p"); (len(r.Evictions) == 1) != c.moves || (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: evictions = %v, skipped %v, want an eviction: %t, reason %q", name, names(r), r.Skipped, c.moves, c.want)
		}
	}
}

// NoExecute taints are left to taint eviction, PreferNoSchedule taints count if the arguments include
// them, and then only if the replacement gets a node without one.
func TestTaintsThatCount(t *testing.T) {
	soft, hard := taint("t", "v", v1.TaintEffectPreferNoSchedule), taint("t", "v", v1.TaintEffectNoSchedule)
	for name, c := range map[string]struct {
		include        bool
		present, other func(*v1.Node)
		want           string // the reason to stay; empty: the pod is evicted
		stays          bool
	}{
		"NoSchedule":                     {false, hard, func(*v1.Node) {}, "", false},
		"NoSchedule, soft there":         {true, hard, soft, "", false},
		"NoExecute":                      {true, taint("t", "v", v1.TaintEffectNoExecute), func(*v1.Node) {}, "", true},
		"PreferNoSchedule, not included": {false, soft, func(*v1.Node) {}, "", true},
		"PreferNoSchedule":               {true, soft, func(*v1.Node) {}, "", false},
		"PreferNoSchedule on both":       {true, soft, soft, "no feasible node would be better: other nodes have such a taint, too", true},
	} {
		p := plan{strategy: NodeTaints, args: &NodeTaintsArgs{IncludePreferNoSchedule: c.include}, nodes: cluster(node("n1", c.present), node("n2", c.other)),
			pods: podList(pod("p", "n1"))}
		if r := p.run(t); (len(r.Evictions) == 0) != c.stays || skipReason(r, "p") != c.want {
			t.Errorf("%s: evictions = %v, skipped %v, want no eviction: %t, reason %q", name, names(r), r.Skipped, c.stays, c.want)
		}
	}
}

// The profile of a pod's own scheduler decides where its replacement runs. A pod stays if that is not
// a better node, or if its present node scores as high.
func TestProfileOfOwnSchedulerDecides(t *testing.T) {
	for name, c := range map[string]struct {
		scheduler string
		third     *v1.Node
		want      string // the reason to stay; empty: the pod moves to n2
	}{
		"default scheduler":           {"", nil, ""},
		"scheduler without profile":   {"unknown", nil, ""},
		"present node scores as high": {"own", nil, "scheduler would likely place the replacement on n1 again"},
		"third node scores higher": {"own", machine("n3", 16000),
			"scheduler would likely place the replacement on n3, no better: preferred node affinity scores none of them higher"},
	} {
		p := plan{strategy: NodeAffinity, args: &NodeAffinityArgs{NodeAffinityType: []string{PreferredAffinity}},
			nodes: cluster(machine("n1", 4000), machine("n2", 4000, nodeLabel("pool", "new"))),
			pods:  podList(pod("p", "n1", affine(nil, matchIn("pool", "new")), func(p *v1.Pod) { p.Spec.SchedulerName = c.scheduler })),
			edit: func(p *Policy, _ *Snapshot) {
				p.SchedulerProfiles = []SchedulerProfile{{SchedulerName: "own", Weights: map[string]int64{"NodeAffinity": 0}}}
			}}
		if c.third != nil {
			p.nodes = append(p.nodes, c.third)
		}
		if r := p.run(t); (len(r.Evictions) == 1) != (c.want == "") || skipReason(r, "p") != c.want {
			t.Errorf("%s: evictions = %v, skipped %v, want reason %q", name, names(r), r.Skipped, c.want)
		}
	}
}

// A replacement that fits nowhere while the pod is being deleted is placed when the pod is gone.
func TestReplacementWaitsForTheEndOfThePod(t *testing.T) {
	zone := nodeLabel(v1.LabelTopologyZone, "z")
	p := plan{strategy: LowNodeUtilization, args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20}, TargetThresholds: Thresholds{"cpu": 50}},
		nodes: cluster(machine("n1", 4000, zone), machine("n2", 4000, zone)),
		pods: podList(pod("a", "n1", request("cpu", 1000), label("app", "a"), repels("app", "a", v1.LabelTopologyZone)),
			pod("fill", "n1", request("cpu", 2000), daemon))}
	if r := p.run(t); len(r.Evictions) != 1 || r.Evictions[0].To != "n2" {
		t.Errorf("evictions = %+v, want one to n2; skipped %v, stopped %v", r.Evictions, r.Skipped, r.Stopped)
	}
}

// Of equally good nodes a proposal takes the one with the lowest rank, then the first.
func TestBestNodeOfProposal(t *testing.T) {
	c := model.New(&model.Objects{Nodes: cluster(node("a"), node("b"), node("c"), node("d"))}, nil)
	w := &proposal{improves: func(n *model.Node) bool { return n.Name != "a" }}
	if got := w.best(c.Nodes); got.Name != "b" {
		t.Errorf("without ranks: %s, want b", got.Name)
	}
	w.rank = func(n *model.Node) int { return map[string]int{"a": 0, "b": 2, "c": 1, "d": 1}[n.Name] }
	if got := w.best(c.Nodes); got.Name != "c" {
		t.Errorf("with ranks: %s, want c", got.Name)
	}
}
