package deschedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// grid has racks of nodes with pods of one owner that has a hard constraint on racks and one on
// nodes; skew 0: no constraint.
type grid struct {
	racks              []int // number of nodes of each rack
	pods               []int // number of pods of each node
	rackSkew, hostSkew int
}

func (g *grid) rackOf(n int) int {
	for rack, nodes := range g.racks {
		if n < nodes {
			return rack
		}
		n -= nodes
	}
	return -1
}

// plan returns the plan's input. Pod names are shuffled, so that they tell nothing about nodes.
func (g *grid) plan(r *rand.Rand) plan {
	p := plan{strategy: TopologySpreadConstraint, args: &SpreadArgs{}}
	total := 0
	for _, count := range g.pods {
		total += count
	}
	names := r.Perm(total)
	for n, count := range g.pods {
		name := fmt.Sprintf("n%02d", n)
		p.nodes = append(p.nodes, machine(name, 8000, nodeLabel("rack", fmt.Sprint("r", g.rackOf(n)))))
		for range count {
			made := pod(fmt.Sprintf("p%02d", names[0]), name, request(v1.ResourceMemory, 512<<20))
			if names = names[1:]; g.rackSkew > 0 {
				spreads("rack", int32(g.rackSkew), v1.DoNotSchedule)(made)
			}
			if g.hostSkew > 0 {
				spreads(v1.LabelHostname, int32(g.hostSkew), v1.DoNotSchedule)(made)
			}
			p.pods = append(p.pods, made)
		}
	}
	return p
}

// counts returns the pods of each rack.
func (g *grid) counts(pods []int) []int {
	out := make([]int, len(g.racks))
	for n, count := range pods {
		out[g.rackOf(n)] += count
	}
	return out
}

// violations returns by how many pods domains exceed the skew of their constraint.
func (g *grid) violations(pods []int) (sum int) {
	for _, k := range []struct {
		skew    int
		domains []int
	}{{g.rackSkew, g.counts(pods)}, {g.hostSkew, pods}} {
		for _, count := range k.domains {
			if k.skew > 0 {
				sum += max(count-slices.Min(k.domains)-k.skew, 0)
			}
		}
	}
	return sum
}

// unevenness returns the sum of the squares of the pods in all domains. An eviction that enables
// another one decreases only this.
func (g *grid) unevenness(pods []int) (sum int) {
	for _, count := range append(g.counts(pods), pods...) {
		sum += count * count
	}
	return sum
}

// accepts reports whether a scheduler may place a pod on a node.
func (g *grid) accepts(pods []int, n int) bool {
	racks := g.counts(pods)
	return (g.rackSkew == 0 || racks[g.rackOf(n)]+1-slices.Min(racks) <= g.rackSkew) &&
		(g.hostSkew == 0 || pods[n]+1-slices.Min(pods) <= g.hostSkew)
}

// fewest returns the fewest moves that satisfy all constraints, whichever pod moves and whichever
// node the scheduler chooses; -1: none do.
func (g *grid) fewest() int {
	seen, next := map[string]bool{}, [][]int{g.pods}
	for moves := 0; len(next) > 0; moves++ {
		now := next
		next = nil
		for _, pods := range now {
			if g.violations(pods) == 0 {
				return moves
			}
			for from := range pods {
				if pods[from] == 0 {
					continue
				}
				left := slices.Clone(pods)
				left[from]--
				for to := range pods {
					if to == from || !g.accepts(left, to) {
						continue
					}
					made := slices.Clone(left)
					made[to]++
					if key := fmt.Sprint(made); !seen[key] {
						seen[key] = true
						next = append(next, made)
					}
				}
			}
		}
	}
	return -1
}

// follow checks that each eviction is progress, and returns the number of violations in the end.
func (g *grid) follow(t *testing.T, r *Result) int {
	t.Helper()
	pods := slices.Clone(g.pods)
	left, uneven := g.violations(pods), g.unevenness(pods)
	for _, e := range r.Evictions {
		var from, to int
		if _, err := fmt.Sscanf(e.Node+" "+e.To, "n%d n%d", &from, &to); err != nil {
			t.Fatalf("%+v: eviction of %s from %s to %q: %v", *g, e.Name, e.Node, e.To, err)
		}
		pods[from]--
		pods[to]++
		is, now := g.violations(pods), g.unevenness(pods)
		if is > left || is == left && now >= uneven {
			t.Errorf("%+v: violations after the eviction of %s from %s to %s = %d, want fewer than %d", *g, e.Name, e.Node, e.To, is, left)
		}
		left, uneven = is, now
	}
	return left
}

// Descheduler 0.36.0 stops before the constraints are satisfied, or evicts more pods than
// necessary, depending on the names of pods (descheduler#1535).
func TestSpreadNeedsFewestMoves(t *testing.T) {
	for _, c := range []struct {
		name string
		grid
		want int
	}{
		{"two racks of two nodes", grid{[]int{2, 2}, []int{5, 5, 0, 0}, 1, 1}, 5},
		{"two racks, only racks count", grid{[]int{2, 2}, []int{5, 5, 0, 0}, 1, 0}, 5},
		{"64 pods on four racks", grid{[]int{4, 4, 4, 4}, []int{8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 0}, 1, 1}, 16},
		{"64 pods on four racks, only racks count", grid{[]int{4, 4, 4, 4}, []int{20, 4, 4, 4, 4, 4, 4, 4, 16, 0, 0, 0, 0, 0, 0, 0}, 1, 0}, 16},
		{"a loose constraint", grid{[]int{1, 1, 1}, []int{10, 1, 1}, 3, 0}, 4},
		{"already satisfied", grid{[]int{2, 2}, []int{2, 1, 1, 1}, 1, 1}, 0},
	} {
		for seed := range 20 {
			p := c.plan(rand.New(rand.NewPCG(uint64(seed), 1)))
			r := p.run(t)
			if left := c.follow(t, r); left > 0 || len(r.Evictions) != c.want {
				t.Errorf("%s, names %d: %d evictions, %d violations left, want %d and 0; skipped %v", c.name, seed, len(r.Evictions), left, c.want, r.Skipped)
				break
			}
			if c.want < 4 {
				continue
			}
			p.limits = &limits{3, -1, -1}
			if r = p.run(t); len(r.Evictions) != 3 {
				t.Errorf("%s: %d evictions with a limit of 3", c.name, len(r.Evictions))
			}
			c.follow(t, r)
		}
	}
}

// With several constraints, plans need at most 10 % more moves than an exhaustive search, over all
// small cases.
func TestSpreadIsNearExhaustiveSearch(t *testing.T) {
	moves, fewest, unsatisfied := 0, 0, 0
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 38))
		g := &grid{rackSkew: 1 + r.IntN(2), hostSkew: 1 + r.IntN(2)}
		for range 2 + r.IntN(2) {
			nodes := 1 + r.IntN(2)
			g.racks = append(g.racks, nodes)
			for range nodes {
				g.pods = append(g.pods, r.IntN(5))
			}
		}
		best := g.fewest()
		p := g.plan(r)
		result := p.run(t)
		left := g.follow(t, result)
		if best < 0 {
			continue
		}
		if left > 0 {
			unsatisfied++
			t.Errorf("seed %d: %+v: %d violations left after %d evictions, want none after %d; skipped %v", seed, *g, left, len(result.Evictions), best, result.Skipped)
			continue
		}
		if len(result.Evictions) > best {
			t.Logf("seed %d: %+v: %d evictions, fewest %d", seed, *g, len(result.Evictions), best)
		}
		moves, fewest = moves+len(result.Evictions), fewest+best
	}
	t.Logf("%d evictions, fewest %d, %d cases unsatisfied", moves, fewest, unsatisfied)
	if moves*10 > fewest*11 {
		t.Errorf("%d evictions, want at most 10 %% more than %d", moves, fewest)
	}
}

// A pod that another workload's constraint counts has none of its own to satisfy: it stays
// (descheduler#1167, #1731).
func TestSpreadKeepsPodsWithoutConstraint(t *testing.T) {
	zoned := func(zone string) func(*v1.Node) { return nodeLabel(v1.LabelTopologyZone, zone) }
	web := []edit{spreads(v1.LabelTopologyZone, 1, v1.DoNotSchedule), owned("ReplicaSet", "web"), priority(10)}
	job := []edit{label("foo", "bar"), owned("Job", "sync"), priority(0)}
	p := plan{strategy: TopologySpreadConstraint, args: &SpreadArgs{},
		nodes: cluster(machine("a1", 4000, zoned("a")), machine("a2", 4000, zoned("a")), machine("b1", 4000, zoned("b"))),
		pods: podList(pod("web-1", "a1", web...), pod("web-2", "b1", web...), pod("sync-1", "a2", job...), pod("sync-2", "a2", job...),
			pod("fill-1", "a1", daemon, request("cpu", 2000)), pod("fill-2", "a2", daemon, request("cpu", 2000)))}
	if r := p.run(t); !slices.Equal(names(r), []string{"web-1"}) {
		t.Errorf("evictions = %v, want web-1, which has the constraint; skipped %v", names(r), r.Skipped)
	}
	p.pods = p.pods[1:] // the only pod with the constraint is in the emptier zone
	p.pods = append(p.pods, pod("sync-3", "a2", job...))
	eachScheduler(t, &p, func(evictions []string) {
		if len(evictions) > 0 {
			t.Errorf("evictions in ten cycles = %v, want none", evictions)
		}
	})
}

// Moves between domains change the violations of a constraint as kube-scheduler counts them.
func TestViolationsOfMoves(t *testing.T) {
	for _, c := range []struct {
		domains    map[string]int
		minDomains int
		from, to   string
		want       int
	}{
		{map[string]int{"a": 3, "b": 0}, 0, "a", "b", -2},
		{map[string]int{"a": 3, "b": 0}, 2, "a", "b", -2},
		{map[string]int{"a": 3, "b": 0}, 3, "a", "b", -1},
		{map[string]int{"a": 1, "b": 0}, 0, "a", "a", 0},
		{map[string]int{"a": 3, "b": 0}, 0, "a", noDomain, -1},
		{map[string]int{"a": 3, "b": 0}, 0, noDomain, "b", -1},
		{map[string]int{"a": 1, "b": 1}, 0, "a", "b", 1},
		{map[string]int{"a": 2, "b": 2, "c": 1}, 0, "c", "a", 3},
	} {
		s := newSpreadCounts(&model.Constraint{MaxSkew: 1, MinDomains: c.minDomains}, c.domains)
		if got := s.change(c.from, c.to); got != c.want {
			t.Errorf("%v, minDomains %d, from %q to %q: change of violations %d, want %d", c.domains, c.minDomains, c.from, c.to, got, c.want)
		}
	}
}

// Pods with a node selector or node affinity are evicted after others.
func TestPinnedPodsAreEvictedLast(t *testing.T) {
	for name, c := range map[string]struct {
		edit edit
		want int
	}{
		"none": {func(*v1.Pod) {}, 0}, "node selector": {selects("a", "b"), 1}, "node affinity": {affine(matchIn("a", "b"), nil), 1},
		"pod affinity": {repels("a", "b", v1.LabelHostname), 0},
	} {
		if got := pinnedToNodes(&model.Pod{Pod: pod("p", "n1", c.edit)}); got != c.want {
			t.Errorf("%s: pinned %d, want %d", name, got, c.want)
		}
	}
}

// Topology spread evicts only pods on the selected nodes, and weighs only constraints of running pods.
func TestSpreadConsidersSelectedPods(t *testing.T) {
	rack := func(value string) func(*v1.Node) { return nodeLabel("rack", value) }
	host, racks := spreads(v1.LabelHostname, 1, v1.DoNotSchedule), spreads("rack", 1, v1.DoNotSchedule)
	labelled := label("foo", "bar")
	notReady := func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionFalse }
	across := func() []*v1.Node {
		return cluster(machine("n1", 8000, rack("a")), machine("n2", 8000, rack("a")), machine("n3", 8000, rack("b")), machine("n4", 8000, rack("a")))
	}
	full := all(podsNamed(1, "a", "n1", host), podsNamed(1, "b", "n2", host), podsNamed(2, "c", "n3", host))
	for name, c := range map[string]struct {
		nodes []*v1.Node
		pods  []*v1.Pod
		want  string
	}{
		"node that is not ready": {cluster(machine("n1", 8000, rack("a")), machine("n2", 8000, rack("a"), notReady), machine("n3", 8000, rack("b"))),
			all(podsNamed(2, "p", "n1", racks), podsNamed(2, "a", "n2", racks)), "p0"},
		"no other constraint":             {across(), full, "c0"},
		"constraint of an ended pod":      {across(), all(full, podsNamed(1, "e", "n1", labelled, racks, phase(v1.PodSucceeded))), "c0"},
		"constraint of another that runs": {across(), all(full[1:], podsNamed(1, "r", "n1", host, racks)), ""},
	} {
		p := plan{strategy: TopologySpreadConstraint, args: &SpreadArgs{}, nodes: c.nodes, pods: c.pods}
		if r := p.run(t); strings.Join(names(r), " ") != c.want {
			t.Errorf("%s: evictions = %v, want %q; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}

// A soft constraint moves a pod only to a domain that then has fewer pods than the present one.
func TestSoftSpreadNeedsAnImprovement(t *testing.T) {
	soft := spreads("rack", 1, v1.ScheduleAnyway)
	for there, want := range map[int]int{1: 1, 2: 0} {
		p := plan{strategy: TopologySpreadConstraint, args: &SpreadArgs{Constraints: []v1.UnsatisfiableConstraintAction{v1.ScheduleAnyway}},
			nodes: cluster(machine("n1", 4000, nodeLabel("rack", "a")), machine("n2", 64000, nodeLabel("rack", "b")), machine("n3", 4000, nodeLabel("rack", "c"), cordoned)),
			pods:  all(podsNamed(3, "p", "n1", soft, request("cpu", 1000)), podsNamed(there, "q", "n2", soft))}
		if r := p.run(t); len(r.Evictions) != want {
			t.Errorf("3 pods in one rack, %d in the other: evictions = %v, want %d; skipped %v", there, names(r), want, r.Skipped)
		}
	}
}
