package agent

import (
	"slices"
	"time"

	"jettison/eviction"
)

// conditionState is a condition of the node as it was last logged.
type conditionState struct {
	status bool
	since  time.Time // zero: it was never true
}

// conditionsChanged logs each condition that has become true or is not any more, with the kubelet's reasons.
func (a *agent) conditionsChanged(now time.Time, met []eviction.Met) {
	held := a.manager.Ready(now).Conditions
	for _, c := range eviction.Conditions {
		status := slices.Contains(held, c)
		if status == a.conditions[c].status {
			continue
		}
		a.conditions[c] = conditionState{status, now}
		fields := []any{"condition", c, "status", status, "reason", c.Reason(status), "event", c.Event(status)}
		for _, m := range met {
			if m.Condition() == c {
				fields = append(fields, signalFields(m)...)
				break
			}
		}
		a.log.Info("condition", fields...)
	}
}
