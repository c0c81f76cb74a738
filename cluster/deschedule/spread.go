package deschedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// topologySpread evicts pods from domains that have too many of them, one at a time from the
// fullest, until a constraint holds or nobody can be moved. All pods count that the constraint
// counts, whether they may be evicted or not.
func topologySpread(r *run, args any) {
	a := args.(*SpreadArgs)
	wanted := a.filter()
	spaces := map[string][]*model.Constraint{}
	seen, read := map[string]bool{}, map[*model.Constraint]bool{}
	for _, n := range r.nodes {
		for _, p := range n.Pods {
			// whether it has any is the quickest to see
			if len(p.Constraints()) == 0 || p.Ended || !wanted(p) {
				continue
			}
			for _, k := range p.Constraints() {
				if read[k] {
					continue // another pod of its owner has it
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
			s := &spreading{run: r, k: k, namespace: namespace, wanted: wanted, full: fullNodes,
				fit: *a.TopologyBalanceNodeFit}
			if s.balance() == full {
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

// spreading is one constraint of one namespace.
type spreading struct {
	*run
	k         *model.Constraint
	namespace string
	wanted    func(*model.Pod) bool
	full      map[*model.Node]bool // the limit of the node is reached
	fit       bool                 // a pod goes only where it helps
	tried     map[*model.Pod]bool
}

func (s *spreading) balance() outcome {
	s.tried = map[*model.Pod]bool{}
	for {
		domains := s.k.Domains(s.cluster, s.namespace, s.nodes)
		if len(domains) == 0 {
			return kept
		}
		out := s.move(domains)
		if out != evicted {
			return out
		}
	}
}

// move evicts one pod of the fullest domain from which one can go.
func (s *spreading) move(domains map[string]int) outcome {
	least := s.k.Least(domains)
	names := slices.SortedFunc(maps.Keys(domains), func(a, b string) int {
		return cmp.Or(cmp.Compare(domains[b], domains[a]), cmp.Compare(a, b))
	})
	for _, name := range names {
		if domains[name]-least <= s.k.MaxSkew {
			break
		}
		for _, p := range s.candidates(name) {
			switch out := s.evict(s.wish(p, name, domains, least)); out {
			case full, evicted:
				return out
			case nodeFull:
				s.full[p.Node] = true
			}
			s.tried[p] = true
		}
	}
	return kept
}

// candidates are the pods of a domain that may go: first those that no selector or affinity ties to
// nodes, then the first to go.
func (s *spreading) candidates(domain string) (out []*model.Pod) {
	for _, p := range s.cluster.Counted(s.namespace, s.k) {
		if at, ok := s.k.Domain(p.Node); !ok || at != domain || !s.looked[p.Node] || s.full[p.Node] {
			continue
		}
		if !s.tried[p] && s.wanted(p) && s.may(p) && s.fits(p) {
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
		return cmp.Or(cmp.Compare(tied(a), tied(b)), firstToGo(a, b))
	})
	return out
}

func (s *spreading) wish(p *model.Pod, domain string, domains map[string]int, least int) *wish {
	w := &wish{pod: p, tell: func(w *wish) {
		w.reason = fmt.Sprintf("%s=%s has %d pods of its spread constraint, the least is %d, maxSkew %d",
			s.k.Key, domain, domains[domain], least,
			s.k.MaxSkew)
		names := slices.Sorted(maps.Keys(domains))
		w.weigh(len(names), func(i int) string {
			return fmt.Sprintf("%s=%s: %d", s.k.Key, names[i], domains[names[i]])
		})
	}}
	if s.fit {
		w.helps = func(to *model.Node) bool {
			at, ok := s.k.Domain(to)
			return ok && at != domain && domains[at]+1 < domains[domain]
		}
		w.undone = "the spread would be no better"
	}
	return w
}
