package descheduler

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/descheduler/pkg/api"
	nodeutil "sigs.k8s.io/descheduler/pkg/descheduler/node"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/nodeutilization"

	"jettison/cluster/deschedule"
	"jettison/cluster/model"
)

// The improvements that a difference may belong to, and two ways to follow from one.
const (
	byBudget    = "budgets count in a plan"
	byFit       = "a pod that no other node takes stays"
	byBetter    = "moving a pod has to help"
	byCircles   = "no pod is evicted in circles"
	byPasses    = "a plan goes on until a pass moves nothing"
	byLowest    = "spread: the lowest priority goes first"
	byProtected = "spread: protected pods count"
	byNeed      = "spread: one at a time, as many as have to"
	byTaints    = "tolerations of taints that keep pods away"
	byOwners    = "several owners count once"
	bySingle    = "a single node has its strategies"
	byResource  = "a resource that no node has stops nothing"
	byOthers    = "follows from those that stay"
	byLimit     = "a limit that others have used up"
)

// documented is what docs/operate/descheduling.md says of each improvement.
var documented = map[string]string{
	byBudget:    "Budgets count in a plan",
	byFit:       "a scheduler's whole answer",
	byBetter:    "Moving a pod has to help",
	byCircles:   "A pod whose successor would be evicted again stays",
	byPasses:    "until a pass moves nothing",
	byLowest:    "the lowest priority goes first",
	byProtected: "protected pods count",
	byNeed:      "one pod at a time",
	byTaints:    "tolerations of NoSchedule and NoExecute taints only",
	byOwners:    "A pod of several owners counts once",
	bySingle:    "A single ready node",
	byResource:  "a resource that no node has is left out",
}

func TestTheImprovementsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate/descheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	for by, words := range documented {
		if !strings.Contains(string(text), words) {
			t.Errorf("%s: docs/operate/descheduling.md does not say %q", by, words)
		}
	}
}

// comparison is one cluster, one policy, and what both make of them.
type comparison struct {
	testing.TB
	seed   int
	ours   *deschedule.Policy
	theirs *api.DeschedulerPolicy
	s      *deschedule.Snapshot
	result *deschedule.Result
	plan   []went
	cycle  []went // what the descheduler evicts

	states  []*deschedule.Snapshot
	stays   map[string]bool // pods that the descheduler evicts and a plan does not, for a reason that was checked
	may     map[string]bool // pods that the evictor lets go, by what the descheduler itself says
	goes    map[string]bool // pods that a plan evicts
	memory  map[string]map[went]bool
	reasons map[went]string // what kept says, of those that were asked
	lets    map[*deschedule.Snapshot]map[string]bool
	single  bool // the descheduler would look at one node only
}

func compare(t testing.TB, seed int, s *deschedule.Snapshot, policy *deschedule.Policy) *comparison {
	t.Helper()
	c := &comparison{TB: t, seed: seed, s: s, stays: map[string]bool{}, memory: map[string]map[went]bool{},
		reasons: map[went]string{}, lets: map[*deschedule.Snapshot]map[string]bool{}}
	c.ours, c.theirs = read(t, policy)
	c.single = len(c.looked(s)) == 1
	var err error
	if c.result, err = deschedule.Plan(c.ours, s, now); err != nil {
		t.Fatal(err)
	}
	for _, e := range c.result.Evictions {
		c.plan = append(c.plan, went{e.Namespace + "/" + e.Name, e.Strategy})
	}
	c.cycle = c.upstream(c.theirs, s, nil)
	return c
}

// upstream is what a cycle evicts. Where the descheduler would look at one node only, and do nothing, it is given a second one that takes
// nobody, and the strategies that such a node does not matter to: those that deschedule.
func (c *comparison) upstream(policy *api.DeschedulerPolicy, s *deschedule.Snapshot, refused map[string]bool) []went {
	if !c.single {
		return upstream(c, policy, s, refused)
	}
	policy = policy.DeepCopy()
	for i := range policy.Profiles {
		policy.Profiles[i].Plugins.Balance.Enabled = nil
	}
	return upstream(c, policy, c.twoNodes(s), refused)
}

// prepare is for what only a difference asks.
func (c *comparison) prepare() {
	c.states = states(c.s, c.result.Evictions)
	c.may = c.mayIn(c.s)
}

// mayIn are the pods of a state that the evictor lets go.
func (c *comparison) mayIn(s *deschedule.Snapshot) map[string]bool {
	if c.lets[s] == nil {
		c.lets[s] = evictable(c, c.theirs, c.twoNodes(s))
	}
	return c.lets[s]
}

// twoNodes is a snapshot with a cordoned, tainted node more where the descheduler would look at one only.
func (c *comparison) twoNodes(s *deschedule.Snapshot) *deschedule.Snapshot {
	if !c.single {
		return s
	}
	out := *s
	n := c.looked(s)[0].DeepCopy()
	n.Name, n.Spec.Unschedulable = "zz", true
	n.Spec.Taints = []v1.Taint{{Key: "nobody", Effect: v1.TaintEffectNoSchedule}}
	out.Nodes = append(slices.Clone(s.Nodes), n)
	return &out
}

// why is what the plan says of a pod that it keeps.
func (c *comparison) why(pod string) string {
	for _, s := range c.result.Skipped {
		if s.Namespace+"/"+s.Name == pod {
			return s.Reason
		}
	}
	return ""
}

// origin is the pod of the snapshot that one stands for.
func origin(pod string) string {
	for {
		cut, ok := strings.CutSuffix(pod, "-next")
		if !ok {
			return pod
		}
		pod = cut
	}
}

// ask is what the descheduler evicts in another state or by another policy; it is asked once.
func (c *comparison) ask(id string, policy *api.DeschedulerPolicy, s *deschedule.Snapshot, refused map[string]bool) map[went]bool {
	if c.memory[id] == nil {
		c.memory[id] = keys(c.upstream(policy, s, refused))
	}
	return c.memory[id]
}

// kept says which improvement keeps a pod that the descheduler evicts. Empty: none.
func (c *comparison) kept(w went) string {
	why := c.why(w.pod)
	switch {
	case c.spent(w.pod):
		return byBudget
	case strings.HasPrefix(why, "maximum number") && c.usedUp(w.pod):
		return byLimit
	case w.strategy == deschedule.RemoveDuplicates && len(find(c.s, w.pod).OwnerReferences) > 1 &&
		!c.ask("single", unlimited(c.theirs), single(c.s), nil)[w]:
		return byOwners
	}
	if w.strategy == deschedule.TopologySpreadConstraint {
		if by := c.keptBySpread(w); by != "" {
			return by
		}
	}
	switch {
	case c.fitsNowhere(w):
		return byFit
	case hasToHelp[w.strategy] && c.helpsNowhere(w):
		return byBetter
	case c.canCircle(w.pod), c.spreadsAgain(w.pod):
		return byCircles
	case c.notAnyMore(w), c.wentBefore(w):
		return byOthers
	}
	return ""
}

// notAnyMore: in every state after some other eviction of the plan the descheduler would leave the pod alone.
func (c *comparison) notAnyMore(w went) bool {
	end := c.states[len(c.states)-1]
	return len(c.states) > 1 && find(end, w.pod) != nil && !keys(c.upstream(unlimited(c.theirs), end, c.stays))[w]
}

// wentBefore: another strategy, which comes earlier, evicts the pod in the plan. Why it does is asked of that eviction.
func (c *comparison) wentBefore(w went) bool {
	var steps []went // by profile
	for _, balance := range []bool{false, true} {
		for _, p := range c.ours.Profiles {
			names := p.Plugins.Deschedule.Enabled
			if balance {
				names = p.Plugins.Balance.Enabled
			}
			for _, name := range names {
				steps = append(steps, went{p.Name, name})
			}
		}
	}
	return slices.ContainsFunc(c.result.Evictions, func(e deschedule.Eviction) bool {
		if e.Namespace+"/"+e.Name != w.pod || e.Strategy == w.strategy {
			return false
		}
		later := steps[slices.Index(steps, went{e.Profile, e.Strategy})+1:]
		return slices.ContainsFunc(later, func(s went) bool { return s.strategy == w.strategy })
	})
}

// covers are the budgets of a pod.
func (c *comparison) covers(p *v1.Pod) (out []*policyv1.PodDisruptionBudget) {
	for _, b := range c.s.Budgets {
		if b.Namespace == p.Namespace && selectorOf(b.Spec.Selector).Matches(labels.Set(p.Labels)) {
			out = append(out, b)
		}
	}
	return out
}

// spent reports whether the eviction API would refuse a pod: it has several budgets, or those that go before it have spent it.
func (c *comparison) spent(pod string) bool {
	p := find(c.s, pod)
	budgets := c.covers(p)
	if len(budgets) != 1 || p.Status.Phase != v1.PodRunning {
		return len(budgets) > 1 && p.Status.Phase == v1.PodRunning
	}
	count := int32(0)
	for _, e := range c.result.Evictions {
		if healthyPod(e.Pod) && slices.Contains(c.covers(e.Pod), budgets[0]) {
			count++
		}
	}
	return count >= budgets[0].Status.DisruptionsAllowed
}

// usedUp reports whether a limit keeps a pod, and others than those that the descheduler evicts have used it.
func (c *comparison) usedUp(pod string) bool {
	p := find(c.s, pod)
	total, node, space := uint(0), uint(0), uint(0)
	for _, e := range c.result.Evictions {
		total++
		if e.Node == p.Spec.NodeName {
			node++
		}
		if e.Namespace == p.Namespace {
			space++
		}
	}
	reached := func(limit *uint, count uint) bool { return limit != nil && count >= *limit }
	return (reached(c.ours.MaxNoOfPodsToEvictTotal, total) || reached(c.ours.MaxNoOfPodsToEvictPerNode, node) ||
		reached(c.ours.MaxNoOfPodsToEvictPerNamespace, space)) && !slices.Equal(c.plan, c.cycle)
}

// fitsNowhere: there is a state of the plan in which no other node takes the pod: of all, or of those that nodeFit may use.
func (c *comparison) fitsNowhere(w went) bool {
	selectors := c.fitSelectors()
	if hasToHelp[w.strategy] {
		selectors = append(selectors, "")
	}
	return c.somewhen(w.pod, func(s *deschedule.Snapshot, p *v1.Pod) bool {
		return slices.ContainsFunc(selectors, func(text string) bool { return fitsNone(s, p, text) })
	})
}

// helpsNowhere: there is a state in which the strategy has nothing of any node that takes the pod.
func (c *comparison) helpsNowhere(w went) bool {
	for _, ruled := range c.states {
		if c.somewhen(w.pod, func(s *deschedule.Snapshot, p *v1.Pod) bool {
			return !slices.ContainsFunc(s.Nodes, func(n *v1.Node) bool {
				return n.Name != p.Spec.NodeName && refuses(s, p, n) == "" && c.helps(w.strategy, ruled, s, p, n)
			})
		}) {
			return true
		}
	}
	return false
}

func (c *comparison) somewhen(pod string, is func(*deschedule.Snapshot, *v1.Pod) bool) bool {
	return slices.ContainsFunc(c.states, func(s *deschedule.Snapshot) bool {
		p := find(s, pod)
		return p != nil && is(s, p)
	})
}

// spreadsAgain: in some state a scheduler like this project's model puts the pod's successor into a domain that then has too many, counting
// all pods as a scheduler does, and a strategy of the policy spreads.
func (c *comparison) spreadsAgain(pod string) bool {
	if !c.has(deschedule.TopologySpreadConstraint) {
		return false
	}
	return c.somewhen(pod, func(s *deschedule.Snapshot, p *v1.Pod) bool {
		to := c.place(s, pod)
		made := find(evicted(s, pod, to), pod+"-next")
		return to != "" && made != nil && c.excess(evicted(s, pod, to), made)
	})
}

// has reports whether a strategy is one of the policy's.
func (c *comparison) has(strategy string) bool {
	return slices.ContainsFunc(c.ours.Profiles, func(p deschedule.Profile) bool {
		return slices.Contains(p.Plugins.Balance.Enabled, strategy) || slices.Contains(p.Plugins.Deschedule.Enabled, strategy)
	})
}

// anywhere is one of the nodes that take a pod, or its own unless its selector or required affinity leaves that out.
func anywhere(r *rand.Rand, s *deschedule.Snapshot, pod string) string {
	p := find(s, pod)
	for _, i := range r.Perm(len(s.Nodes)) {
		n := s.Nodes[i]
		if own := n.Name == p.Spec.NodeName && nodeutil.PodMatchNodeSelector(p, n); own || refuses(s, p, n) == "" {
			return n.Name
		}
	}
	return ""
}

// place is where this project's model of a scheduler does.
func (c *comparison) place(s *deschedule.Snapshot, pod string) string {
	packing := model.Emptier
	for i := range c.ours.Profiles {
		if slices.Contains(c.ours.Profiles[i].Plugins.Balance.Enabled, deschedule.HighNodeUtilization) {
			packing = model.Fuller
		}
	}
	cluster := model.New(&s.Objects, nil)
	for _, p := range cluster.Pods() {
		if p.Key() == pod {
			if n := cluster.Place(p, packing, nil); n != nil {
				return n.Name
			}
		}
	}
	return ""
}

// added says which improvement evicts a pod that the descheduler does not. Empty: none.
func (c *comparison) added(i int) string {
	w := c.plan[i]
	if !c.within(i) {
		return ""
	}
	for j := range i + 1 {
		if c.ask("state"+string(rune(j)), unlimited(c.theirs), c.states[j], c.stays)[w] {
			if j == 0 {
				return byOthers
			}
			return byPasses
		}
	}
	if by := c.follows(i); by != "" {
		return by
	}
	if w.strategy == deschedule.TopologySpreadConstraint {
		return c.addedBySpread(i)
	}
	return ""
}

// had is a policy without the resources of thresholds that no node has.
func (c *comparison) had(p *api.DeschedulerPolicy) *api.DeschedulerPolicy {
	out := unlimited(p)
	for i := range out.Profiles {
		for _, config := range out.Profiles[i].PluginConfigs {
			if a, ok := config.Args.(*nodeutilization.LowNodeUtilizationArgs); ok && a.UseDeviationThresholds {
				for name := range a.Thresholds {
					if !slices.ContainsFunc(c.looked(c.s), func(n *v1.Node) bool { _, ok := whole(n, name); return ok }) {
						delete(a.Thresholds, name)
						delete(a.TargetThresholds, name)
					}
				}
			}
		}
	}
	return out
}

// within: at an eviction all limits leave room for it.
func (c *comparison) within(i int) bool {
	node, space := uint(0), uint(0)
	for _, e := range c.result.Evictions[:i] {
		if e.Node == c.result.Evictions[i].Node {
			node++
		}
		if e.Namespace == c.result.Evictions[i].Namespace {
			space++
		}
	}
	room := func(limit *uint, count uint) bool { return limit == nil || count < *limit }
	return room(c.ours.MaxNoOfPodsToEvictTotal, uint(i)) && room(c.ours.MaxNoOfPodsToEvictPerNode, node) &&
		room(c.ours.MaxNoOfPodsToEvictPerNamespace, space)
}

// spread asks the descheduler's spread alone: with the lowest priority first, and with every pod counted.
func (c *comparison) spread(j int) (lowest, counting map[went]bool) {
	policy := only(c.theirs, deschedule.TopologySpreadConstraint)
	lowest = c.ask("lowest"+string(rune(j)), policy, mirrored(c.states[j], c.may), c.stays)
	protected := map[string]bool{}
	for _, p := range c.states[j].Pods {
		if !c.may[origin(keyOf(p))] {
			protected[keyOf(p)] = true
		}
	}
	counting = c.ask("counting"+string(rune(j)), unselected(policy), countable(mirrored(c.states[j], c.may), c.may), union(c.stays, protected))
	return lowest, counting
}

func (c *comparison) keptBySpread(w went) string {
	lowest, counting := c.spread(0)
	end := c.states[len(c.states)-1]
	switch {
	case !lowest[w]:
		return byLowest
	case !counting[w]:
		return byProtected
	case find(end, w.pod) != nil && !c.excess(end, find(end, w.pod)):
		return byNeed
	}
	return ""
}

func (c *comparison) addedBySpread(i int) string {
	for j := range i + 1 {
		lowest, counting := c.spread(j)
		switch {
		case lowest[c.plan[i]]:
			return byLowest
		case counting[c.plan[i]]:
			return byProtected
		}
	}
	if p := find(c.states[i], c.plan[i].pod); c.may[c.plan[i].pod] && c.excess(c.states[i], p) {
		return byNeed
	}
	return ""
}
