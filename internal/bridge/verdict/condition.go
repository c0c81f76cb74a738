package verdict

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/stats"
)

// ConditionPrefix starts the type of each condition that bridges write. Conditions without it
// belong to the kubelet, which would overwrite them.
const ConditionPrefix = "Jettison"

// conditions are the kubelet's node conditions that have eviction signals.
var conditions = []v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure,
	v1.NodePIDPressure}

// HeartbeatInterval is the time between two writes of unchanged conditions: the kubelet's interval
// for its own status (nodeStatusReportFrequency of its configuration, v1.36.3).
const HeartbeatInterval = 5 * time.Minute

// AgentTimeout is the time without contact to the agent after which its conditions become Unknown.
// It is shorter than kube-controller-manager's default grace period for a kubelet
// (node-monitor-grace-period: 50 s, v1.36.3).
const AgentTimeout = 40 * time.Second

// Reasons of conditions. They differ from the kubelet's, which stand for the kubelet's own
// findings.
const (
	reasonUnknown    = "AgentSilent"
	reasonPressure   = "AgentFindsPressure"
	reasonEvicted    = "AgentHasEvicted"
	reasonNoPressure = "AgentFindsNoPressure"
)

// NodeOptions configures NodeConditions.
type NodeOptions struct {
	// Period is the time that a condition stays True after the last eviction for it:
	// evictionPressureTransitionPeriod.
	Period time.Duration
}

// NodeConditions returns the conditions to write to the node's status, or nil if none is due. s is
// the agent's last state, received at lastContact; nil: this process has received none. existing
// are the conditions that the node has now. Without a kubelet it returns nil: fresh conditions on a
// node without a kubelet would pretend that the node is maintained.
func NodeConditions(now time.Time, s *api.State, lastContact time.Time, existing []v1.NodeCondition,
	o NodeOptions) []v1.NodeCondition {
	switch {
	case s == nil:
		return staleConditions(now, lastContact, existing)
	case !s.Kubelet:
		return nil
	}
	var out []v1.NodeCondition
	due := false
	for _, kind := range conditions {
		c := v1.NodeCondition{Type: ConditionPrefix + kind,
			LastHeartbeatTime: metav1.NewTime(now.Truncate(time.Second))}
		c.Status, c.Reason, c.Message = judgeCondition(now, s, lastContact, kind, o)
		c.LastTransitionTime = c.LastHeartbeatTime
		before := conditionOf(existing, c.Type)
		switch {
		case before == nil, before.Status != c.Status:
			due = true
		default:
			c.LastTransitionTime = before.LastTransitionTime
			since := now.Sub(before.LastHeartbeatTime.Time)
			// negative: the clock was set back
			due = due || before.Reason != c.Reason || since >= HeartbeatInterval || since < 0
		}
		out = append(out, c)
	}
	if !due {
		return nil
	}
	return out
}

// staleConditions returns the conditions of an earlier bridge, set to Unknown, if the agent has not
// responded to this bridge for AgentTimeout: the conditions may be stale. It returns each condition
// only once and adds none, because it is unknown whether the node has a kubelet.
func staleConditions(now, lastContact time.Time, existing []v1.NodeCondition) (out []v1.NodeCondition) {
	if now.Sub(lastContact) <= AgentTimeout {
		return nil
	}
	for _, kind := range conditions {
		c := conditionOf(existing, ConditionPrefix+kind)
		if c == nil || c.Status == v1.ConditionUnknown {
			continue
		}
		at := metav1.NewTime(now.Truncate(time.Second))
		out = append(out, v1.NodeCondition{
			Type: c.Type, Status: v1.ConditionUnknown, Reason: reasonUnknown, Message: silenceMessage(lastContact),
			LastHeartbeatTime: at, LastTransitionTime: at,
		})
	}
	return out
}

// silenceMessage returns the message of a condition that is Unknown.
func silenceMessage(since time.Time) string {
	return "jettison on this node has not responded since " + since.UTC().Format(time.RFC3339)
}

// judgeCondition returns the status, reason and message of a condition.
func judgeCondition(
	now time.Time, s *api.State, lastContact time.Time, kind v1.NodeConditionType, o NodeOptions,
) (status v1.ConditionStatus, reason, message string) {
	if now.Sub(lastContact) > AgentTimeout {
		return v1.ConditionUnknown, reasonUnknown, silenceMessage(lastContact)
	}
	for _, c := range s.Conditions {
		if string(c.Type) == string(kind) && c.Status {
			return v1.ConditionTrue, reasonPressure, "jettison detected " + string(kind) + " on this node"
		}
	}
	for _, e := range s.Evicted {
		// since <= -o.Period: the clock was set back
		if since := now.Sub(e.Time); signalCondition(e.Signal) == kind && since < o.Period &&
			since > -o.Period {
			return v1.ConditionTrue, reasonEvicted, "jettison evicted a pod on this node for " +
				string(e.Signal)
		}
	}
	return v1.ConditionFalse, reasonNoPressure, "jettison detected no " + string(kind) + " on this node"
}

// signalCondition returns the node condition that a signal raises; empty: none.
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
