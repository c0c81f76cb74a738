package oracle

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
)

// ours runs the core of the lifecycle on its own world, in which every write succeeds immediately.
type ours struct {
	*world
	line   *timeline
	core   *lifecycle.Core
	next   time.Time
	tokens map[string][]time.Duration // by zone: when each was taken
	script []change                   // the NoExecute taints that it sets and removes
}

// play runs the core on a timeline: at every change, and when the core requests it.
func play(line *timeline) *ours {
	o := &ours{world: newWorld(), line: line, tokens: map[string][]time.Duration{}}
	line.begin(o)
	o.begin()
	o.step(0)
	perform(o.world, o.line.changes, o.line.end, o.begin, o.step, func() time.Time { return o.next })
	return o
}

// perform applies changes to a world. Between and after them it calls the deciding function.
func perform(w *world, changes []change, end time.Duration, begin func(), step func(time.Duration), next func() time.Time) {
	for i := 0; i <= len(changes); i++ {
		until := end
		if i < len(changes) {
			until = changes[i].at
		}
		for !next().IsZero() && next().Sub(start) < until {
			step(next().Sub(start))
		}
		if i == len(changes) {
			return
		}
		if w.now = until; changes[i].restart {
			begin()
		} else {
			changes[i].do(w)
		}
		step(until)
	}
}

func (o *ours) begin() { o.core = lifecycle.New(o.line.config.Lifecycle()) }

func (o *ours) step(at time.Duration) {
	o.now = at
	now := start.Add(at)
	done := o.core.Step(now, lifecycle.Seen{Nodes: o.world.nodes, Leases: o.leases, Pods: o.podsOf})
	o.set(at, facet{what: doubted}, map[bool]string{true: "yes", false: "no"}[done.Doubt != ""])
	for i := range done.Status {
		w := &done.Status[i]
		n := o.node(w.Node)
		for _, c := range w.Conditions {
			if old := condition(n, c.Type); old != nil {
				*old = c
			} else {
				n.Status.Conditions = append(n.Status.Conditions, c)
			}
		}
		o.putNode(n)
		o.core.End(now, w.Node, w.UID, lifecycle.WriteStatus, true)
	}
	for i := range done.Labels {
		w := &done.Labels[i]
		n := o.node(w.Node)
		maps.Copy(n.Labels, w.Set)
		o.putNode(n)
		o.core.End(now, w.Node, w.UID, lifecycle.WriteLabels, true)
	}
	for i := range done.Taints {
		o.taint(now, &done.Taints[i])
	}
	for _, m := range done.Marks {
		o.putPod(notReadyAnyMore(o.pod(m.Namespace + "/" + m.Name)))
		o.core.EndMark(now, m, true)
	}
	o.next = done.Next
	if len(done.Status)+len(done.Taints)+len(done.Labels)+len(done.Marks) > 0 {
		cluster.Earliest(&o.next, now.Add(1)) // the core sees its own writes
	}
}

func notReadyAnyMore(p *v1.Pod) *v1.Pod {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
			c.Status = v1.ConditionFalse
		}
	}
	return p
}

// taint writes taints of a node. Those with NoExecute are the input of the second half.
func (o *ours) taint(now time.Time, w *lifecycle.Taints) {
	edit := func(n *v1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t v1.Taint) bool {
			same := func(other v1.Taint) bool { return other.Key == t.Key && other.Effect == t.Effect }
			return slices.ContainsFunc(w.Remove, same) || slices.ContainsFunc(w.Add, same)
		})
		for _, t := range w.Add {
			t.TimeAdded = new(stamp(t.TimeAdded.Sub(start)))
			n.Spec.Taints = append(n.Spec.Taints, t)
		}
	}
	n := o.node(w.Node)
	before := taintsWith(n, v1.TaintEffectNoExecute)
	edit(n)
	o.putNode(n)
	o.core.End(now, w.Node, w.UID, lifecycle.WriteTaints, true)
	if w.Evicted {
		zone := o.line.zones[w.Node]
		o.tokens[zone] = append(o.tokens[zone], o.now)
	}
	if taintsWith(n, v1.TaintEffectNoExecute) != before {
		o.script = append(o.script, change{at: o.now, do: func(s store) {
			if n := s.node(w.Node); n != nil && n.UID == w.UID {
				edit(n)
				s.putNode(n)
			}
		}})
	}
}

// evictor runs the core of taint eviction on its own world.
type evictor struct {
	*world
	line *timeline
	core *taint.Core
	next time.Time
	gone map[types.UID]time.Duration // pods that it has deleted
}

// evict runs the core on the changes of a timeline that the taint evictions receive.
func evict(line *timeline, changes []change) map[types.UID]time.Duration {
	e := &evictor{world: newWorld(), line: line, gone: map[types.UID]time.Duration{}}
	line.begin(e)
	e.begin()
	e.step(0)
	perform(e.world, changes, line.end, e.begin, e.step, func() time.Time { return e.next })
	return e.gone
}

func (e *evictor) begin() { e.core = taint.New(e.line.config.Taint()) }

func (e *evictor) step(at time.Duration) {
	e.now = at
	now := start.Add(at)
	done := e.core.Step(now, taint.Seen{Nodes: e.world.nodes, Pods: e.podsOf, Zone: lifecycle.ZoneOf})
	for i := range done.Stamps {
		w := &done.Stamps[i]
		n := e.node(w.Node)
		for _, stamped := range w.Taints {
			for j := range n.Spec.Taints {
				if t := &n.Spec.Taints[j]; t.Key == stamped.Key && t.Effect == stamped.Effect {
					t.TimeAdded = stamped.TimeAdded
				}
			}
		}
		e.putNode(n)
		e.core.EndStamp(now, w.UID, true)
	}
	for i := range done.Evict {
		w := &done.Evict[i]
		e.gone[w.UID] = at
		e.dropPod(w.Namespace + "/" + w.Name)
		e.core.End(now, w.UID, true)
	}
	e.next = done.Next
}

// heard returns the changes of a timeline that the taint evictions receive: the taints of the
// nodes, without kubelets.
func (o *ours) heard() []change {
	out := slices.DeleteFunc(slices.Clone(o.line.changes), func(c change) bool { return c.kubelet })
	out = append(out, o.script...)
	slices.SortStableFunc(out, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return out
}
