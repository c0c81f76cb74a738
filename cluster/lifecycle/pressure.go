package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// maxHeartbeatAge bounds the age of a bridge's condition. The conditions of a bridge that stopped
// stay on the node.
const maxHeartbeatAge = 15 * time.Minute

// taintPrefix marks taints that autoscalers do not copy to their templates of new nodes
// (cluster-autoscaler's utils/taints/taints.go, StatusTaintPrefix).
const taintPrefix = "status-taint.cluster-autoscaler.kubernetes.io/"

// bridgeConditions lists the conditions that jettison-bridge posts and their taint keys. The bridge
// has no permission to write taints.
var bridgeConditions = []struct {
	condition v1.NodeConditionType
	key       string
}{
	{"JettisonMemoryPressure", taintPrefix + "jettison-memory-pressure"},
	{"JettisonDiskPressure", taintPrefix + "jettison-disk-pressure"},
	{"JettisonPIDPressure", taintPrefix + "jettison-pid-pressure"},
}

// wantPressureTaints adds the pressure taints that the node must have and removes the others.
func (s *step) wantPressureTaints(c *taintChange, v *view, conditions []v1.NodeCondition) {
	for _, b := range bridgeConditions {
		pressed := s.config.PressureTaint != PressureOff && s.underPressure(v.node.Name, v.record, conditions,
			b.condition)
		c.want(b.key, v1.TaintEffectPreferNoSchedule, pressed && s.config.PressureTaint != PressureHard)
		c.want(b.key, v1.TaintEffectNoSchedule, pressed && s.config.PressureTaint == PressureHard)
	}
}

// underPressure reports whether a condition is True and recent. The heartbeat is a time of the
// node's clock. The first one counts as posted at that time, or now if it is in the future; each
// later one counts from its arrival.
func (s *step) underPressure(name string, r *record, conditions []v1.NodeCondition,
	t v1.NodeConditionType) bool {
	for i := range conditions {
		at := conditions[i].LastHeartbeatTime
		if conditions[i].Type != t {
			continue
		}
		last, known := r.pressure[t]
		switch {
		case !known:
			last = heartbeat{at: at, heardAt: s.notAfterNow(at.Time)}
		case !last.at.Equal(&at):
			arrived, _ := s.arrivals(name)
			last = heartbeat{at: at, heardAt: arrived}
		}
		r.pressure[t] = last
		if conditions[i].Status != v1.ConditionTrue || s.now.Sub(last.heardAt) >= maxHeartbeatAge {
			return false
		}
		s.wakeAt(last.heardAt.Add(maxHeartbeatAge))
		return true
	}
	delete(r.pressure, t)
	return false
}
