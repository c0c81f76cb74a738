package lifecycle

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// NodeReport describes the state of a node.
type NodeReport struct {
	Node          *v1.Node
	Zone          string
	Ready         v1.ConditionStatus // with silence applied; empty: no condition Ready
	Heard         time.Time          // the last contact
	SilentSince   time.Time          // zero: not silent
	NotReadySince time.Time          // zero: ready, or no condition Ready
	Marks         int                // pods still to be marked as not ready
	// Place is the position among the nodes of the zone that wait for a NoExecute taint, from 1; 0:
	// not waiting. Due is the expected time of the taint at the zone's current rate; zero: never.
	Place int
	Due   time.Time
}

// ZoneReport describes the state of a zone.
type ZoneReport struct {
	State           ZoneState
	Ready, NotReady int     // nodes that count
	Waiting         int     // nodes that wait for a NoExecute taint
	Rate            float64 // NoExecute taints per second
}

// Report returns the state of all nodes, sorted by name. For a node that no Step has seen yet it
// uses the values of the API server.
func (c *Core) Report(now time.Time, seen Seen) []NodeReport {
	s := &step{Core: c, now: now, seen: seen}
	var all []NodeReport
	waiting := map[string][]int{}
	for _, name := range slices.Sorted(maps.Keys(seen.Nodes)) {
		n, r := seen.Nodes[name], c.records[name]
		v := view{node: n, record: r, counted: !s.excluded(n)}
		ready := condition(n, v1.NodeReady)
		if ready != nil {
			v.ready = ready.Status
		}
		if r == nil || r.uid != n.UID {
			all = append(all, NodeReport{Node: n, Zone: ZoneOf(n), Ready: v.ready,
				Heard: s.initialHeard(n, ready, s.leaseOf(n, nil))})
			continue
		}
		if !r.silentSince.IsZero() {
			v.ready = v1.ConditionUnknown
		}
		report := NodeReport{Node: n, Zone: ZoneOf(n), Ready: v.ready, Heard: r.heardAt, SilentSince: r.silentSince,
			NotReadySince: r.notReadySince, Marks: len(r.marks)}
		// a renewal since the last step
		if l := s.leaseOf(n, r); l != nil && r.hasLease && !r.renewTime.Equal(l.Spec.RenewTime) {
			_, arrived := s.arrivals(name)
			report.Heard = latest(report.Heard, arrived)
		}
		if s.awaitsTaint(&v) {
			waiting[report.Zone] = append(waiting[report.Zone], len(all))
		}
		all = append(all, report)
	}
	for key, queue := range waiting {
		slices.SortFunc(queue, func(a, b int) int {
			return compareQueued(c.records[all[a].Node.Name], c.records[all[b].Node.Name], cmp.Compare(a, b))
		})
		for i, at := range queue {
			all[at].Place = i + 1
			if z := c.zones[key]; z != nil {
				all[at].Due = z.bucket.NthToken(now, i+1)
			}
		}
	}
	return all
}

// Zones returns the state of all zones at the last Step.
func (c *Core) Zones() map[string]ZoneReport {
	zones := make(map[string]ZoneReport, len(c.zones))
	for key, z := range c.zones {
		zones[key] = ZoneReport{State: z.state, Ready: z.ready, NotReady: z.notReady, Waiting: z.waiting,
			Rate: z.bucket.Rate()}
	}
	return zones
}
