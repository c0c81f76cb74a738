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
	nodeutil "sigs.k8s.io/descheduler/pkg/descheduler/node"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/nodeutilization"

	"jettison/cluster/deschedule"
	"jettison/cluster/model"
)

// The improvements that can explain a difference, and two ways in which one follows from another.
const (
	byBudget    = "budgets count in a plan"
	byFit       = "a pod that no other node takes stays"
	byBetter    = "moving a pod has to help"
	byScheduler = "the scheduler would not choose a better node"
	byCircles   = "no pod is evicted in circles"
	byPasses    = "a plan goes on until a pass moves nothing"
	byLowest    = "spread: the lowest priority goes first"
	byProtected = "spread: protected pods count"
	byNeed      = "spread: one at a time, as many as have to"
	byTaints    = "tolerations of taints that keep pods away"
	byOwners    = "several owners count once"
	bySingle    = "a single node has its strategies"
	byResource  = "a resource that no node has stops nothing"
	byAbsent    = "a resource that a node does not have does not count for it"
	byKey       = "a node without the topology key violates no anti-affinity"
	byEnded     = "ended and terminating pods are no replicas, and need no node"
	byOthers    = "follows from those that stay"
	byLimit     = "a limit that others have used up"
)

// documented has the text of docs/operate/descheduling.md for each improvement.
var documented = map[string]string{
	byBudget:    "Budgets count in a plan",
	byFit:       "a scheduler's whole answer",
	byBetter:    "Moving a pod has to help",
	byScheduler: "the scheduler has to choose that node",
	byCircles:   "A pod whose successor would be evicted again stays",
	byPasses:    "until a pass moves nothing",
	byLowest:    "the lowest priority goes first",
	byProtected: "protected pods count",
	byNeed:      "one pod at a time",
	byTaints:    "tolerations of NoSchedule and NoExecute taints only",
	byOwners:    "A pod of several owners counts once",
	bySingle:    "A single ready node",
	byResource:  "a resource that no node has is left out",
	byAbsent:    "A resource that a node does not have does not count",
	byKey:       "A node without the topology key",
	byEnded:     "Ended pods need no other node, and count as no replicas",
}

func TestTheImprovementsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate/descheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	for by, words := range documented {
		if !strings.Contains(string(text), words) {
			t.Errorf("%s: docs/operate/descheduling.md lacks the text %q", by, words)
		}
	}
}

// comparison has one cluster, one policy, and the results of both programs.
type comparison struct {
	testing.TB
	seed   int
	policy *deschedule.Policy // before defaults
	ours   *deschedule.Policy
	theirs *api.DeschedulerPolicy
	s      *deschedule.Snapshot
	result *deschedule.Result
	plan   []went
	cycle  []went          // the evictions of the descheduler
	by     map[went]string // the profile that requested each of them

	states  []*deschedule.Snapshot
	stays   map[string]bool // pods that only the descheduler evicts, for a checked reason
	may     map[string]bool // pods that the descheduler's evictor allows to be evicted
	goes    map[string]bool // pods that a plan evicts
	memory  map[string]map[went]bool
	reasons map[went]string // cached results of kept
	lets    map[let]map[string]bool
	single  bool // the descheduler would process only one node
}

func compare(t testing.TB, seed int, s *deschedule.Snapshot, policy *deschedule.Policy) *comparison {
	t.Helper()
	c := &comparison{TB: t, seed: seed, policy: policy, s: s, stays: map[string]bool{}, memory: map[string]map[went]bool{},
		reasons: map[went]string{}, lets: map[let]map[string]bool{}}
	c.ours, c.theirs = read(t, policy)
	c.single = len(c.looked(s)) == 1
	var err error
	if c.result, err = deschedule.Plan(c.ours, s, now); err != nil {
		t.Fatal(err)
	}
	for _, e := range c.result.Evictions {
		c.plan = append(c.plan, went{e.Namespace + "/" + e.Name, e.Strategy})
	}
	theirs := c.runCycle(c.theirs, s, nil)
	c.cycle, c.by = theirs.out, theirs.by
	return c
}

// upstream returns the evictions of a cycle.
func (c *comparison) upstream(policy *api.DeschedulerPolicy, s *deschedule.Snapshot, refused map[string]bool) []went {
	return c.runCycle(policy, s, refused).out
}

// runCycle returns a cycle after its end. If the descheduler would process only one node, and do
// nothing, it gets a second node that accepts no pod, and only the strategies that are unaffected
// by such a node: those that deschedule.
func (c *comparison) runCycle(policy *api.DeschedulerPolicy, s *deschedule.Snapshot, refused map[string]bool) *cycle {
	if !c.single {
		return upstream(c, policy, s, refused)
	}
	policy = policy.DeepCopy()
	for i := range policy.Profiles {
		policy.Profiles[i].Plugins.Balance.Enabled = nil
	}
	return upstream(c, policy, c.twoNodes(s), refused)
}

// prepare computes data that only differences need.
func (c *comparison) prepare() {
	c.states = states(c.s, c.result.Evictions)
	c.may = c.mayIn(c.s, "")
}

// let identifies a result of mayIn.
type let struct {
	in      *deschedule.Snapshot
	profile string
}

// mayIn returns the pods of a state that the evictor of a profile, or of any if the name is empty,
// allows to be evicted.
func (c *comparison) mayIn(s *deschedule.Snapshot, profile string) map[string]bool {
	key := let{s, profile}
	if c.lets[key] == nil {
		c.lets[key] = evictable(c, ofProfile(c.theirs, profile), c.twoNodes(s))
	}
	return c.lets[key]
}

// twoNodes returns a snapshot with one more cordoned, tainted node if the descheduler would process
// only one.
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

// why returns the plan's reason for keeping a pod.
func (c *comparison) why(pod string) string {
	for _, s := range c.result.Skipped {
		if s.Namespace+"/"+s.Name == pod {
			return s.Reason
		}
	}
	return ""
}

// origin returns the pod of the snapshot that a successor replaces.
func origin(pod string) string {
	for {
		cut, ok := strings.CutSuffix(pod, "-next")
		if !ok {
			return pod
		}
		pod = cut
	}
}

// ask returns the descheduler's evictions in another state or with another policy, cached by id.
func (c *comparison) ask(id string, policy *api.DeschedulerPolicy, s *deschedule.Snapshot, refused map[string]bool) map[went]bool {
	if c.memory[id] == nil {
		c.memory[id] = keys(c.upstream(policy, s, refused))
	}
	return c.memory[id]
}

// kept returns the improvement that keeps a pod which the descheduler evicts, or "".
func (c *comparison) kept(w went) string {
	why := c.why(w.pod)
	switch {
	case c.spent(w.pod):
		return byBudget
	case (why == "" || strings.HasPrefix(why, "maximum number") || c.protectedElsewhere(w)) && c.usedUp(w.pod): // the rest of a node has no reason
		return byLimit
	case w.strategy == deschedule.InterPodAntiAffinity && !c.ask("keyed", unlimited(c.theirs), keyed(c.s), nil)[w]:
		return byKey
	case c.lacksReplicas(w):
		return byEnded
	case drains[w.strategy] && !c.ask("provided", unlimited(c.theirs), provided(c.s), nil)[w]:
		return byAbsent
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
	case byPreference[w.strategy] && c.returns(w):
		return byScheduler
	case c.canCircle(w.pod), c.spreadsAgain(w.pod):
		return byCircles
	case c.notAnyMore(w), c.wentBefore(w):
		return byOthers
	}
	return ""
}

// lacksReplicas reports whether minReplicas of a profile with the strategy keeps a pod if only
// active pods count.
func (c *comparison) lacksReplicas(w went) bool {
	p := find(c.s, w.pod)
	if ended(p) || len(p.OwnerReferences) != 1 {
		return false
	}
	active := c.replicas(p)
	return slices.ContainsFunc(c.ours.Profiles, func(profile deschedule.Profile) bool {
		return slices.Contains(slices.Concat(profile.Plugins.Deschedule.Enabled, profile.Plugins.Balance.Enabled), w.strategy) &&
			slices.ContainsFunc(profile.PluginConfig, func(config deschedule.PluginConfig) bool {
				a, ok := config.Args.(*deschedule.DefaultEvictorArgs)
				return ok && a.MinReplicas > 1 && active < a.MinReplicas
			})
	})
}

// notAnyMore reports whether the descheduler would keep the pod after the evictions that the plan
// makes until the strategy's turn is over, and without those that stay for a checked reason.
func (c *comparison) notAnyMore(w went) bool {
	turn := c.turnOf(w)
	at := c.states[turn]
	return turn+len(c.stays) > 0 && find(at, w.pod) != nil && !keys(c.upstream(unlimited(c.theirs), at, c.stays))[w]
}

// turnOf returns the number of evictions that the first pass of the plan makes until the strategy's
// turn is over.
func (c *comparison) turnOf(w went) (turn int) {
	steps := c.steps()
	of, last := slices.Index(steps, went{c.by[w], w.strategy}), -1
	if of < 0 { // the descheduler keeps the pod: the strategy's last turn
		of = len(steps) - 1
	}
	for i, e := range c.result.Evictions {
		at := slices.Index(steps, went{e.Profile, e.Strategy})
		if at < last {
			break
		}
		if last = at; at <= of {
			turn = i + 1
		}
	}
	return turn
}

// steps returns the profiles and strategies of a pass, in order.
func (c *comparison) steps() (out []went) {
	for _, balance := range []bool{false, true} {
		for _, p := range c.ours.Profiles {
			names := p.Plugins.Deschedule.Enabled
			if balance {
				names = p.Plugins.Balance.Enabled
			}
			for _, name := range names {
				out = append(out, went{p.Name, name})
			}
		}
	}
	return out
}

// wentBefore reports whether an earlier strategy evicts the pod in the plan. The reason is checked
// with that eviction.
func (c *comparison) wentBefore(w went) bool {
	steps := c.steps()
	return slices.ContainsFunc(c.result.Evictions, func(e deschedule.Eviction) bool {
		if e.Namespace+"/"+e.Name != w.pod || e.Strategy == w.strategy {
			return false
		}
		later := steps[slices.Index(steps, went{e.Profile, e.Strategy})+1:]
		return slices.ContainsFunc(later, func(s went) bool { return s.strategy == w.strategy })
	})
}

// covers returns the budgets of a pod.
func (c *comparison) covers(p *v1.Pod) (out []*policyv1.PodDisruptionBudget) {
	for _, b := range c.s.Budgets {
		if b.Namespace == p.Namespace && selectorOf(b.Spec.Selector).Matches(labels.Set(p.Labels)) {
			out = append(out, b)
		}
	}
	return out
}

// spent reports whether the eviction API would reject a pod: it has several budgets, or earlier
// evictions have used its budget.
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

// protectedElsewhere reports whether the evictor of another profile protects a pod: the plan gives
// that reason first, whatever keeps the pod for the profile that evicts it.
func (c *comparison) protectedElsewhere(w went) bool {
	return slices.ContainsFunc(c.ours.Profiles, func(p deschedule.Profile) bool {
		return p.Name != c.by[w] && !c.mayIn(c.s, p.Name)[w.pod]
	})
}

// usedUp reports whether a limit keeps a pod, used up by evictions that the descheduler does not
// make.
func (c *comparison) usedUp(pod string) bool {
	return c.reached(find(c.s, pod)) && !slices.Equal(c.plan, c.cycle)
}

// reached reports whether the plan reaches a limit that counts for a pod.
func (c *comparison) reached(p *v1.Pod) bool {
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
	return reached(c.ours.MaxNoOfPodsToEvictTotal, total) || reached(c.ours.MaxNoOfPodsToEvictPerNode, node) ||
		reached(c.ours.MaxNoOfPodsToEvictPerNamespace, space)
}

// fitsNowhere reports whether, in some state of the plan, no other node accepts the pod: of all
// nodes, or of those that nodeFit may use. An ended pod needs none.
func (c *comparison) fitsNowhere(w went) bool {
	if ended(find(c.s, w.pod)) {
		return false
	}
	selectors := c.fitSelectors()
	if hasToHelp[w.strategy] {
		selectors = append(selectors, "")
	}
	return c.somewhen(w.pod, func(s *deschedule.Snapshot, p *v1.Pod) bool {
		return slices.ContainsFunc(selectors, func(text string) bool { return fitsNone(s, p, text) })
	})
}

// helpsNowhere reports whether, in some state, no node that accepts the pod would bring the
// strategy nearer to its goal.
func (c *comparison) helpsNowhere(w went) bool {
	for _, ruled := range c.states {
		if c.somewhen(w.pod, func(s *deschedule.Snapshot, p *v1.Pod) bool {
			return !slices.ContainsFunc(s.Nodes, func(n *v1.Node) bool {
				return n.Name != p.Spec.NodeName && refuses(s, p, n) == "" && c.helps(w, ruled, s, p, n)
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

// spreadsAgain reports whether, in some state, a scheduler like this project's model puts the pod's
// successor into a domain that then has too many pods, counted as a scheduler counts, and a
// strategy of the policy spreads.
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

// has reports whether the policy has a strategy.
func (c *comparison) has(strategy string) bool {
	return slices.ContainsFunc(c.ours.Profiles, func(p deschedule.Profile) bool {
		return slices.Contains(p.Plugins.Balance.Enabled, strategy) || slices.Contains(p.Plugins.Deschedule.Enabled, strategy)
	})
}

// anywhere returns one of the nodes that accept a pod, or its own node unless its selector or
// required affinity excludes that.
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

// place returns the node that this project's model of a scheduler chooses.
func (c *comparison) place(s *deschedule.Snapshot, pod string) string {
	cluster := model.New(&s.Objects, nil)
	for _, p := range cluster.Pods() {
		if p.Key() == pod {
			if n := cluster.Place(p, c.scheduler()); n != nil {
				return n.Name
			}
		}
	}
	return ""
}

// scheduler returns the profile of the scheduler that the policy describes.
func (c *comparison) scheduler() *model.SchedulerProfile {
	out := model.DefaultProfile()
	if len(c.ours.SchedulerProfiles) > 0 {
		out.Packing = model.MostAllocated
	}
	return out
}

// returns reports whether, in some state, a scheduler would put the pod's replacement where it does
// not help.
func (c *comparison) returns(w went) bool {
	return slices.ContainsFunc(c.states, func(ruled *deschedule.Snapshot) bool {
		return c.somewhen(w.pod, func(s *deschedule.Snapshot, _ *v1.Pod) bool { return c.returnsIn(ruled, s, w) })
	})
}

// returnsIn reports whether one of the top-scored nodes for a pod's replacement is its own node, or
// none of them helps the strategy.
func (c *comparison) returnsIn(ruled, s *deschedule.Snapshot, w went) bool {
	p := find(s, w.pod)
	return slices.ContainsFunc(c.tops(s, w.pod), func(top []*model.Node) bool {
		own := slices.ContainsFunc(top, func(n *model.Node) bool { return n.Name == p.Spec.NodeName })
		return own || len(top) > 0 && !slices.ContainsFunc(top, func(n *model.Node) bool { return c.helps(w, ruled, s, p, n.Node) })
	})
}

// tops returns the top-scored nodes for a pod's replacement: while the pod is being deleted, and once
// it is gone. e2e/oracle compares the scores with the scheduler's.
func (c *comparison) tops(s *deschedule.Snapshot, pod string) (out [][]*model.Node) {
	cluster := model.New(&s.Objects, nil)
	pods := cluster.Pods()
	p := pods[slices.IndexFunc(pods, func(other *model.Pod) bool { return other.Key() == pod })]
	gone := cluster.FitCheck(p)
	for _, check := range []*model.FitCheck{gone.Successor(), gone} {
		out = append(out, slices.Clone(check.TopNodes(c.scheduler())))
	}
	return out
}

// added returns the improvement that evicts a pod which the descheduler keeps, or "".
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
	if ended(find(c.s, w.pod)) {
		others := maps.Clone(c.stays) // another strategy keeps it
		delete(others, w.pod)
		if c.ask("unfitted "+w.pod, unfitted(c.theirs), c.s, others)[w] {
			return byEnded
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

// had returns a policy without the thresholds' resources that no node has.
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

// within reports whether all limits allow an eviction.
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

// spread returns the evictions of the descheduler's spread alone: with the lowest priority first,
// and with every pod counted.
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
