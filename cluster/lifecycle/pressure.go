package lifecycle

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// freshFor is how long a condition of a bridge counts after its last heartbeat: a bridge that is
// gone takes none of its own back.
const freshFor = 15 * time.Minute

// taintPrefix is of keys that autoscalers do not take over into what they think a new node is like
// (cluster-autoscaler's utils/taints/taints.go, StatusTaintPrefix).
const taintPrefix = "status-taint.cluster-autoscaler.kubernetes.io/"

// byBridge are the conditions that jettison-bridge posts, and the taints that they stand for. A
// bridge may not write taints itself.
var byBridge = []struct {
	condition v1.NodeConditionType
	key       string
}{
	{"JettisonMemoryPressure", taintPrefix + "jettison-memory-pressure"},
	{"JettisonDiskPressure", taintPrefix + "jettison-disk-pressure"},
	{"JettisonPIDPressure", taintPrefix + "jettison-pid-pressure"},
}

// pressures says which taints of those a node is to have.
func (s *step) pressures(c *change, v *view, conditions []v1.NodeCondition) {
	for _, b := range byBridge {
		holds := s.config.PressureTaint != PressureOff && s.pressed(v.node.Name, v.record, conditions,
			b.condition)
		c.want(b.key, v1.TaintEffectPreferNoSchedule, holds && s.config.PressureTaint != PressureHard)
		c.want(b.key, v1.TaintEffectNoSchedule, holds && s.config.PressureTaint == PressureHard)
	}
}

// pressed reports whether a condition holds and is fresh. Its heartbeat is the node's clock's: at
// first sight that is believed, if it is not in the future; later it is fresh as long as it
// changes.
func (s *step) pressed(name string, r *record, conditions []v1.NodeCondition,
	t v1.NodeConditionType) bool {
	for i := range conditions {
		at := conditions[i].LastHeartbeatTime
		if conditions[i].Type != t {
			continue
		}
		last, known := r.pressure[t]
		switch {
		case !known:
			last = beat{at: at, heard: s.past(at.Time)}
		case !last.at.Equal(&at):
			came, _ := s.came(name)
			last = beat{at: at, heard: came}
		}
		r.pressure[t] = last
		if conditions[i].Status != v1.ConditionTrue || s.now.Sub(last.heard) >= freshFor {
			return false
		}
		s.again(last.heard.Add(freshFor))
		return true
	}
	delete(r.pressure, t)
	return false
}
