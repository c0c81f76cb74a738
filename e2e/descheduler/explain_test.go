package descheduler

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/descheduler/pkg/api"
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

// documented is what docs/descheduling.md says of each improvement.
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
	text, err := os.ReadFile("../../docs/descheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	for by, words := range documented {
		if !strings.Contains(string(text), words) {
			t.Errorf("%s: docs/descheduling.md does not say %q", by, words)
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

	states []*deschedule.Snapshot
	stays  map[string]bool // pods that the descheduler evicts and a plan does not, for a reason that was checked
	may    map[string]bool // pods that the evictor lets go, by what the descheduler itself says
	memory map[string]map[went]bool
}

func compare(t testing.TB, seed int, s *deschedule.Snapshot, policy *deschedule.Policy) *comparison {
	t.Helper()
	c := &comparison{TB: t, seed: seed, s: s, stays: map[string]bool{}, may: map[string]bool{}, memory: map[string]map[went]bool{}}
	c.ours, c.theirs = read(t, policy)
	var err error
	if c.result, err = deschedule.Plan(c.ours, s, now); err != nil {
		t.Fatal(err)
	}
	for _, e := range c.result.Evictions {
		c.plan = append(c.plan, went{e.Namespace + "/" + e.Name, e.Strategy})
	}
	c.cycle = upstream(t, c.theirs, s, nil)
	return c
}

// prepare is for what only a difference asks.
func (c *comparison) prepare() {
	c.states = states(c.s, c.result.Evictions)
	for _, w := range upstream(c, everybody(c.theirs), c.twoNodes(), nil) {
		c.may[w.pod] = true
	}
}

// twoNodes is the snapshot with a cordoned, tainted node more where the descheduler would look at one only.
func (c *comparison) twoNodes() *deschedule.Snapshot {
	if len(c.looked(c.s)) != 1 {
		return c.s
	}
	out := *c.s
	n := c.looked(c.s)[0].DeepCopy()
	n.Name, n.Spec.Unschedulable = "zz", true
	n.Spec.Taints = []v1.Taint{{Key: "nobody", Effect: v1.TaintEffectNoSchedule}}
	out.Nodes = append(slices.Clone(c.s.Nodes), n)
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
		c.memory[id] = keys(upstream(c, policy, s, refused))
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
	case c.fitsNowhere(w.pod):
		return byFit
	case c.helpsNowhere(w):
		return byBetter
	case c.canCircle(w.pod), c.spreadsAgain(w.pod):
		return byCircles
	case c.notAnyMore(w):
		return byOthers
	}
	return ""
}

// notAnyMore: in every state after some other eviction of the plan the descheduler would leave the pod alone.
func (c *comparison) notAnyMore(w went) bool {
	if len(c.states) == 1 {
		return false
	}
	end := len(c.states) - 1
	return !keys(upstream(c, unlimited(c.theirs), c.states[end], c.stays))[w]
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
func (c *comparison) fitsNowhere(pod string) bool {
	selectors := []string{""}
	for i := range c.ours.Profiles {
		for _, config := range c.ours.Profiles[i].PluginConfig {
			if a, ok := config.Args.(*deschedule.DefaultEvictorArgs); ok && a.NodeFit {
				selectors = append(selectors, a.NodeSelector)
			}
		}
	}
	return c.somewhen(pod, func(s *deschedule.Snapshot, p *v1.Pod) bool {
		return slices.ContainsFunc(selectors, func(text string) bool {
			selector, err := labels.Parse(text)
			return err == nil && !slices.ContainsFunc(s.Nodes, func(n *v1.Node) bool {
				return n.Name != p.Spec.NodeName && selector.Matches(labels.Set(n.Labels)) && refuses(s, p, n) == ""
			})
		})
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

// placing is where a scheduler puts a pod's successor; empty: nowhere.
type placing = func(s *deschedule.Snapshot, pod string) string

// canCircle: cycle after cycle of the descheduler, with what a scheduler may make of each, evicts a pod and then its successor. The
// scheduler may be like this project's model, or put pods on any nodes that take them.
func (c *comparison) canCircle(pod string) bool {
	end := c.states[len(c.states)-1]
	r := rand.New(rand.NewPCG(uint64(c.seed), 7))
	for try := range 40 {
		place := c.place
		if try > 0 {
			place = func(s *deschedule.Snapshot, pod string) string { return anywhere(r, s, pod) }
		}
		if c.circles(pod, c.s, nil, place) || c.circles(pod, c.s, c.stays, place) || c.circles(pod, end, c.stays, place) {
			return true
		}
	}
	return false
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

func (c *comparison) circles(pod string, s *deschedule.Snapshot, stays map[string]bool, place placing) bool {
	refused := maps.Clone(stays)
	delete(refused, pod)
	times := 0
	for range 6 {
		cycle := upstream(c, unlimited(c.theirs), s, refused)
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

// anywhere is one of the nodes that take a pod.
func anywhere(r *rand.Rand, s *deschedule.Snapshot, pod string) string {
	p := find(s, pod)
	for _, i := range r.Perm(len(s.Nodes)) {
		if n := s.Nodes[i]; n.Name == p.Spec.NodeName || refuses(s, p, n) == "" {
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
	if len(c.looked(c.s)) == 1 && !balances[w.strategy] {
		if c.ask("two", unlimited(c.theirs), c.twoNodes(), nil)[w] {
			return bySingle
		}
	}
	if c.stays[w.pod] { // it stays as far as another strategy goes
		stays := maps.Clone(c.stays)
		delete(stays, w.pod)
		for j := range i + 1 {
			if keys(upstream(c, only(c.theirs, w.strategy), c.states[j], stays))[w] {
				return byOthers
			}
		}
	}
	for j := range i + 1 {
		if c.ask("state"+string(rune(j)), unlimited(c.theirs), c.states[j], c.stays)[w] {
			if j == 0 {
				return byOthers
			}
			return byPasses
		}
	}
	for j := range i + 1 {
		// What has got over the resource has the taints before it: such a one is of both, and counts as one of the first.
		if w.strategy == deschedule.LowNodeUtilization && (c.ask("had"+string(rune(j)), c.had(), c.states[j], c.stays)[w] ||
			c.ask("had, tolerant"+string(rune(j)), c.had(), tolerant(c.states[j]), c.stays)[w]) {
			return byResource
		}
		if c.ask("tolerant"+string(rune(j)), unlimited(c.theirs), tolerant(c.states[j]), c.stays)[w] &&
			(w.strategy == deschedule.LowNodeUtilization || w.strategy == deschedule.HighNodeUtilization) {
			return byTaints
		}
	}
	if w.strategy == deschedule.TopologySpreadConstraint {
		return c.addedBySpread(i)
	}
	return ""
}

// had is the policy without the resources of thresholds that no node has.
func (c *comparison) had() *api.DeschedulerPolicy {
	out := unlimited(c.theirs)
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
