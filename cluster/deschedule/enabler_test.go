package deschedule

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod that violates nothing moves only if its own move makes the counts of one of its violated
// constraints more even and lets a violating pod of several constraints move.
func TestEnablers(t *testing.T) {
	onRack := func(rack string, cpu int64, edits ...func(*v1.Node)) *v1.Node {
		return sized("", cpu, 1<<40, 20, append(edits, nodeLabel("rack", rack))...)
	}
	racks := func(skew int32) edit { return spreads("rack", skew, v1.DoNotSchedule) }
	hosts := func(skew int32) edit { return spreads(v1.LabelHostname, skew, v1.DoNotSchedule) }
	alone := func(p *v1.Pod) { bare(p); annotation(evictAnnotation)(p) }
	special, forSpecial := taint("t", "v", v1.TaintEffectNoSchedule), tolerates("t", "v", v1.TaintEffectNoSchedule)
	type group struct {
		edits []edit
		on    []int // number of pods on each node
	}
	for name, c := range map[string]struct {
		nodes  []*v1.Node
		groups []group // each of another owner
		want   []string
	}{
		"own move is more even": {cluster(onRack("a", 8000), onRack("b", 200), onRack("b", 8000, special)),
			[]group{{[]edit{racks(1), hosts(5)}, []int{4, 0, 0}}, {[]edit{racks(1), hosts(5), forSpecial}, []int{0, 2, 0}}}, []string{"p04", "p00"}},
		"own move is as uneven": {cluster(onRack("a", 8000), onRack("b", 100), onRack("b", 8000, special)),
			[]group{{[]edit{racks(1), hosts(5)}, []int{4, 0, 0}}, {[]edit{racks(1), hosts(5), forSpecial}, []int{0, 1, 0}}}, nil},
		"one constraint": {cluster(onRack("a", 8000), onRack("b", 200), onRack("c", 8000, special)),
			[]group{{[]edit{racks(2)}, []int{5, 0, 0}}, {[]edit{racks(2), forSpecial}, []int{0, 2, 0}}}, nil},
		"own constraint is satisfied": {cluster(onRack("a", 2000), onRack("b", 2000), onRack("b", 300), onRack("c", 100), onRack("c", 2000)),
			[]group{{[]edit{racks(1), hosts(1)}, []int{0, 1, 2, 0, 1}}, {[]edit{hosts(2)}, []int{1, 0, 0, 3, 0}}}, []string{"p01"}},
		"helps no violating pod": {cluster(onRack("a", 2000), onRack("b", 200), onRack("b", 2000), onRack("c", 400), onRack("c", 100)),
			[]group{{[]edit{hosts(2)}, []int{3, 1, 0, 0, 3}}, {[]edit{racks(1)}, []int{3, 3, 0, 2, 3}}}, []string{"p04", "p05"}},
		"without an owner": {cluster(onRack("a", 2000), onRack("b", 2000), onRack("b", 500)),
			[]group{{[]edit{racks(2), hosts(1)}, []int{2, 0, 1}}, {[]edit{racks(1), alone}, []int{0, 2, 1}}}, nil},
	} {
		p := plan{strategy: TopologySpreadConstraint, args: &SpreadArgs{}, nodes: c.nodes}
		for i, n := range p.nodes {
			n.Name = fmt.Sprintf("n%02d", i)
			n.Labels[v1.LabelHostname] = n.Name
		}
		for i, g := range c.groups {
			owner := fmt.Sprint("o", i)
			for j, count := range g.on {
				for range count {
					edits := append([]edit{owned("ReplicaSet", owner)}, g.edits...)
					p.pods = append(p.pods, pod(fmt.Sprintf("p%02d", len(p.pods)), p.nodes[j].Name, edits...))
				}
			}
		}
		if r := p.run(t); !slices.Equal(names(r), c.want) {
			t.Errorf("%s: evictions = %v, want %v; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}

// A pod that violates nothing has no reason for staying if all violating pods stay: it is no enabler.
func TestNoEnablerWithoutViolatingPod(t *testing.T) {
	p := plan{strategy: TopologySpreadConstraint, args: &SpreadArgs{}, evictor: &DefaultEvictorArgs{NodeFit: true},
		nodes: []*v1.Node{sized("n0", 8000, 1<<40, 20, nodeLabel("rack", "a")), sized("n1", 100, 1<<40, 20, nodeLabel("rack", "b"))}}
	for i, on := range []string{"n0", "n0", "n0", "n0", "n1"} {
		p.pods = append(p.pods, pod(fmt.Sprint("p", i), on, spreads("rack", 1, v1.DoNotSchedule), spreads(v1.LabelHostname, 5, v1.DoNotSchedule)))
	}
	r := p.run(t)
	if len(r.Evictions) > 0 || skipReason(r, "p0") == "" || skipReason(r, "p4") != "" {
		t.Errorf("evictions %v, skipped %v, want none evicted, p0 with a reason and p4 without one", names(r), r.Skipped)
	}
}
