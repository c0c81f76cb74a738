package lifecycle

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Report is how a node is found.
type Report struct {
	Node   *v1.Node
	Zone   string
	Ready  v1.ConditionStatus // what silence makes of it; empty: the node says nothing of it
	Heard  time.Time          // when it was heard of last
	Silent time.Time          // since when it is silent; zero: it is not
	Failed time.Time          // since when it is not ready; zero: it is, or says nothing of it
	Marks  int                // pods of it that are still to be marked as not ready
	// Place is its place among the nodes of its zone that wait for a NoExecute taint, from 1; 0: it
	// does not wait. Due is when its turn is, at the zone's present rate; zero: never.
	Place int
	Due   time.Time
}

// ZoneReport is how the nodes of a zone are found, all in all.
type ZoneReport struct {
	State           ZoneState
	Ready, NotReady int     // that count
	Waiting         int     // for a NoExecute taint
	Rate            float64 // nodes a second that get one
}

// Report tells of all nodes, sorted by name. Of one that no Step has seen yet it tells what the API
// says.
func (c *Core) Report(now time.Time, seen Seen) []Report {
	s := &step{Core: c, now: now, seen: seen}
	var all []Report
	waiting := map[string][]int{}
	for _, name := range slices.Sorted(maps.Keys(seen.Nodes)) {
		n, r := seen.Nodes[name], c.records[name]
		v := view{node: n, record: r, counted: !s.excluded(n)}
		ready := condition(n, v1.NodeReady)
		if ready != nil {
			v.ready = ready.Status
		}
		if r == nil || r.uid != n.UID {
			all = append(all, Report{Node: n, Zone: ZoneOf(n), Ready: v.ready,
				Heard: s.firstHeard(n, ready, seen.Leases[name])})
			continue
		}
		if !r.silent.IsZero() {
			v.ready = v1.ConditionUnknown
		}
		one := Report{Node: n, Zone: ZoneOf(n), Ready: v.ready, Heard: r.heard, Silent: r.silent,
			Failed: r.failed, Marks: len(r.marks)}
		// since the last step
		if l := seen.Leases[name]; l != nil && r.leased && !r.renew.Equal(l.Spec.RenewTime) {
			_, came := s.came(name)
			one.Heard = latest(one.Heard, came)
		}
		if s.waits(&v) {
			waiting[one.Zone] = append(waiting[one.Zone], len(all))
		}
		all = append(all, one)
	}
	for key, queue := range waiting {
		slices.SortFunc(queue, func(a, b int) int {
			return order(c.records[all[a].Node.Name], c.records[all[b].Node.Name], cmp.Compare(a, b))
		})
		for i, at := range queue {
			all[at].Place = i + 1
			if z := c.zones[key]; z != nil {
				all[at].Due = z.bucket.Nth(now, i+1)
			}
		}
	}
	return all
}

// Zones tells of all zones, as the last Step has found them.
func (c *Core) Zones() map[string]ZoneReport {
	zones := make(map[string]ZoneReport, len(c.zones))
	for key, z := range c.zones {
		zones[key] = ZoneReport{State: z.state, Ready: z.ready, NotReady: z.notReady, Waiting: z.waiting,
			Rate: z.bucket.Rate()}
	}
	return zones
}
