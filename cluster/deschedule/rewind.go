package deschedule

import (
	"time"

	"jettison/cluster/model"
)

// rewinder is what it takes to make a plan anew, once more pods are kept, from where those were
// first wished gone: until there it would be the same again.
type rewinder struct {
	marks   []mark
	made    []made         // of each eviction
	noted   []*model.Pod   // skipped, in order
	wished  map[string]int // the last mark before a pod was first wished gone, by its key
	fresh   []string       // keys of pods that were kept since the plan was begun, or rewound
	resumed *mark          // where to go on
}

// mark is where a plan was when a strategy of a pass began.
type mark struct {
	// evictions when the pass began; which of the runs
	pass, run                                        int
	evictions, moves, spent, noted, stopped, counted int
	total                                            uint
	capped                                           bool
}

// made is what one eviction has changed of what is counted.
type made struct {
	run             *run
	node, namespace string
	owners          []pause
	gone            bool // nobody makes it again: its owners have one pod less
}

// pause is when an owner's pod was last evicted before.
type pause struct {
	owner owner
	at    time.Time
	known bool
}

func (p *planner) mark(pass, run int) {
	p.marks = append(p.marks, mark{
		pass: pass, run: run, evictions: len(p.evictions), moves: p.cluster.Moves(),
		spent: p.budgets.Spent(), noted: len(p.noted),
		stopped: len(p.stopped), counted: len(p.made), total: p.total, capped: p.capped,
	})
}

// wishes notes when a pod was first wished gone.
func (p *planner) wishes(key string) {
	if _, ok := p.wished[key]; !ok {
		p.wished[key] = len(p.marks) - 1
	}
}

// keep has a pod stay in the plan that is made anew.
func (p *planner) keep(key, strategy string) {
	p.kept[key] = strategy
	p.fresh = append(p.fresh, key)
}

// rewind has all be as it was when the first of those that are kept by now was first wished gone.
// false: the plan has to be begun anew.
func (p *planner) rewind() bool {
	to := len(p.marks)
	for _, key := range p.fresh {
		at, ok := p.wished[key]
		if !ok {
			return false
		}
		to = min(to, at)
	}
	if p.use != nil || to == len(p.marks) { // what figures of use were missing is not noted
		return false
	}
	m := p.marks[to]
	for i := len(p.made) - 1; i >= m.counted; i-- {
		p.uncount(&p.made[i])
	}
	for i := m.evictions; i < len(p.evictions); i++ {
		e := &p.evictions[i]
		delete(p.successors, e.Namespace+"/"+successorOf(e.Name))
	}
	for _, pod := range p.noted[m.noted:] {
		delete(p.skipped, pod)
	}
	for key, at := range p.wished {
		if at >= to {
			delete(p.wished, key)
		}
	}
	p.cluster.Undo(m.moves)
	p.budgets.Undo(m.spent)
	p.evictions, p.stopped, p.noted, p.made = p.evictions[:m.evictions], p.stopped[:m.stopped],
		p.noted[:m.noted], p.made[:m.counted]
	p.total, p.capped, p.again, p.fresh = m.total, m.capped, false, nil
	p.marks, p.resumed = p.marks[:to], &m
	return true
}

func (p *planner) uncount(m *made) {
	p.perNode[m.node]--
	p.perNamespace[m.namespace]--
	for i := len(m.owners) - 1; i >= 0; i-- {
		o := &m.owners[i]
		if o.known {
			p.perOwner[o.owner] = o.at
		} else {
			delete(p.perOwner, o.owner)
		}
		if m.gone {
			p.replicas[o.owner]++
		}
	}
	if p.ended[m.run] != nil {
		p.ended[m.run][m.node]--
	}
}
