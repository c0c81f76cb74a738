// Package fence decides which nodes are out of service: nodes that are silent and that a check from
// outside the cluster confirms dead. The taint node.kubernetes.io/out-of-service allows the force
// deletion of their pods and the detaching of their volumes. Without the taint, both operations
// wait for a kubelet that does not respond.
//
// A check can be wrong, and a wrong answer costs data. So an answer counts for one try, a renewal
// of the Lease outweighs it, and a rate bounds the loss.
//
// The package has no client, no clock and no goroutine. Step receives the nodes and returns the
// checks and writes; the caller carries them out and reports the results to EndCheck and End.
package fence

import (
	"maps"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// Value is the value of the taints that this package sets. It removes only taints with this value.
const Value = "jettison"

// Within ratePeriod, at most one in zoneShare nodes of a zone gets the taint, but at least one
// node.
const (
	ratePeriod = time.Hour
	zoneShare  = 10
)

// Config holds the settings of a Core.
type Config struct {
	Delay       time.Duration // from the last sign of life to the first check
	RetryPeriod time.Duration // from a check that did not confirm the node dead to the next one
	Interval    time.Duration // between two nodes that get the taint
}

// Seen is the input of Step: the observed cluster. Step neither changes nor keeps it.
type Seen struct {
	Nodes  map[string]*v1.Node
	Leases map[string]*coordination.Lease // by node name
	Zone   func(*v1.Node) string
	// Suspended reports whether the silence of the zone's nodes proves nothing.
	Suspended func(zone string) bool
	// ClockSkew is the API server's clock minus the clock of the step's time. The times of taints are
	// on the API server's clock.
	ClockSkew time.Duration
}

// Node identifies the node of an action.
type Node struct {
	Name string
	UID  types.UID
}

// Actions is the result of Step. Its lists are sorted by name.
type Actions struct {
	Check []Node // nodes to check
	// nodes that get the taint. The caller reads the Lease again: a Lease unlike that of Seen is a
	// sign of life.
	Set  []Node
	Lift []Node // nodes that lose the taint
	// when the caller must call Step again if nothing changes before; always after now; zero: never
	Next time.Time
}

// Core holds the state between two steps. Only one goroutine may use it.
type Core struct {
	config  Config
	records map[types.UID]*record
	// nodes that got the taint within ratePeriod, also from another instance
	fenced map[types.UID]fenced
}

// fenced is a node that got the taint.
type fenced struct {
	zone string
	at   time.Time
}

type record struct {
	unknownSince time.Time // the transition for which the check is made
	// the Lease that was seen last; hasLease false: none
	hasLease      bool
	lease         types.UID
	renewed       *metav1.MicroTime
	silentSince   time.Time // when this Lease and transition were first seen
	checking      bool      // a check is in flight
	void          bool      // a sign of life arrived since that check began
	retryAt       time.Time
	confirmedDead bool // by a check that ended since the last step
	write         cluster.Attempt
}

// New returns an empty Core.
func New(c Config) *Core {
	return &Core{config: c, records: map[types.UID]*record{}, fenced: map[types.UID]fenced{}}
}

// step is the state of one Step.
type step struct {
	*Core
	now   time.Time
	seen  Seen
	out   *Actions
	sizes map[string]int // nodes by zone
}

// Step decides on all nodes. now must not be before that of the last call.
func (c *Core) Step(now time.Time, seen Seen) *Actions {
	s := &step{Core: c, now: now, seen: seen, out: &Actions{}, sizes: map[string]int{}}
	s.updateFenced()
	kept := make(map[types.UID]bool, len(c.records))
	for _, name := range slices.Sorted(maps.Keys(seen.Nodes)) {
		if n := seen.Nodes[name]; s.evaluate(n) {
			kept[n.UID] = true
		}
	}
	for uid := range c.records {
		if !kept[uid] {
			delete(c.records, uid)
		}
	}
	return s.out
}

// updateFenced counts the nodes of the zones, and records the nodes with the taint: a new instance
// continues the rate. A node counts from the first time that it is seen with the taint, although
// its TimeAdded may be in the future.
func (s *step) updateFenced() {
	tainted := map[types.UID]bool{}
	for _, n := range s.seen.Nodes {
		zone := s.seen.Zone(n)
		s.sizes[zone]++
		for i := range n.Spec.Taints {
			if t := &n.Spec.Taints[i]; isOwn(t) && t.TimeAdded != nil {
				tainted[n.UID] = true
				if _, known := s.fenced[n.UID]; !known {
					s.fenced[n.UID] = fenced{zone, earlier(t.TimeAdded.Add(-s.seen.ClockSkew), s.now)}
				}
			}
		}
	}
	maps.DeleteFunc(s.fenced, func(uid types.UID, f fenced) bool {
		return !tainted[uid] && s.now.Sub(f.at) >= ratePeriod
	})
}

// evaluate decides on one node and reports whether its record must be kept.
func (s *step) evaluate(n *v1.Node) bool {
	ready := readiness(n)
	if ready == nil {
		return false
	}
	set, ours := tainted(n)
	lift := ready.Status == v1.ConditionTrue && ours
	if !lift && (ready.Status != v1.ConditionUnknown || set) {
		return false
	}
	r := s.records[n.UID]
	if r == nil {
		r = &record{}
		s.records[n.UID] = r
	}
	if lift {
		if !r.write.Begin(s.now) {
			cluster.Earliest(&s.out.Next, r.write.Next(s.now))
		} else {
			s.out.Lift = append(s.out.Lift, Node{n.Name, n.UID})
		}
		return true
	}
	r.updateSilence(s.now, ready, s.seen.Leases[n.Name])
	s.fence(n, r)
	return true
}

// updateSilence restarts the delay if the node became Unknown again or its Lease changed.
func (r *record) updateSilence(now time.Time, ready *v1.NodeCondition, lease *coordination.Lease) {
	since := ready.LastTransitionTime.Time
	alive := r.silentSince.IsZero() || !r.unknownSince.Equal(since)
	r.unknownSince = since
	if lease != nil {
		alive = alive || !r.hasLease || r.lease != lease.UID || !r.renewed.Equal(lease.Spec.RenewTime)
		r.hasLease, r.lease, r.renewed = true, lease.UID, lease.Spec.RenewTime
	}
	if alive {
		r.silentSince, r.confirmedDead, r.void = now, false, r.checking
	}
}

// fence checks a silent node when it may get the taint, and sets the taint if the check that just
// ended confirmed the node dead.
func (s *step) fence(n *v1.Node, r *record) {
	confirmed := r.confirmedDead
	r.confirmedDead = false
	zone := s.seen.Zone(n)
	next := r.write.Next(s.now)
	if r.checking || next.IsZero() || s.seen.Suspended(zone) {
		return
	}
	due := r.silentSince.Add(s.config.Delay)
	for _, at := range []time.Time{r.retryAt, next, s.nextToken(zone)} {
		if at.After(due) {
			due = at
		}
	}
	switch {
	case due.After(s.now):
		cluster.Earliest(&s.out.Next, due)
	case confirmed:
		r.write.Begin(s.now)
		s.fenced[n.UID] = fenced{zone, s.now}
		s.out.Set = append(s.out.Set, Node{n.Name, n.UID})
	default:
		r.checking = true
		s.out.Check = append(s.out.Check, Node{n.Name, n.UID})
	}
}

// nextToken returns when a node of the zone may get the taint; the zero time: now.
func (s *step) nextToken(zone string) (at time.Time) {
	var inZone []time.Time
	for _, f := range s.fenced {
		if next := f.at.Add(s.config.Interval); next.After(at) {
			at = next
		}
		if f.zone == zone {
			inZone = append(inZone, f.at)
		}
	}
	if most := max(1, s.sizes[zone]/zoneShare); len(inZone) >= most {
		slices.SortFunc(inZone, time.Time.Compare)
		if next := inZone[len(inZone)-most].Add(ratePeriod); next.After(at) {
			at = next
		}
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// EndCheck records the result of a check. The answer counts for the next step only.
func (c *Core) EndCheck(now time.Time, uid types.UID, dead bool) {
	r := c.records[uid]
	if r == nil || !r.checking {
		return
	}
	if r.confirmedDead = dead && !r.void; !r.confirmedDead {
		r.retryAt = now.Add(c.config.RetryPeriod)
	}
	r.checking, r.void = false, false
}

// End records the result of a write; ok: it was made. Otherwise Step decides again once the backoff
// has passed, with a new check.
func (c *Core) End(now time.Time, uid types.UID, ok bool) {
	if !ok {
		delete(c.fenced, uid) // Step adds it again if the node has the taint
	}
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
			found, ours = true, ours || isOwn(&t)
		}
	}
	return found, ours
}

// isOwn reports whether this package set the taint.
func isOwn(t *v1.Taint) bool {
	return t.Key == v1.TaintNodeOutOfService && t.Value == Value &&
		t.Effect == v1.TaintEffectNoExecute
}
