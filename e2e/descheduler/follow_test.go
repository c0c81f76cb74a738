package descheduler

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/descheduler/pkg/api"

	"jettison/cluster/deschedule"
)

// correction reverts a defect of the descheduler: by a policy or a snapshot that it judges correctly.
type mending struct {
	by         string
	strategies []string // strategies that it can affect; nil: all
	policy     func(*api.DeschedulerPolicy) *api.DeschedulerPolicy
	state      func(*deschedule.Snapshot) *deschedule.Snapshot
}

// mendings returns the mendings that let the descheduler evict a pod which it keeps. The one for
// resources includes the one for taints: a pod that needs both counts for the first.
func (c *comparison) mendings() []mending {
	low := []string{deschedule.LowNodeUtilization}
	usage := []string{deschedule.LowNodeUtilization, deschedule.HighNodeUtilization}
	return []mending{
		{byResource, low, c.had, same},
		{byResource, low, c.had, tolerant},
		{byTaints, usage, unlimited, tolerant},
		{byAbsent, usage, unlimited, provided},
		{byAbsent, usage, unlimited, func(s *deschedule.Snapshot) *deschedule.Snapshot { return provided(tolerant(s)) }},
		{byKey, []string{deschedule.InterPodAntiAffinity}, unlimited, keyed},
		{byFit, []string{deschedule.RemoveDuplicates}, unlimited, c.fitting},
	}
}

// insist returns the descheduler's evictions before an eviction of a plan: in the state s, in which
// its defects are reverted, of the plan's state real. It rejects pods that the plan keeps until then
// for a checked reason, then the pods that the descheduler evicts in their place and the plan also
// keeps, and so on. It also rejects successors that no helpful node accepts or the scheduler would
// choose, and those whose own successors would be evicted again.
func (c *comparison) insist(id string, i int, policy *api.DeschedulerPolicy, s, real *deschedule.Snapshot) map[went]bool {
	id = fmt.Sprint("insist ", i, " ", id)
	if c.memory[id] != nil {
		return c.memory[id]
	}
	gone := keys(c.plan[:i+1])
	refused := maps.Clone(c.stays)
	delete(refused, c.plan[i].pod) // only another strategy keeps it
	for {
		before := len(refused)
		out := c.upstream(policy, s, refused)
		for _, w := range out {
			made := find(c.s, w.pod) == nil
			keeps := made && (c.pointless(s, w) || byPreference[w.strategy] && c.returnsIn(real, real, w) || c.goesOn(s, w))
			if keeps || !made && !gone[w] && c.reason(w) != "" {
				refused[w.id()] = true
			}
		}
		if len(refused) == before {
			c.memory[id] = keys(out)
			return c.memory[id]
		}
	}
}

// reason returns kept, cached.
func (c *comparison) reason(w went) string {
	by, ok := c.reasons[w]
	if !ok {
		by = c.kept(w)
		c.reasons[w] = by
	}
	return by
}

// follows returns the improvement that evicts a pod when other pods stay, or when a defect is
// reverted, or "".
func (c *comparison) follows(i int) string {
	w := c.plan[i]
	mendings := append([]mending{{by: byOthers, policy: unlimited, state: same}}, c.mendings()...)
	if c.stays[w.pod] { // other strategies keep it, which can change their choice of other pods
		mendings = append(mendings, mending{by: byOthers, policy: func(p *api.DeschedulerPolicy) *api.DeschedulerPolicy {
			return only(p, w.strategy)
		}, state: same})
	}
	for k, m := range mendings {
		if m.strategies != nil && !slices.Contains(m.strategies, w.strategy) {
			continue
		}
		for j := range i + 1 {
			if c.insist(fmt.Sprint(j, " ", k), i, m.policy(c.theirs), m.state(c.states[j]), c.states[j])[w] {
				return m.by
			}
		}
	}
	return ""
}

func same(s *deschedule.Snapshot) *deschedule.Snapshot { return s }

// fitting returns a snapshot in which RemoveDuplicates does not count pods that nodeFit keeps by a
// scheduler's full check: they are marked as being deleted.
func (c *comparison) fitting(s *deschedule.Snapshot) *deschedule.Snapshot {
	out := *s
	out.Pods = slices.Clone(s.Pods)
	selectors := c.fitSelectors()
	for i, p := range out.Pods {
		if slices.ContainsFunc(selectors, func(text string) bool { return fitsNone(s, p, text) }) {
			out.Pods[i] = p.DeepCopy()
			out.Pods[i].DeletionTimestamp = &metav1.Time{Time: now}
			delete(out.Pods[i].Annotations, "descheduler.alpha.kubernetes.io/evict")
		}
	}
	return &out
}

// fitSelectors returns the node selectors of evictors with nodeFit.
func (c *comparison) fitSelectors() (out []string) {
	for i := range c.ours.Profiles {
		for _, config := range c.ours.Profiles[i].PluginConfig {
			if a, ok := config.Args.(*deschedule.DefaultEvictorArgs); ok && a.NodeFit {
				out = append(out, a.NodeSelector)
			}
		}
	}
	return out
}

// fitsNone reports whether no node that a selector matches accepts a pod, other than its own.
func fitsNone(s *deschedule.Snapshot, p *v1.Pod, text string) bool {
	selector, err := labels.Parse(text)
	return err == nil && !slices.ContainsFunc(s.Nodes, func(n *v1.Node) bool {
		return n.Name != p.Spec.NodeName && selector.Matches(labels.Set(n.Labels)) && refuses(s, p, n) == ""
	})
}

// placing returns the node on which a scheduler puts a pod's successor; empty: none.
type placing = func(s *deschedule.Snapshot, pod string) string

// placements is the number of ways to place successors that canCircle tries.
const placements = 40

// canCircle reports whether repeated cycles of the descheduler, with any result of a scheduler
// after each, evict a pod and then its successor. The scheduler may follow this project's model, or
// put pods on any nodes that accept them. The descheduler may be unchanged, or ignore taints
// without effect and resources that no node has.
//
// The plan itself must keep the pod because of such a circle, unless the reason that it gives may be
// of another strategy.
func (c *comparison) canCircle(pod string) bool {
	if len(c.steps()) == 1 && !strings.HasPrefix(c.why(pod), "eviction loop: ") {
		return false
	}
	end := c.states[len(c.states)-1]
	cycles := c.courses()
	r := rand.New(rand.NewPCG(uint64(c.seed), 7))
	for try := range placements {
		place := c.place
		if try > 0 {
			place = func(s *deschedule.Snapshot, pod string) string { return anywhere(r, s, pod) }
		}
		for _, cycle := range cycles {
			if circles(pod, c.s, nil, place, cycle) || circles(pod, c.s, c.stays, place, cycle) || circles(pod, end, c.stays, place, cycle) {
				return true
			}
		}
	}
	return false
}

// goesOn reports whether a successor is evicted repeatedly with a scheduler like this project's
// model.
func (c *comparison) goesOn(s *deschedule.Snapshot, w went) bool {
	return circles(origin(w.pod), s, c.stays, c.place, c.courses()[0])
}

// courses returns the cycles of the unchanged descheduler, and of one with its defects reverted.
func (c *comparison) courses() []func(*deschedule.Snapshot, map[string]bool) []went {
	cycles := []func(*deschedule.Snapshot, map[string]bool) []went{
		func(s *deschedule.Snapshot, refused map[string]bool) []went {
			return c.upstream(unlimited(c.theirs), s, refused)
		},
	}
	if c.has(deschedule.LowNodeUtilization) || c.has(deschedule.HighNodeUtilization) {
		providing := func(s *deschedule.Snapshot) *deschedule.Snapshot { return provided(tolerant(s)) }
		for _, state := range []func(*deschedule.Snapshot) *deschedule.Snapshot{tolerant, providing} {
			cycles = append(cycles, func(s *deschedule.Snapshot, refused map[string]bool) []went {
				return c.upstream(c.had(c.theirs), state(s), refused)
			}, func(s *deschedule.Snapshot, refused map[string]bool) []went { return c.helpful(s, state, refused) })
		}
	}
	return cycles
}

// helpful returns the evictions of a cycle of the descheduler with its defects reverted, in which
// pods stay that no helpful node accepts, as do the pods evicted in their place.
func (c *comparison) helpful(s *deschedule.Snapshot, state func(*deschedule.Snapshot) *deschedule.Snapshot, refused map[string]bool) []went {
	refused = maps.Clone(refused)
	if refused == nil {
		refused = map[string]bool{}
	}
	for {
		before := len(refused)
		out := c.upstream(c.had(c.theirs), state(s), refused)
		for _, w := range out {
			if c.pointless(s, w) {
				refused[w.pod] = true
			}
		}
		if len(refused) == before {
			return out
		}
	}
}

// pointless reports whether, in a state, no node accepts a pod with benefit for a strategy that
// requires that.
func (c *comparison) pointless(s *deschedule.Snapshot, w went) bool {
	p := find(s, w.pod)
	return hasToHelp[w.strategy] && !slices.ContainsFunc(s.Nodes, func(n *v1.Node) bool {
		return n.Name != p.Spec.NodeName && refuses(s, p, n) == "" && c.helps(w, s, s, p, n)
	})
}

func circles(pod string, s *deschedule.Snapshot, stays map[string]bool, place placing,
	next func(*deschedule.Snapshot, map[string]bool) []went) bool {
	refused := maps.Clone(stays)
	delete(refused, pod)
	times := 0
	for range 6 {
		cycle := next(s, refused)
		for _, w := range cycle {
			if origin(w.pod) == pod {
				times++
			}
			s = evicted(s, w.pod, place(s, w.pod))
		}
		if times > 1 {
			return true
		}
		if len(cycle) == 0 {
			break
		}
	}
	return false
}
