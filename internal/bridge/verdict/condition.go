package verdict

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/stats"
)

// ConditionPrefix begins the type of each condition that bridges write. The kubelet owns those
// without it, and would write them back.
const ConditionPrefix = "Jettison"

// Conditions of a node, those of the kubelet's that have signals.
var conditions = []v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure,
	v1.NodePIDPressure}

// HeartbeatEvery is the time between two writes of conditions that say nothing new: the kubelet's
// for its own status (nodeStatusReportFrequency of its configuration, v1.36.3).
const HeartbeatInterval = 5 * time.Minute

// SilentFor is how long an agent may say nothing until its conditions are Unknown: as long as a
// cluster waits for a kubelet by default.
const AgentTimeout = 40 * time.Second

// Reasons of conditions. The kubelet's own say what is the kubelet's, so these differ.
const (
	reasonUnknown    = "AgentSilent"
	reasonPressure   = "AgentFindsPressure"
	reasonEvicted    = "AgentHasEvicted"
	reasonNoPressure = "AgentFindsNoPressure"
)

// NodeOptions of NodeConditions.
type NodeOptions struct {
	// Period is how long a condition stays true after the last eviction for it:
	// evictionPressureTransitionPeriod.
	Period time.Duration
}

// NodeConditions are those that the node's status should have by now and does not: nil where
// nothing is to be written. was are those that it has, s what the agent has said last and heard
// when; a nil s: nothing, since then. Where there is no kubelet nothing is written: conditions that
// are fresh beside a node that nobody vouches for would pretend that it is looked after.
func NodeConditions(now time.Time, s *api.State, heard time.Time, was []v1.NodeCondition,
	o NodeOptions) []v1.NodeCondition {
	switch {
	case s == nil:
		return staleConditions(now, heard, was)
	case !s.Kubelet:
		return nil
	}
	var out []v1.NodeCondition
	due := false
	for _, kind := range conditions {
		c := v1.NodeCondition{Type: ConditionPrefix + kind,
			LastHeartbeatTime: metav1.NewTime(now.Truncate(time.Second))}
		c.Status, c.Reason, c.Message = judgeCondition(now, s, heard, kind, o)
		c.LastTransitionTime = c.LastHeartbeatTime
		before := conditionOf(was, c.Type)
		switch {
		case before == nil, before.Status != c.Status:
			due = true
		default:
			c.LastTransitionTime = before.LastTransitionTime
			since := now.Sub(before.LastHeartbeatTime.Time)
			// the clock was set back
			due = due || before.Reason != c.Reason || since >= HeartbeatInterval || since < 0
		}
		out = append(out, c)
	}
	if !due {
		return nil
	}
	return out
}

// forsaken are conditions of a bridge before this one, to which the agent has said nothing yet:
// they are taken back once, for what they say may be over for long. It is not known whether there
// is a kubelet, so no other is written.
func staleConditions(now, heard time.Time, was []v1.NodeCondition) (out []v1.NodeCondition) {
	if now.Sub(heard) <= AgentTimeout {
		return nil
	}
	for _, kind := range conditions {
		c := conditionOf(was, ConditionPrefix+kind)
		if c == nil || c.Status == v1.ConditionUnknown {
			continue
		}
		at := metav1.NewTime(now.Truncate(time.Second))
		out = append(out, v1.NodeCondition{
			Type: c.Type, Status: v1.ConditionUnknown, Reason: reasonUnknown, Message: silenceMessage(heard),
			LastHeartbeatTime: at, LastTransitionTime: at,
		})
	}
	return out
}

// silent says that the agent is.
func silenceMessage(since time.Time) string {
	return "jettison on this node has said nothing since " + since.UTC().Format(time.RFC3339)
}

// judgeCondition says what a condition is, and why.
func judgeCondition(
	now time.Time, s *api.State, heard time.Time, kind v1.NodeConditionType, o NodeOptions,
) (status v1.ConditionStatus, reason, message string) {
	if now.Sub(heard) > AgentTimeout {
		return v1.ConditionUnknown, reasonUnknown, silenceMessage(heard)
	}
	for _, c := range s.Conditions {
		if string(c.Type) == string(kind) && c.Status {
			return v1.ConditionTrue, reasonPressure, "jettison finds " + string(kind) + " on this node"
		}
	}
	for _, e := range s.Evicted {
		// else the clock was set back
		if since := now.Sub(e.Time); signalCondition(e.Signal) == kind && since < o.Period &&
			since > -o.Period {
			return v1.ConditionTrue, reasonEvicted, "jettison has evicted a pod of this node for " +
				string(e.Signal)
		}
	}
	return v1.ConditionFalse, reasonNoPressure, "jettison finds no " + string(kind) + " on this node"
}

// conditionFor is the condition that a signal raises; empty: none that a node has.
func signalCondition(s stats.Signal) v1.NodeConditionType {
	name := string(s)
	switch {
	case strings.HasPrefix(name, "memory."), strings.HasPrefix(name, "allocatableMemory."),
		strings.HasPrefix(name, "swap."):
		return v1.NodeMemoryPressure
	case strings.HasPrefix(name, "nodefs."), strings.HasPrefix(name, "imagefs."),
		strings.HasPrefix(name, "containerfs."):
		return v1.NodeDiskPressure
	case strings.HasPrefix(name, "pid."):
		return v1.NodePIDPressure
	}
	return ""
}

func conditionOf(all []v1.NodeCondition, kind v1.NodeConditionType) *v1.NodeCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}
