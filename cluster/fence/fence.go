// Package fence decides which nodes are out of service: those that are silent, and that a check
// from outside of the cluster confirms dead. Their taint node.kubernetes.io/out-of-service lets
// pods of theirs be deleted by force, and volumes be detached, which without it waits for a kubelet
// that will not answer. It has no client, no clock and no goroutine: Step is told what is seen and
// answers with what is to be asked and written; whoever asks and writes tells how that went.
package fence

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// Value is that of the taint when it is ours. Only such a taint is taken back.
const Value = "jettison"

// Config says when it is asked.
type Config struct {
	After time.Duration // so long after a node became Unknown it is asked first
	Every time.Duration // and again after each answer that did not confirm it
}

// Node is one that something is to be done about.
type Node struct {
	Name string
	UID  types.UID
}

// Actions are to be carried out. Lists are sorted by name.
type Actions struct {
	Ask  []Node // whether it is dead
	Set  []Node // it gets the taint
	Lift []Node // it loses the taint
	// when Step has to be called again if nothing is seen before; always after now; zero: never
	Next time.Time
}

// Core remembers what was answered. It is for one goroutine.
type Core struct {
	config  Config
	records map[types.UID]*record
}

type record struct {
	since time.Time // the transition that it was asked about
	asked bool      // the answer is waited for
	again time.Time
	dead  bool
	write cluster.Attempt
}

// New makes a Core that has asked nothing.
func New(c Config) *Core { return &Core{config: c, records: map[types.UID]*record{}} }

// Step looks at all nodes. Time must not go back.
func (c *Core) Step(now time.Time, nodes map[string]*v1.Node) *Actions {
	out := &Actions{}
	here := make(map[types.UID]bool, len(c.records))
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if n := nodes[name]; c.look(now, n, out) {
			here[n.UID] = true
		}
	}
	for uid := range c.records {
		if !here[uid] {
			delete(c.records, uid)
		}
	}
	if !out.Next.IsZero() && !out.Next.After(now) {
		out.Next = now.Add(1)
	}
	return out
}

// look looks at one node, and reports whether something is to be remembered of it.
func (c *Core) look(now time.Time, n *v1.Node, out *Actions) bool {
	ready := readiness(n)
	if ready == nil {
		return false
	}
	set, ours := tainted(n)
	lift := ready.Status == v1.ConditionTrue && ours
	if !lift && (ready.Status != v1.ConditionUnknown || set) {
		return false
	}
	r := c.records[n.UID]
	// another silence than the one that was asked about
	if r == nil || !lift && !r.since.Equal(ready.LastTransitionTime.Time) {
		r = &record{since: ready.LastTransitionTime.Time}
		c.records[n.UID] = r
	}
	switch {
	case lift || r.dead:
		if !r.write.Begin(now) {
			cluster.Earliest(&out.Next, r.write.Next(now))
		} else if lift {
			out.Lift = append(out.Lift, Node{n.Name, n.UID})
		} else {
			out.Set = append(out.Set, Node{n.Name, n.UID})
		}
	case r.asked:
	default:
		due := r.since.Add(c.config.After)
		if due.Before(r.again) {
			due = r.again
		}
		if due.After(now) {
			cluster.Earliest(&out.Next, due)
			break
		}
		r.asked = true
		out.Ask = append(out.Ask, Node{n.Name, n.UID})
	}
	return true
}

// Answer notes what came of asking.
func (c *Core) Answer(now time.Time, uid types.UID, dead bool) {
	if r := c.records[uid]; r != nil {
		r.asked, r.dead, r.again = false, dead, now.Add(c.config.Every)
	}
}

// End notes how a write ended. One that failed is decided again after a while.
func (c *Core) End(now time.Time, uid types.UID, ok bool) {
	if r := c.records[uid]; r != nil {
		r.write.End(now, ok)
	}
}

func readiness(n *v1.Node) *v1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == v1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// tainted reports whether a node has the taint, and whether it is ours.
func tainted(n *v1.Node) (is, ours bool) {
	for _, t := range n.Spec.Taints {
		if t.Key == v1.TaintNodeOutOfService {
			is, ours = true, ours || t.Value == Value && t.Effect == v1.TaintEffectNoExecute
		}
	}
	return is, ours
}
