// Package fence decides which nodes are out of service: nodes that are silent and that a check from
// outside the cluster confirms dead. The taint node.kubernetes.io/out-of-service allows the force
// deletion of their pods and the detaching of their volumes. Without the taint, both operations
// wait for a kubelet that does not respond.
//
// The package has no client, no clock and no goroutine. Step receives the nodes and returns the
// checks and writes; the caller carries them out and reports the results to EndCheck and End.
package fence

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// Value is the value of the taints that this package sets. It removes only taints with this value.
const Value = "jettison"

// Config holds the settings of a Core.
type Config struct {
	Delay       time.Duration // from the transition to Unknown to the first check
	RetryPeriod time.Duration // from a check that did not confirm the node dead to the next one
}

// Node identifies the node of an action.
type Node struct {
	Name string
	UID  types.UID
}

// Actions is the result of Step. Its lists are sorted by name.
type Actions struct {
	Check []Node // nodes to check
	Set   []Node // nodes that get the taint
	Lift  []Node // nodes that lose the taint
	// when the caller must call Step again if nothing changes before; always after now; zero: never
	Next time.Time
}

// Core holds the state between two steps. Only one goroutine may use it.
type Core struct {
	config  Config
	records map[types.UID]*record
}

type record struct {
	unknownSince  time.Time // the transition for which the check is made
	checking      bool      // a check is in flight
	retryAt       time.Time
	confirmedDead bool
	write         cluster.Attempt
}

// New returns an empty Core.
func New(c Config) *Core { return &Core{config: c, records: map[types.UID]*record{}} }

// Step decides on all nodes. now must not be before that of the last call.
func (c *Core) Step(now time.Time, nodes map[string]*v1.Node) *Actions {
	out := &Actions{}
	kept := make(map[types.UID]bool, len(c.records))
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if n := nodes[name]; c.evaluate(now, n, out) {
			kept[n.UID] = true
		}
	}
	for uid := range c.records {
		if !kept[uid] {
			delete(c.records, uid)
		}
	}
	if !out.Next.IsZero() && !out.Next.After(now) {
		out.Next = now.Add(1)
	}
	return out
}

// evaluate decides on one node and reports whether its record must be kept.
func (c *Core) evaluate(now time.Time, n *v1.Node, out *Actions) bool {
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
	// The node became Unknown again after the last check.
	if r == nil || !lift && !r.unknownSince.Equal(ready.LastTransitionTime.Time) {
		r = &record{unknownSince: ready.LastTransitionTime.Time}
		c.records[n.UID] = r
	}
	switch {
	case lift || r.confirmedDead:
		if !r.write.Begin(now) {
			cluster.Earliest(&out.Next, r.write.Next(now))
		} else if lift {
			out.Lift = append(out.Lift, Node{n.Name, n.UID})
		} else {
			out.Set = append(out.Set, Node{n.Name, n.UID})
		}
	case r.checking:
	default:
		due := r.unknownSince.Add(c.config.Delay)
		if due.Before(r.retryAt) {
			due = r.retryAt
		}
		if due.After(now) {
			cluster.Earliest(&out.Next, due)
			break
		}
		r.checking = true
		out.Check = append(out.Check, Node{n.Name, n.UID})
	}
	return true
}

// EndCheck records the result of a check.
func (c *Core) EndCheck(now time.Time, uid types.UID, dead bool) {
	if r := c.records[uid]; r != nil {
		r.checking, r.confirmedDead, r.retryAt = false, dead, now.Add(c.config.RetryPeriod)
	}
}

// End records the result of a write. After a failure Step decides again once the backoff has
// passed.
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

// tainted reports whether the node has the taint, and whether this package set it.
func tainted(n *v1.Node) (found, ours bool) {
	for _, t := range n.Spec.Taints {
		if t.Key == v1.TaintNodeOutOfService {
			found, ours = true, ours || t.Value == Value && t.Effect == v1.TaintEffectNoExecute
		}
	}
	return found, ours
}
