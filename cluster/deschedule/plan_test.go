package deschedule

import (
	"fmt"
	"testing"

	"jettison/cluster/model"
)

// The number of plans is bounded.
func TestPlansAreBounded(t *testing.T) {
	c := plan{strategy: PodLifeTime, args: lifeTime(), nodes: two(), pods: podsNamed(2, "p", "n1")}
	s, w := &Snapshot{}, &search{plans: maxPlans - 1, templates: model.NewTemplates()}
	s.Nodes, s.Pods = c.nodes, c.pods
	if p, err := planUntilStable(c.policy(t), s, t0, nil, maxDepth, w); err != nil || w.plans != maxPlans || len(p.evictions) != 2 {
		t.Errorf("%d plans, error %v, want %d and the evictions of the last one", w.plans, err, maxPlans)
	}
}

// A plan is rewound to the mark before the first proposal for a pinned pod, with all counts. With
// measured usage, or without a pinned pod, it starts from scratch.
func TestRewind(t *testing.T) {
	c := plan{strategy: PodLifeTime, args: lifeTime()}
	for _, measured := range []bool{false, true} {
		s := &Snapshot{}
		s.Nodes, s.Pods = two(), podList(pod("p", "n1"))
		if measured {
			setUsage(s, 100)
		}
		p, err := newPlanner(c.policy(t), s, t0, map[string]string{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, victim := p.runs[0], p.cluster.Pods()[0]
		p.addMark(0, 0)
		if p.rewind() {
			t.Error("rewound without a pinned pod, want a start from scratch")
		}
		p.noteProposal(victim.Key())
		r.countEviction(victim)
		p.moves.ineffective[ownerOf(victim, 0)] = ineffectiveMove{t0, 0}
		p.pin(victim.Key(), PodLifeTime)
		if got := p.rewind(); got == measured {
			t.Errorf("measured usage: %t, rewound %t, want the opposite", measured, got)
		} else if got && (p.total != 0 || p.perNode["n1"] != 0 || p.perNamespace["default"] != 0 || len(p.perOwner) != 0 || len(p.moves.ineffective) != 0) {
			t.Errorf("counts after rewind: total %d, nodes %v, namespaces %v, owners %v, moves %v, want none", p.total, p.perNode, p.perNamespace,
				p.perOwner, p.moves.ineffective)
		}
	}
}

// A reason lists ten lines, and then the number of those that it leaves out.
func TestAgainstIsBounded(t *testing.T) {
	for count, want := range map[int]string{0: "", 1: "0", maxAgainst: "9", maxAgainst + 1: "and 1 more"} {
		w := &proposal{}
		w.addAgainst(count, func(i int) string { return fmt.Sprint(i) })
		if got := append([]string{""}, w.against...); got[len(got)-1] != want {
			t.Errorf("%d lines: the last is %q, want %q", count, got[len(got)-1], want)
		}
	}
}

// The reasons of a follow-up plan are added for the pods of the snapshot that have none.
func TestFollowUpAddsReasons(t *testing.T) {
	of := func(name string) *model.Pod { return &model.Pod{Pod: pod(name, "n1")} }
	p := &planner{skipped: map[*model.Pod]string{of("a"): "first"}, replacements: map[string]string{"default/r+next": "default/r"}}
	p.extend(&planner{skipped: map[*model.Pod]string{of("a"): "second", of("b"): "second", of("r+next"): "second"}})
	got := map[string]string{}
	for pod, why := range p.skipped {
		got[pod.Name] = why
	}
	if fmt.Sprint(got) != "map[a:first b:second]" {
		t.Errorf("reasons = %v, want first for a and second for b", got)
	}
}
