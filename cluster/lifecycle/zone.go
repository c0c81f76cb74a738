package lifecycle

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/node/topology"

	"jettison/cluster"
)

// ZoneState is how the nodes of a zone are, all in all.
type ZoneState string

// The states, in upstream's words.
const (
	Normal            ZoneState = "Normal"
	PartialDisruption ZoneState = "PartialDisruption"
	FullDisruption    ZoneState = "FullDisruption"
)

// NoZone is the zone of nodes without labels of one.
const NoZone = ":"

// labelExcluded is on nodes that do not count in their zone, whatever its value.
const labelExcluded = "node.kubernetes.io/exclude-disruption"

// labelControlPlane is on nodes of the control plane (k8s.io/kubernetes/cmd/kubeadm).
const labelControlPlane = "node-role.kubernetes.io/control-plane"

// zone is what is remembered of one, as long as a node is in it.
type zone struct {
	bucket *cluster.Bucket
	taker  types.UID // of the node that has had the last token
	state  ZoneState
	tally
}

// tally is a zone in one step.
type tally struct {
	ready, notReady int // that count
	silent          int // of those
	waiting         int // for a NoExecute taint
	from, to        time.Time
	nodes           int
	last            time.Time // when a node of it was tainted, as far as taints tell
}

// ZoneOf is "region:zone" of a node. The labels of old go before those of today, as upstream's.
func ZoneOf(n *v1.Node) string {
	key := topology.GetZoneKey(n)
	if key == "" {
		return NoZone
	}
	return strings.Replace(key, ":\x00:", ":", 1)
}

func (s *step) excluded(n *v1.Node) bool {
	_, excluded := n.Labels[labelExcluded]
	_, controls := n.Labels[labelControlPlane]
	return excluded || controls && s.config.ExcludeControlPlane
}

// stateOf is upstream's ComputeZoneState.
func (s *step) stateOf(t *tally) ZoneState {
	switch all := t.ready + t.notReady; {
	case t.ready == 0 && t.notReady > 0:
		return FullDisruption
	case t.notReady > 2 && float32(t.notReady)/float32(all) >= s.config.UnhealthyZoneThreshold:
		return PartialDisruption
	}
	return Normal
}

// rateOf is how many nodes of a zone are tainted a second. A partly disrupted zone that is small
// has none: what is left of it may not bear what would come.
func (s *step) rateOf(z *zone) float64 {
	switch {
	case s.out.Doubt != "" || s.disorder:
		return 0
	case z.state != PartialDisruption:
		return s.config.NodeEvictionRate
	case z.ready+z.notReady > int(s.config.LargeClusterSizeThreshold):
		return s.config.SecondaryNodeEvictionRate
	}
	return 0
}

// judgeZones finds the state of each zone, and sets its rate.
func (s *step) judgeZones() {
	s.count()
	counted, full := 0, 0
	for key, z := range s.zones {
		if z.nodes == 0 {
			delete(s.zones, key)
			continue
		}
		z.state = s.stateOf(&z.tally)
		if z.ready+z.notReady == 0 {
			continue // all of them are excluded
		}
		counted++
		s.out.Zones[key] = z.state
		if z.state == FullDisruption {
			full++
		}
	}
	s.disordered(counted > 0 && full == counted)
	s.doubts()
	for _, z := range s.zones {
		if z.bucket == nil {
			if s.config.FirstWaits && !s.begun {
				z.last = s.now
			}
			z.bucket = cluster.NewBucket(s.now, s.config.NodeEvictionRate, z.last)
		}
		z.bucket.SetRate(s.now, s.rateOf(z))
	}
}

// count tallies the nodes of each zone.
func (s *step) count() {
	for _, z := range s.zones {
		z.tally = tally{}
	}
	for i := range s.views {
		v := &s.views[i]
		key := v.zone
		z := s.zones[key]
		if z == nil {
			z = &zone{}
			s.zones[key] = z
		}
		z.nodes++
		if z.bucket == nil {
			z.last = latest(z.last, s.tainted(v.node))
		}
		switch {
		case !v.counted:
		case v.ready == v1.ConditionTrue:
			z.ready++
		default:
			z.notReady++
			z.fallen(v.record.silent)
		}
	}
}

// fallen counts a node that is not ready; silent is since when it is silent, if it is.
func (t *tally) fallen(silent time.Time) {
	if silent.IsZero() {
		return
	}
	t.silent++
	cluster.Earliest(&t.from, silent)
	t.to = latest(t.to, silent)
}

// tainted is when a node got the last of its NoExecute taints of ours; zero: it has none that says.
func (s *step) tainted(n *v1.Node) (at time.Time) {
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; noExecute(t) && t.TimeAdded != nil {
			at = latest(at, s.past(t.TimeAdded.Time))
		}
	}
	return at
}

// disordered notes whether all zones are down. When that begins no node keeps a NoExecute taint,
// for it is more likely that nobody hears the nodes than that all are dead; when it ends, all nodes
// have a new grace period. At a start nothing begins: it may have begun long ago, and taints that a
// node has had through it are left.
func (s *step) disordered(all bool) {
	switch {
	case all && !s.disorder:
		for i := range s.views {
			s.views[i].record.clear = !s.views[i].record.first
		}
	case !all && s.disorder:
		for i := range s.views {
			r := s.views[i].record
			r.heard, r.clear = s.now, false
		}
	}
	s.disorder = all
}
