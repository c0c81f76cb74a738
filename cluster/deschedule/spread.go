package deschedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// topologySpread evicts pods whose own constraint is violated: first for all hard constraints of a
// namespace together, then for each soft one. Protected pods count, too.
func topologySpread(r *run, args any) {
	a := args.(*SpreadArgs)
	s := &spreadRun{run: r, selects: a.filter(), nodesAtLimit: map[*model.Node]bool{},
		onlyIfBetter: *a.TopologyBalanceNodeFit}
	all := s.constraintsIn(a)
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		groups := [][]*model.Constraint{nil} // the first has all hard constraints
		for _, k := range all[namespace] {
			if k.Hard {
				groups[0] = append(groups[0], k)
			} else {
				groups = append(groups, []*model.Constraint{k})
			}
		}
		for _, group := range groups {
			if s.balance(namespace, group) == totalLimitReached {
				return
			}
		}
	}
}

func (a *SpreadArgs) covers(k *model.Constraint) bool {
	want := v1.ScheduleAnyway
	if k.Hard {
		want = v1.DoNotSchedule
	}
	return slices.Contains(a.Constraints, want)
}

// spreadRun balances constraints.
type spreadRun struct {
	*run
	selects      func(*model.Pod) bool
	nodesAtLimit map[*model.Node]bool // nodes that reached their eviction limit
	onlyIfBetter bool                 // evict only if the replacement improves the spread
}

// constraintsIn returns the distinct constraints that the strategy covers, by namespace.
func (s *spreadRun) constraintsIn(a *SpreadArgs) map[string][]*model.Constraint {
	out := map[string][]*model.Constraint{}
	seen, read := map[string]bool{}, map[*model.Constraint]bool{}
	for _, n := range s.nodes {
		for _, p := range n.Pods {
			// the cheapest check first
			if len(p.Constraints()) == 0 || p.Ended || !s.selects(p) {
				continue
			}
			for _, k := range p.Constraints() {
				if read[k] {
					continue // shared with another pod of the owner
				}
				read[k] = true
				if id := p.Namespace + "|" + k.Identity; a.covers(k) && !seen[id] {
					seen[id] = true
					out[p.Namespace] = append(out[p.Namespace], k)
				}
			}
		}
	}
	return out
}

// balancing is the state of constraints that are balanced together.
type balancing struct {
	*spreadRun
	namespace   string
	constraints []*model.Constraint
	counts      []spreadCounts
	candidates  []*spreadPod
}

// spreadPod is a pod that may be evicted.
type spreadPod struct {
	*model.Pod
	own     []int // indices of the pod's own constraints that count it
	counted []int // indices of all constraints that count it
	done    bool  // evicted or protected
	// kept is the number of evictions when no node was better for the replacement; -1: never
	kept int
}

// balance evicts one pod at a time until no constraint is violated or no eviction is progress.
func (s *spreadRun) balance(namespace string, constraints []*model.Constraint) outcome {
	b := &balancing{spreadRun: s, namespace: namespace, constraints: constraints,
		counts: make([]spreadCounts, len(constraints))}
	b.findCandidates()
	if len(b.candidates) == 0 {
		return podKept
	}
	for i := range constraints {
		b.count(i)
	}
	for evicted := 0; ; {
		p, propose := b.best(evicted), b.propose
		if p == nil && s.onlyIfBetter {
			p, propose = b.enabler(), b.proposeEnabler
		}
		if p == nil {
			return podKept
		}
		if !s.evictable(p.Pod) || !s.preEvictable(p.Pod) {
			p.done = true
			continue
		}
		from, changes := p.Node, s.cluster.Changes()
		out := s.evict(propose(p))
		if s.cluster.Changes() != changes {
			b.count(p.counted...)
		}
		switch out {
		case totalLimitReached:
			return totalLimitReached
		case nodeLimitReached:
			s.nodesAtLimit[from] = true
		case podEvicted:
			p.done = true
			evicted++
		default:
			p.done = p.kept == evicted // an enabler that a budget keeps
			p.kept = evicted
		}
	}
}

// count counts the pods of some constraints.
func (b *balancing) count(indices ...int) {
	for _, i := range indices {
		k := b.constraints[i]
		b.counts[i] = newSpreadCounts(k, k.CountByDomain(b.cluster, b.namespace, b.nodes))
	}
}

// findCandidates lists the pods with one of the constraints.
func (b *balancing) findCandidates() {
	known, index := map[*model.Pod]*spreadPod{}, map[string]int{}
	for i, k := range b.constraints {
		index[k.Identity] = i
		for _, p := range b.cluster.CountedPods(b.namespace, k) {
			if !b.selected[p.Node] {
				continue
			}
			if known[p] == nil {
				known[p] = &spreadPod{Pod: p, kept: -1}
			}
			known[p].counted = append(known[p].counted, i)
		}
	}
	for _, p := range known {
		for _, k := range p.Constraints() {
			if i, ok := index[k.Identity]; ok && slices.Contains(p.counted, i) {
				p.own = append(p.own, i)
			}
		}
		if len(p.own) > 0 && b.selects(p.Pod) {
			b.candidates = append(b.candidates, p)
		}
	}
	slices.SortFunc(b.candidates, func(x, y *spreadPod) int {
		return cmp.Or(cmp.Compare(pinnedToNodes(x.Pod), pinnedToNodes(y.Pod)), byEvictionOrder(x.Pod, y.Pod))
	})
}

// isOpen reports whether a pod may still be evicted. A replacement whose original is pinned has left
// its node.
func (b *balancing) isOpen(p *spreadPod) bool {
	return !p.done && p.Node != nil && !b.nodesAtLimit[p.Node]
}

// pinnedToNodes returns 1 for a pod with a node selector or node affinity, otherwise 0.
func pinnedToNodes(p *model.Pod) int {
	if p.Spec.NodeSelector != nil || p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
		return 1
	}
	return 0
}

// best returns the candidate whose eviction reduces violations most; nil: none violates a
// constraint of its own. Among equal ones it is the one in the fullest domains, then the first in
// eviction order.
func (b *balancing) best(evicted int) *spreadPod {
	var best *spreadPod
	most, fullest := 0, 0
	for _, p := range b.candidates {
		if !b.isOpen(p) || p.kept == evicted {
			continue
		}
		if !slices.ContainsFunc(p.own, func(i int) bool { return b.counts[i].violated(p.Node) }) {
			continue
		}
		gain, full := 0, 0
		for _, i := range p.counted {
			relief, excess := b.counts[i].leaving(p.Node)
			gain, full = gain+relief, full+excess
		}
		if best == nil || gain > most || gain == most && full > fullest {
			best, most, fullest = p, gain, full
		}
	}
	return best
}

// spreadCounts are the numbers of pods in the domains of a constraint.
type spreadCounts struct {
	*model.Constraint
	domains map[string]int
	byCount map[int]int    // number of domains by their number of pods
	least   int            // number of pods from which skew is measured
	relief  map[string]int // results of leaving, by domain
}

func newSpreadCounts(k *model.Constraint, domains map[string]int) spreadCounts {
	s := spreadCounts{Constraint: k, domains: domains, byCount: map[int]int{}, least: k.MinCount(domains),
		relief: map[string]int{}}
	for _, count := range domains {
		s.byCount[count]++
	}
	return s
}

// excess returns the number of pods of a domain that exceed maxSkew.
func (s *spreadCounts) excess(count, least int) int { return max(count-least-s.MaxSkew, 0) }

// total returns the sum of excess of all domains.
func (s *spreadCounts) total() (sum int) {
	for count, domains := range s.byCount {
		sum += domains * s.excess(count, s.least)
	}
	return sum
}

func (s *spreadCounts) violated(n *model.Node) bool {
	at, ok := s.Domain(n)
	return ok && s.excess(s.domains[at], s.least) > 0
}

// fixed reports whether skew is measured from 0 because there are too few domains.
func (s *spreadCounts) fixed() bool { return len(s.domains) < s.MinDomains }

// leaving returns by how much the violations decrease if a pod leaves the domain of a node, and
// how full that domain is.
func (s *spreadCounts) leaving(n *model.Node) (relief, full int) {
	at, ok := s.Domain(n)
	if !ok {
		return 0, 0
	}
	relief, known := s.relief[at]
	if !known {
		relief = -s.change(at, noDomain)
		s.relief[at] = relief
	}
	return relief, s.domains[at] - s.least
}

// noDomain is the domain of nodes that do not count; label values contain no zero byte.
const noDomain = "\x00"

func (s *spreadCounts) domainOf(n *model.Node) string {
	if at, ok := s.Domain(n); ok {
		return at
	}
	return noDomain
}

// change returns by how much the violations grow if a pod moves from one domain to another.
func (s *spreadCounts) change(from, to string) (growth int) {
	if from == to {
		return 0
	}
	was, inFrom := s.domains[from]
	is, inTo := s.domains[to]
	left := maps.Clone(s.byCount)
	move := func(count, by int) {
		left[count]--
		left[count+by]++
	}
	if inFrom {
		move(was, -1)
	}
	if inTo {
		move(is, 1)
	}
	least := s.least
	if !s.fixed() {
		least = s.least - 1
		for left[least] <= 0 && least < s.least+1 {
			least++
		}
	}
	for count, domains := range left {
		growth += domains * s.excess(count, least)
	}
	return growth - s.total()
}

// propose returns the proposal to evict a pod because of its own constraint that is violated most.
func (b *balancing) propose(p *spreadPod) *proposal {
	var worst *spreadCounts
	domain, most := "", 0
	for _, i := range p.own {
		k := &b.counts[i]
		if at, ok := k.Domain(p.Node); ok {
			if excess := k.excess(k.domains[at], k.least); excess > most {
				worst, domain, most = k, at, excess
			}
		}
	}
	from := p.Node
	w := &proposal{pod: p.Pod, hard: worst.Hard, explain: func(w *proposal) {
		w.reason = fmt.Sprintf("%s=%s has %d pods of the spread constraint, the minimum is %d, maxSkew %d",
			worst.Key, domain, worst.domains[domain], worst.least, worst.MaxSkew)
		names := slices.Sorted(maps.Keys(worst.domains))
		w.addAgainst(len(names), func(i int) string {
			return fmt.Sprintf("%s=%s: %d", worst.Key, names[i], worst.domains[names[i]])
		})
	}}
	if !b.onlyIfBetter {
		return w
	}
	w.noGain = "the spread would not improve"
	w.rank = func(to *model.Node) (sum int) {
		for _, i := range p.counted {
			if at, ok := b.counts[i].Domain(to); ok {
				sum += b.counts[i].domains[at]
			}
		}
		return sum
	}
	w.improves = func(to *model.Node) bool { return b.progress(p, from, to) < 0 }
	if !worst.Hard {
		w.improves = func(to *model.Node) bool {
			at, ok := worst.Domain(to)
			return ok && at != domain && worst.domains[at]+1 < worst.domains[domain]
		}
	}
	return w
}

// progress returns by how much the violations of all constraints grow if a pod moves.
func (b *balancing) progress(p *spreadPod, from, to *model.Node) (growth int) {
	for _, i := range p.counted {
		growth += b.counts[i].change(b.counts[i].domainOf(from), b.counts[i].domainOf(to))
	}
	return growth
}
