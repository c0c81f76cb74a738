package deschedule

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"jettison/cluster/model"
)

// planner holds the state of one plan.
type planner struct {
	policy   *Policy
	now      time.Time
	input    *Snapshot
	cluster  *model.Cluster
	budgets  *model.Budgets
	nodes    []*model.Node // ready nodes that the policy's nodeSelector selects, by name
	selected map[*model.Node]bool
	runs     []*run

	total        uint
	perNode      map[string]uint
	perNamespace map[string]uint
	// time of the last eviction of a pod of the owner
	perOwner map[owner]time.Time
	replicas map[owner]uint // active pods per owner; nil: no evictor needs these numbers
	// a limit or a pause kept a pod: a later plan may evict more
	capped bool

	loadBefore map[string]Load // load of the nodes before any eviction

	usage        *usage                   // measured usage; nil: none available
	queryUsage   map[string]*usage        // answers to Prometheus queries, by query
	evictedByRun map[*run]map[string]uint // evictions of a run, by node

	evictions []Eviction
	skipped   map[*model.Pod]string
	stops     []Stop
	// pods whose eviction would repeat endlessly, with the strategy that would evict the
	// replacement
	pinned map[string]string
	replan bool // a pod was added to pinned: the plan must be made again

	rewinder
	schedulers schedulers
	moves      moves

	// replacement pods made in the plan, with the original pod in the snapshot
	replacements map[string]string

	timer StrategyTimer // nil: strategies are not timed
}

// run is one strategy of one profile in a plan.
type run struct {
	*planner
	profile  *Profile
	evictor  *evictor
	strategy string
	args     any
}

// Bounds of the work: maxDepth is the number of follow-up plans that are computed in a row,
// maxPlans the total number of plans. Each time a plan is made again, at least one more pod is
// pinned.
const (
	maxDepth = 8
	maxPlans = 200
)

// StrategyTimer is called when a strategy of a profile starts. The function that it returns is
// called when the strategy ends. Both are called once in each pass.
type StrategyTimer func(profile, strategy string) (end func())

// Plan returns the evictions that a completed policy requires. It fails if the snapshot lacks the
// PriorityClass that priorityThreshold names, or if the value of that class is too high.
func Plan(policy *Policy, s *Snapshot, now time.Time) (*Result, error) {
	return PlanTimed(policy, s, now, nil)
}

// PlanTimed is Plan with a timer for the strategies.
func PlanTimed(policy *Policy, s *Snapshot, now time.Time, timer StrategyTimer) (*Result, error) {
	p, err := planUntilStable(policy, s, now, nil, maxDepth,
		&search{timer: timer, templates: model.NewTemplates()})
	if err != nil {
		return nil, err
	}
	return p.result(), nil
}

// search is the state shared by all plans that planUntilStable makes.
type search struct {
	plans     int // number of plans made
	timer     StrategyTimer
	templates *model.Templates
	noRewind  bool // start every plan from scratch, for the test of rewind
}

// planUntilStable makes plans until one is stable: planning again on the resulting snapshot
// evicts nothing.
//
// If the follow-up plan evicts a replacement, the original pod is pinned and the plan is made
// again. Other evictions of the follow-up plan are appended. The evictions of previous count
// against limits, too; nil: there is no previous plan.
func planUntilStable(policy *Policy, s *Snapshot, now time.Time, previous *planner, depth int,
	w *search) (*planner, error) {
	pinned := map[string]string{}
	var p *planner
	for {
		if p == nil || w.noRewind || !p.rewind() {
			var err error
			if p, err = newPlanner(policy, s, now, pinned, w.templates); err != nil {
				return nil, err
			}
			p.timer = w.timer
			p.continueFrom(previous)
		}
		p.runPasses()
		if w.plans++; w.plans >= maxPlans {
			return p, nil
		}
		if p.replan {
			continue
		}
		if depth == 0 || len(p.evictions) == 0 || p.capped {
			return p, nil
		}
		next, err := planUntilStable(policy, p.resultingSnapshot(), now, p, depth-1, w)
		if err != nil {
			return nil, err
		}
		if !p.evictsReplacements(next) {
			p.extend(next)
			return p, nil
		}
	}
}

// evictsReplacements reports whether a follow-up plan evicts replacements made in this plan, and
// pins their original pods.
func (p *planner) evictsReplacements(next *planner) (undone bool) {
	for i := range next.evictions {
		e := &next.evictions[i]
		if original, ok := p.replacements[e.Namespace+"/"+e.Name]; ok {
			p.pin(original, e.Strategy)
			undone = true
		}
	}
	return undone
}

// extend appends the follow-up plan next, which was made on the resulting snapshot of p.
func (p *planner) extend(next *planner) {
	known := make(map[string]bool, len(p.skipped))
	for pod := range p.skipped {
		known[pod.Key()] = true
	}
	for pod, why := range next.skipped {
		if key := pod.Key(); !known[key] && p.replacements[key] == "" {
			p.skipped[pod] = why
		}
	}
	for _, s := range next.stops {
		if (s.early || s.Continued) && !slices.Contains(p.stops, s) {
			p.stops = append(p.stops, s)
		}
	}
	p.evictions = append(p.evictions, next.evictions...)
	maps.Copy(p.replacements, next.replacements)
	p.cluster, p.budgets, p.usage = next.cluster, next.budgets, next.usage
}

// continueFrom counts the evictions of the previous plan against limits and pauses.
func (p *planner) continueFrom(previous *planner) {
	if previous == nil {
		return
	}
	p.total, p.perNode, p.perNamespace = previous.total, maps.Clone(previous.perNode),
		maps.Clone(previous.perNamespace)
	p.perOwner = maps.Clone(previous.perOwner)
	for i, r := range p.runs {
		p.evictedByRun[r] = maps.Clone(previous.evictedByRun[previous.runs[i]])
	}
}

func newPlanner(policy *Policy, s *Snapshot, now time.Time, pinned map[string]string,
	templates *model.Templates) (*planner, error) {
	p := &planner{
		policy: policy, now: now, input: s, cluster: model.New(&s.Objects, templates),
		perNode: map[string]uint{}, perNamespace: map[string]uint{}, perOwner: map[owner]time.Time{},
		skipped: map[*model.Pod]string{}, pinned: pinned, replacements: map[string]string{},
		rewinder: rewinder{firstProposed: map[string]int{}},
		selected: map[*model.Node]bool{}, evictedByRun: map[*run]map[string]uint{},
	}
	p.schedulers, p.moves = policy.schedulers(), newMoves(s, p.cluster)
	p.budgets = model.NewBudgets(p.cluster, s.Budgets)
	p.usage, p.queryUsage = newUsage(s), queryUsageOf(s)
	for _, e := range s.Evicted {
		if key := (owner{e.Namespace, e.Owner}); e.At.After(p.perOwner[key]) {
			p.perOwner[key] = e.At
		}
	}
	p.countPending()
	selector := labels.Everything()
	if policy.NodeSelector != nil {
		var err error
		if selector, err = labels.Parse(*policy.NodeSelector); err != nil {
			return nil, fmt.Errorf("nodeSelector: %w", err)
		}
	}
	for _, n := range p.cluster.Nodes {
		if n.Ready() && selector.Matches(labels.Set(n.Labels)) {
			p.nodes = append(p.nodes, n)
			p.selected[n] = true
		}
	}
	if err := p.buildRuns(); err != nil {
		return nil, err
	}
	p.loadBefore = loads(p.cluster, p.reportedResources())
	return p, nil
}

// countPending counts requested evictions that are still in progress in the background against
// the limits.
func (p *planner) countPending() {
	if len(p.input.Pending) == 0 {
		return
	}
	for _, pod := range p.cluster.Pods() {
		if p.input.Pending[pod.UID] && pod.Node != nil {
			p.total++
			p.perNode[pod.Node.Name]++
			p.perNamespace[pod.Namespace]++
		}
	}
}

// buildRuns creates the runs: the deschedule plugins of all profiles, then the balance plugins,
// in the order of 0.36.0.
func (p *planner) buildRuns() error {
	evictors := map[int]*evictor{}
	for i := range p.policy.Profiles {
		e, err := newEvictor(p, &p.policy.Profiles[i])
		if err != nil {
			return fmt.Errorf("profile %q: %w", p.policy.Profiles[i].Name, err)
		}
		evictors[i] = e
	}
	for _, balance := range []bool{false, true} {
		for i := range p.policy.Profiles {
			profile := &p.policy.Profiles[i]
			names := profile.Plugins.Deschedule.Enabled
			if balance {
				names = profile.Plugins.Balance.Enabled
			}
			for _, name := range names {
				p.runs = append(p.runs, &run{planner: p, profile: profile, evictor: evictors[i], strategy: name,
					args: profile.args(name)})
			}
		}
	}
	return nil
}

// runPasses runs all strategies in passes until a pass evicts nothing. An eviction may free
// capacity that another pod needs.
func (p *planner) runPasses() {
	for _, r := range p.runs {
		r.recordProtected()
	}
	for {
		before, from := len(p.evictions), 0
		if m := p.resume; m != nil {
			before, from, p.resume = m.pass, m.run, nil
		}
		for i := from; i < len(p.runs); i++ {
			p.addMark(before, i)
			p.runs[i].runOnce()
		}
		if len(p.evictions) == before || p.replan {
			return
		}
	}
}

// runOnce runs the strategy once.
func (r *run) runOnce() {
	if r.timer != nil {
		defer r.timer(r.profile.Name, r.strategy)()
	}
	switch known := plugins[r.strategy]; {
	case len(r.nodes) == 0:
		r.stop("no ready node matches nodeSelector of the policy")
	case known.points&balancePoint != 0 && len(r.nodes) < 2:
		r.stop("only one ready node: no other node to balance with")
	case !r.totalReached():
		known.run(r, r.args)
	}
}

// totalReached reports whether the strategy has already ended at the total limit.
func (r *run) totalReached() bool {
	return slices.ContainsFunc(r.stops, func(s Stop) bool {
		return s.Strategy == r.strategy && s.Reason == limitTotal
	})
}

// stop records that the strategy has nothing to do, and why.
func (r *run) stop(format string, args ...any) {
	r.addStop(Stop{Strategy: r.strategy, Reason: fmt.Sprintf(format, args...)})
}

// stopEarly records why the strategy ended although it had more to do.
func (r *run) stopEarly(format string, args ...any) {
	r.addStop(Stop{Strategy: r.strategy, Reason: fmt.Sprintf(format, args...), early: true})
}

// leaveOut records which nodes the strategy left out, and why.
func (r *run) leaveOut(format string, args ...any) {
	r.addStop(Stop{Strategy: r.strategy, Reason: fmt.Sprintf(format, args...), Continued: true})
}

func (r *run) addStop(s Stop) {
	if !slices.Contains(r.stops, s) {
		r.planner.stops = append(r.planner.stops, s)
	}
}

// result returns the Result of the plan.
func (p *planner) result() *Result {
	out := &Result{Evictions: p.evictions, Stopped: p.reportedStops(),
		Warnings: p.schedulers.unknown(p.input.Pods), ResultingSnapshot: p.resultingSnapshot()}
	skipped := map[string]string{}
	for pod, why := range p.skipped {
		skipped[pod.Key()] = why
	}
	for i := range p.evictions {
		delete(skipped, p.evictions[i].Namespace+"/"+p.evictions[i].Name)
	}
	for key, why := range skipped {
		namespace, name, _ := strings.Cut(key, "/")
		out.Skipped = append(out.Skipped, Skip{namespace, name, why})
	}
	slices.SortFunc(out.Skipped, func(a, b Skip) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	out.Before, out.After = p.loadBefore, loads(p.cluster, p.reportedResources())
	return out
}

// reportedStops returns the reasons for which strategies ended or left nodes out. A strategy that
// evicted pods ends with nothing to do in a later pass: that is no reason.
func (p *planner) reportedStops() (out []Stop) {
	moved := map[string]bool{}
	for _, e := range p.evictions {
		moved[e.Strategy] = true
	}
	for _, s := range p.stops {
		if s.early || s.Continued || !moved[s.Strategy] {
			out = append(out, s)
		}
	}
	return out
}

// reportedResources returns the resources named by thresholds of the policy, plus cpu, memory and
// pods.
func (p *planner) reportedResources() []v1.ResourceName {
	names := map[v1.ResourceName]bool{v1.ResourceCPU: true, v1.ResourceMemory: true,
		v1.ResourcePods: true}
	for _, r := range p.runs {
		switch a := r.args.(type) {
		case *LowNodeUtilizationArgs:
			for name := range a.Thresholds {
				names[name] = true
			}
		case *HighNodeUtilizationArgs:
			for name := range a.Thresholds {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// loads returns the load of each node in percent, rounded to a hundredth. It covers the named
// resources and all that pods on the node request. A resource without an allocatable amount has
// no percentage.
func loads(c *model.Cluster, named []v1.ResourceName) map[string]Load {
	out := make(map[string]Load, len(c.Nodes))
	for _, n := range c.Nodes {
		load := Load{}
		for _, name := range append(n.Resources(), named...) {
			if whole, ok := n.Allocatable(name); ok {
				load[name] = math.Round(model.Percent(n.Requested(name), whole)*100) / 100
			}
		}
		out[n.Name] = load
	}
	return out
}

// resultingSnapshot returns the cluster as the plan leaves it.
func (p *planner) resultingSnapshot() *Snapshot {
	out := *p.input
	out.Pods = nil
	for _, pod := range p.cluster.Pods() {
		out.Pods = append(out.Pods, pod.Pod)
	}
	out.Budgets = p.budgets.Remaining()
	if p.usage != nil {
		out.NodeUsage, out.PodUsage = p.usage.lists()
	}
	return &out
}
