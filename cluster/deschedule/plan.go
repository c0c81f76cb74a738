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

// planner is the state of one plan.
type planner struct {
	policy  *Policy
	now     time.Time
	input   *Snapshot
	cluster *model.Cluster
	budgets *model.Budgets
	nodes   []*model.Node // those that are looked at, by name
	looked  map[*model.Node]bool
	runs    []*run

	total        uint
	perNode      map[string]uint
	perNamespace map[string]uint
	perOwner     map[owner]time.Time // the last eviction of one of its pods
	// pods by owner, those of the plan included; nil: no evictor asks for them
	replicas map[owner]uint
	// a limit or a pause has kept a pod: there may be more to do later
	capped bool

	before map[string]Load // of what the plan begins with

	use     *use                     // real use; nil: there are no figures
	queried map[string]*use          // the answers to queries
	ended   map[*run]map[string]uint // evictions of a run by node

	evictions []Eviction
	skipped   map[*model.Pod]string
	stopped   []Stop
	// pods that are not evicted because that would go on for ever, with the strategy that would go on
	kept  map[string]string
	again bool // one was added to kept: the plan is made anew

	rewinder

	// pods that were made in the plan, with those of the snapshot that they stand for
	successors map[string]string

	watch Watch // nil: nobody wants to know
}

// run is one strategy of one profile in a plan.
type run struct {
	*planner
	profile  *Profile
	evictor  *evictor
	strategy string
	args     any
	packing  model.Packing
}

// Bounds of the work: how many plans in a row are looked ahead, and how often one is made anew in
// all. Each time at least one pod more is kept.
const (
	lookAhead = 8
	mostPlans = 200
)

// Watch is called when a strategy of a profile begins, and what it returns when that ends, so that
// whoever has a clock can tell how long strategies take. There are as many times of each as there
// are passes.
type Watch func(profile, strategy string) (end func())

// Plan finds the evictions that a policy asks for. The policy has been completed. An error is one
// of policy and snapshot together: a priority class that is not there.
func Plan(policy *Policy, s *Snapshot, now time.Time) (*Result, error) {
	return Watched(policy, s, now, nil)
}

// Watched is Plan for somebody who wants to know when strategies begin and end.
func Watched(policy *Policy, s *Snapshot, now time.Time, watch Watch) (*Result, error) {
	p, err := settle(policy, s, now, nil, lookAhead,
		&work{watch: watch, templates: model.NewTemplates()})
	if err != nil {
		return nil, err
	}
	return p.result(), nil
}

// work is what the plans that one is settled from have in common.
type work struct {
	plans     int // that were made
	watch     Watch
	templates *model.Templates
	anew      bool // each is made from its beginning, as a test of rewind asks for
}

// settle makes plans until one is stable: planning again on what it leads to gives nothing. What
// would evict a successor keeps the pod that it is of, and the plan is made anew; what else there
// is to do by then is added to the plan. after is the plan whose evictions were before and count
// against limits, too; nil: there is none.
func settle(policy *Policy, s *Snapshot, now time.Time, after *planner, ahead int,
	w *work) (*planner, error) {
	kept := map[string]string{}
	var p *planner
	for {
		if p == nil || w.anew || !p.rewind() {
			var err error
			if p, err = newPlanner(policy, s, now, kept, w.templates); err != nil {
				return nil, err
			}
			p.watch = w.watch
			p.follow(after)
		}
		p.passes()
		if w.plans++; w.plans >= mostPlans {
			return p, nil
		}
		if p.again {
			continue
		}
		if ahead == 0 || len(p.evictions) == 0 || p.capped {
			return p, nil
		}
		next, err := settle(policy, p.leads(), now, p, ahead-1, w)
		if err != nil {
			return nil, err
		}
		if !p.undone(next) {
			p.add(next)
			return p, nil
		}
	}
}

// undone reports whether a later plan evicts successors of this one, and keeps the pods that they
// are of.
func (p *planner) undone(next *planner) (undone bool) {
	for i := range next.evictions {
		e := &next.evictions[i]
		if of, ok := p.successors[e.Namespace+"/"+e.Name]; ok {
			p.keep(of, e.Strategy)
			undone = true
		}
	}
	return undone
}

// add adds a later plan, made on what this one leads to.
func (p *planner) add(next *planner) {
	if len(next.evictions) == 0 {
		return
	}
	known := make(map[string]bool, len(p.skipped))
	for pod := range p.skipped {
		known[pod.Key()] = true
	}
	for pod, why := range next.skipped {
		if key := pod.Key(); !known[key] && p.successors[key] == "" {
			p.skipped[pod] = why
		}
	}
	for _, s := range next.stopped {
		if s.Reason == limitTotal && !slices.Contains(p.stopped, s) {
			p.stopped = append(p.stopped, s)
		}
	}
	p.evictions = append(p.evictions, next.evictions...)
	maps.Copy(p.successors, next.successors)
	p.cluster, p.budgets, p.use = next.cluster, next.budgets, next.use
	p.capped = p.capped || next.capped
}

// follow has the evictions of the plan that this one is made after count against limits and pauses.
func (p *planner) follow(after *planner) {
	if after == nil {
		return
	}
	p.total, p.perNode, p.perNamespace = after.total, maps.Clone(after.perNode),
		maps.Clone(after.perNamespace)
	p.perOwner = maps.Clone(after.perOwner)
	for i, r := range p.runs {
		p.ended[r] = maps.Clone(after.ended[after.runs[i]])
	}
}

func newPlanner(policy *Policy, s *Snapshot, now time.Time, kept map[string]string,
	templates *model.Templates) (*planner, error) {
	p := &planner{
		policy: policy, now: now, input: s, cluster: model.New(&s.Objects, templates),
		perNode: map[string]uint{}, perNamespace: map[string]uint{}, perOwner: map[owner]time.Time{},
		skipped: map[*model.Pod]string{}, kept: kept, successors: map[string]string{},
		rewinder: rewinder{wished: map[string]int{}},
		looked:   map[*model.Node]bool{}, ended: map[*run]map[string]uint{},
	}
	p.budgets = model.NewBudgets(p.cluster, s.Budgets)
	p.use, p.queried = newUse(s), answers(s)
	for _, e := range s.Evicted {
		if of := (owner{e.Namespace, e.Owner}); e.At.After(p.perOwner[of]) {
			p.perOwner[of] = e.At
		}
	}
	p.pending()
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
			p.looked[n] = true
		}
	}
	if err := p.build(); err != nil {
		return nil, err
	}
	p.before = loads(p.cluster, p.named())
	return p, nil
}

// pending counts evictions that were asked for and go on in the background against the limits.
func (p *planner) pending() {
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

// build makes the runs: what every profile deschedules, then what every one balances, as 0.36.0 has
// it.
func (p *planner) build() error {
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

// passes goes over the strategies until a pass moves nothing. A pod that has gone may have made
// room for another.
func (p *planner) passes() {
	for _, r := range p.runs {
		r.protect()
	}
	for {
		before, from := len(p.evictions), 0
		if m := p.resumed; m != nil {
			before, from, p.resumed = m.pass, m.run, nil
		}
		for i := from; i < len(p.runs); i++ {
			p.mark(before, i)
			p.runs[i].once()
		}
		if len(p.evictions) == before || p.again {
			return
		}
	}
}

// once goes over one strategy.
func (r *run) once() {
	if r.watch != nil {
		defer r.watch(r.profile.Name, r.strategy)()
	}
	switch known := plugins[r.strategy]; {
	case len(r.nodes) == 0:
		r.stop("there is no ready node that the policy's nodeSelector selects")
	case known.points&balancePoint != 0 && len(r.nodes) < 2:
		r.stop("one ready node: there is no other to balance with")
	case !r.full(r):
		known.run(r, r.args)
	}
}

// full reports whether no more pods may be evicted at all.
func (p *planner) full(r *run) bool {
	if most := p.policy.MaxNoOfPodsToEvictTotal; most == nil || p.total < *most || *most == 0 {
		return false
	}
	return slices.ContainsFunc(p.stopped, func(s Stop) bool {
		return s.Strategy == r.strategy && s.Reason == limitTotal
	})
}

// stop notes why a strategy ended.
func (r *run) stop(format string, args ...any) {
	s := Stop{r.strategy, fmt.Sprintf(format, args...)}
	if !slices.Contains(r.stopped, s) {
		r.planner.stopped = append(r.planner.stopped, s)
	}
}

// result of a plan.
func (p *planner) result() *Result {
	out := &Result{Evictions: p.evictions, Stopped: p.settled(), Leads: p.leads()}
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
	out.Before, out.After = p.before, loads(p.cluster, p.named())
	return out
}

// settled are the reasons for which strategies ended, without those of passes after one that moved
// pods: they had done their work.
func (p *planner) settled() (out []Stop) {
	moved := map[string]bool{}
	for _, e := range p.evictions {
		moved[e.Strategy] = true
	}
	for _, s := range p.stopped {
		if s.Reason == limitTotal || !moved[s.Strategy] {
			out = append(out, s)
		}
	}
	return out
}

// named are the resources that thresholds of the policy name, and the usual ones.
func (p *planner) named() []v1.ResourceName {
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

// loads of nodes, to a hundredth of a percent: of the resources that are named, and of all that
// pods there request. What a node does not say that it has it has no percentage of.
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

// leads is the snapshot that the plan leads to.
func (p *planner) leads() *Snapshot {
	out := *p.input
	out.Pods = nil
	for _, pod := range p.cluster.Pods() {
		out.Pods = append(out.Pods, pod.Pod)
	}
	out.Budgets = p.budgets.Left()
	if p.use != nil {
		out.NodeUse, out.PodUse = p.use.leads()
	}
	return &out
}
