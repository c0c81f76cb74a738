package deschedule

import (
	"time"

	"jettison/cluster/model"
)

// rewinder holds the state to make a plan again after more pods are pinned. The plan up to the
// first proposal to evict one of these pods would be the same, so planning restarts there.
type rewinder struct {
	marks     []mark
	records   []evictionRecord // one for each eviction
	skipOrder []*model.Pod     // pods in skipped, in order
	// index of the last mark before the first proposal to evict a pod, by its key
	firstProposed map[string]int
	newlyPinned   []string // keys of pods pinned since the plan started or was rewound
	resume        *mark    // where the next pass continues; nil: at its first run
}

// mark is the state of a plan when a strategy of a pass started: lengths of lists and counters.
type mark struct {
	// pass is the number of evictions when the pass started, run the index of the run.
	pass, run                                      int
	evictions, moves, spent, skips, stops, records int
	total                                          uint
	capped                                         bool
}

// evictionRecord holds the counters that one eviction changed.
type evictionRecord struct {
	run             *run
	node, namespace string
	previous        []ownerEviction
}

// ownerEviction is the previous eviction of a pod of an owner.
type ownerEviction struct {
	owner owner
	at    time.Time
	known bool
}

func (p *planner) addMark(pass, run int) {
	p.marks = append(p.marks, mark{
		pass: pass, run: run, evictions: len(p.evictions), moves: p.cluster.Moves(),
		spent: p.budgets.Spent(), skips: len(p.skipOrder),
		stops: len(p.stops), records: len(p.records), total: p.total, capped: p.capped,
	})
}

// noteProposal records the first proposal to evict a pod.
func (p *planner) noteProposal(key string) {
	if _, ok := p.firstProposed[key]; !ok {
		p.firstProposed[key] = len(p.marks) - 1
	}
}

// pin forbids the eviction of a pod in the next plan, because strategy would evict its replacement.
func (p *planner) pin(key, strategy string) {
	p.pinned[key] = strategy
	p.newlyPinned = append(p.newlyPinned, key)
}

// rewind restores the state before the first proposal to evict a newly pinned pod. It returns
// false if the plan must start from scratch.
func (p *planner) rewind() bool {
	to := len(p.marks)
	for _, key := range p.newlyPinned {
		at, ok := p.firstProposed[key]
		if !ok {
			return false
		}
		to = min(to, at)
	}
	if p.usage != nil || to == len(p.marks) { // changes of usage are not recorded
		return false
	}
	m := p.marks[to]
	for i := len(p.records) - 1; i >= m.records; i-- {
		p.undoCount(&p.records[i])
	}
	for i := m.evictions; i < len(p.evictions); i++ {
		e := &p.evictions[i]
		delete(p.replacements, e.Namespace+"/"+replacementName(e.Name))
	}
	for _, pod := range p.skipOrder[m.skips:] {
		delete(p.skipped, pod)
	}
	for key, at := range p.firstProposed {
		if at >= to {
			delete(p.firstProposed, key)
		}
	}
	for o, move := range p.moves.ineffective {
		if move.mark >= to {
			delete(p.moves.ineffective, o)
		}
	}
	p.cluster.Undo(m.moves)
	p.budgets.Undo(m.spent)
	p.evictions, p.stops, p.skipOrder, p.records = p.evictions[:m.evictions], p.stops[:m.stops],
		p.skipOrder[:m.skips], p.records[:m.records]
	p.total, p.capped, p.replan, p.newlyPinned = m.total, m.capped, false, nil
	p.marks, p.resume = p.marks[:to], &m
	return true
}

func (p *planner) undoCount(m *evictionRecord) {
	p.perNode[m.node]--
	p.perNamespace[m.namespace]--
	for i := len(m.previous) - 1; i >= 0; i-- {
		o := &m.previous[i]
		if o.known {
			p.perOwner[o.owner] = o.at
		} else {
			delete(p.perOwner, o.owner)
		}
	}
	if p.evictedByRun[m.run] != nil {
		p.evictedByRun[m.run][m.node]--
	}
}
