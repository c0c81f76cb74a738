package lifecycle

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/node/topology"

	"jettison/cluster"
)

// ZoneState is the disruption state of a zone.
type ZoneState string

// The zone states, named as upstream.
const (
	Normal            ZoneState = "Normal"
	PartialDisruption ZoneState = "PartialDisruption"
	FullDisruption    ZoneState = "FullDisruption"
)

// NoZone is the zone of nodes without zone labels.
const NoZone = ":"

// labelExcluded, with any value, excludes a node from its zone's state.
const labelExcluded = "node.kubernetes.io/exclude-disruption"

// labelControlPlane marks control plane nodes (k8s.io/kubernetes/cmd/kubeadm).
const labelControlPlane = "node-role.kubernetes.io/control-plane"

// zone is the state kept for a zone while it has nodes.
type zone struct {
	bucket    *cluster.Bucket
	lastTaker types.UID // the node that got the last token
	state     ZoneState
	tally
}

// tally holds the counts of a zone in one step.
type tally struct {
	ready, notReady int       // nodes that count
	silent          int       // nodes that count and are silent
	lastSilent      time.Time // when the last of them fell silent
	excludedReady   int       // ready nodes that do not count
	waiting         int       // nodes that wait for a NoExecute taint
	nodes           int       // all nodes of the zone
	lastTainted     time.Time // newest TimeAdded of the NoExecute taints, for a new zone
}

// ZoneOf returns "region:zone" of a node. The deprecated labels take precedence, as upstream.
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

// stateOf computes the state of a zone as upstream's ComputeZoneState.
func (s *step) stateOf(t *tally) ZoneState {
	switch all := t.ready + t.notReady; {
	case t.ready == 0 && t.notReady > 0:
		return FullDisruption
	case t.notReady > 2 && float32(t.notReady)/float32(all) >= s.config.UnhealthyZoneThreshold:
		return PartialDisruption
	}
	return Normal
}

// rateOf returns the rate of a zone in nodes per second. A small zone in partial disruption has
// rate 0, because its remaining nodes may not have the capacity for more pods.
func (s *step) rateOf(z *zone) float64 {
	switch {
	case s.out.Doubt != "" || s.allDisrupted:
		return 0
	case z.state != PartialDisruption:
		return s.config.NodeEvictionRate
	case z.ready+z.notReady > int(s.config.LargeClusterSizeThreshold):
		return s.config.SecondaryNodeEvictionRate
	}
	return 0
}

// updateZones sets the state and the rate of each zone.
func (s *step) updateZones() {
	s.countNodes()
	counted, full := 0, 0
	for key, z := range s.zones {
		if z.nodes == 0 {
			delete(s.zones, key)
			continue
		}
		if z.ready == 0 && (z.notReady > 0 || z.excludedReady == 0) {
			s.out.NoneReady[key] = true
		}
		z.state = s.stateOf(&z.tally)
		if z.ready+z.notReady == 0 {
			continue // all nodes are excluded
		}
		counted++
		s.out.Zones[key] = z.state
		if z.state == FullDisruption {
			full++
		}
	}
	s.setAllDisrupted(counted > 0 && full == counted)
	s.updateDoubt()
	for _, z := range s.zones {
		if z.bucket == nil {
			if s.config.DelayFirstToken && !s.started {
				z.lastTainted = s.now
			}
			z.bucket = cluster.NewBucket(s.now, s.config.NodeEvictionRate, z.lastTainted)
		}
		z.bucket.SetRate(s.now, s.rateOf(z))
	}
}

// countNodes counts the nodes of each zone.
func (s *step) countNodes() {
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
			z.lastTainted = latest(z.lastTainted, s.lastNoExecute(v.node))
		}
		switch {
		case !v.counted && v.ready == v1.ConditionTrue:
			z.excludedReady++
		case !v.counted:
		case v.ready == v1.ConditionTrue:
			z.ready++
		default:
			z.notReady++
			z.addSilent(v.record.silentSince)
		}
	}
}

// addSilent counts a node that is not ready. silent is zero if the node is not silent.
func (t *tally) addSilent(silent time.Time) {
	if silent.IsZero() {
		return
	}
	t.silent++
	t.lastSilent = latest(t.lastSilent, silent)
}

// lastNoExecute returns the newest TimeAdded of the node's own NoExecute taints, or zero.
func (s *step) lastNoExecute(n *v1.Node) (at time.Time) {
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; isOwnNoExecute(t) && t.TimeAdded != nil {
			at = latest(at, s.fromServerTime(t.TimeAdded.Time))
		}
	}
	return at
}

// setAllDisrupted records whether all zones are in full disruption. When that begins, all NoExecute
// taints are removed: the loss of contact with the nodes is more likely than the death of all. When
// it ends, all nodes get a new grace period. A node keeps its taints in its first step, because the
// disruption may have begun long before.
func (s *step) setAllDisrupted(all bool) {
	switch {
	case all && !s.allDisrupted:
		for i := range s.views {
			s.views[i].record.clearTaints = !s.views[i].record.isNew
		}
	case !all && s.allDisrupted:
		for i := range s.views {
			r := s.views[i].record
			r.heardAt, r.clearTaints = s.now, false
		}
	}
	s.allDisrupted = all
}
