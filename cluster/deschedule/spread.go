package deschedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// topologySpread evicts pods from domains with too many pods, one at a time from the fullest, until
// the constraint is satisfied or no pod can be moved. Protected pods count, too.
func topologySpread(r *run, args any) {
	a := args.(*SpreadArgs)
	selects := a.filter()
	spaces := map[string][]*model.Constraint{}
	seen, read := map[string]bool{}, map[*model.Constraint]bool{}
	for _, n := range r.nodes {
		for _, p := range n.Pods {
			// the cheapest check first
			if len(p.Constraints()) == 0 || p.Ended || !selects(p) {
				continue
			}
			for _, k := range p.Constraints() {
				if read[k] {
					continue // shared with another pod of the owner
				}
				read[k] = true
				if id := p.Namespace + "|" + k.Identity; a.covers(k) && !seen[id] {
					seen[id] = true
					spaces[p.Namespace] = append(spaces[p.Namespace], k)
				}
			}
		}
	}
	fullNodes := map[*model.Node]bool{}
	for _, namespace := range slices.Sorted(maps.Keys(spaces)) {
		for _, k := range spaces[namespace] {
			s := &spreadRun{run: r, constraint: k, namespace: namespace, selects: selects, nodesAtLimit: fullNodes,
				onlyIfBetter: *a.TopologyBalanceNodeFit}
			if s.balance() == totalLimitReached {
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

// spreadRun balances one constraint in one namespace.
type spreadRun struct {
	*run
	constraint   *model.Constraint
	namespace    string
	selects      func(*model.Pod) bool
	nodesAtLimit map[*model.Node]bool // nodes that reached their eviction limit
	onlyIfBetter bool                 // evict only if the replacement improves the spread
	tried        map[*model.Pod]bool
}

func (s *spreadRun) balance() outcome {
	s.tried = map[*model.Pod]bool{}
	for {
		domains := s.constraint.CountByDomain(s.cluster, s.namespace, s.nodes)
		if len(domains) == 0 {
			return podKept
		}
		out := s.evictOne(domains)
		if out != podEvicted {
			return out
		}
	}
}

// evictOne evicts one pod from the fullest domain that has a candidate.
func (s *spreadRun) evictOne(domains map[string]int) outcome {
	least := s.constraint.MinCount(domains)
	names := slices.SortedFunc(maps.Keys(domains), func(a, b string) int {
		return cmp.Or(cmp.Compare(domains[b], domains[a]), cmp.Compare(a, b))
	})
	for _, name := range names {
		if domains[name]-least <= s.constraint.MaxSkew {
			break
		}
		for _, p := range s.candidates(name) {
			switch out := s.evict(s.propose(p, name, domains, least)); out {
			case totalLimitReached, podEvicted:
				return out
			case nodeLimitReached:
				s.nodesAtLimit[p.Node] = true
			}
			s.tried[p] = true
		}
	}
	return podKept
}

// candidates returns the evictable pods of a domain: pods without node selector and node affinity
// first, then in eviction order.
func (s *spreadRun) candidates(domain string) (out []*model.Pod) {
	for _, p := range s.cluster.CountedPods(s.namespace, s.constraint) {
		if at, ok := s.constraint.Domain(p.Node); !ok || at != domain || !s.selected[p.Node] || s.nodesAtLimit[p.Node] {
			continue
		}
		if !s.tried[p] && s.selects(p) && s.evictable(p) && s.preEvictable(p) {
			out = append(out, p)
		}
	}
	tied := func(p *model.Pod) int {
		if p.Spec.NodeSelector != nil || p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
			return 1
		}
		return 0
	}
	slices.SortFunc(out, func(a, b *model.Pod) int {
		return cmp.Or(cmp.Compare(tied(a), tied(b)), byEvictionOrder(a, b))
	})
	return out
}

func (s *spreadRun) propose(p *model.Pod, domain string, domains map[string]int, least int) *proposal {
	w := &proposal{pod: p, explain: func(w *proposal) {
		w.reason = fmt.Sprintf("%s=%s has %d pods of the spread constraint, the minimum is %d, maxSkew %d",
			s.constraint.Key, domain, domains[domain], least,
			s.constraint.MaxSkew)
		names := slices.Sorted(maps.Keys(domains))
		w.addAgainst(len(names), func(i int) string {
			return fmt.Sprintf("%s=%s: %d", s.constraint.Key, names[i], domains[names[i]])
		})
	}}
	if s.onlyIfBetter {
		w.improves = func(to *model.Node) bool {
			at, ok := s.constraint.Domain(to)
			return ok && at != domain && domains[at]+1 < domains[domain]
		}
		w.noGain = "the spread would not improve"
	}
	return w
}
