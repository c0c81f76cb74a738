package evictions

import (
	"time"

	"jettison/eviction"
	"jettison/stats"
)

// countOutcome counts an eviction with a known outcome. Pods stopped for a critical pod are counted
// by the success of the preemption; descheduled pods appear in the log and the records only.
func (v *Evictions) countOutcome(now time.Time, u *progress) {
	l := u.life
	e := l.Eviction()
	if e.Planned() {
		return
	}
	v.counts.Outcomes.Add(1, string(e.Signal), l.Outcome().String(), string(e.Pod.QOSClass), "false")
	if l.Outcome() == eviction.OutcomeUndying {
		return
	}
	began := l.Killed().Time
	if since := l.Met().Since; !began.IsZero() && !since.IsZero() && l.Met().Threshold.Hard() &&
		!l.Resumed() {
		v.counts.ToKill.Observe(began.Sub(since))
	}
	if began.IsZero() {
		began = l.Began().Time
	}
	if l.Outcome() == eviction.OutcomeBack {
		v.counts.ToRecovery.Observe(now.Sub(began))
	}
	if !inBytes(e.Signal) {
		return
	}
	v.counts.Predicted.Add(e.Returns)
	if released, ok := l.Released(); ok {
		v.counts.Released.Add(released)
	}
}

// inBytes reports whether a signal is measured in bytes.
func inBytes(s stats.Signal) bool {
	switch s {
	case stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable,
		stats.SignalSwapAvailable,
		stats.SignalNodeFsAvailable, stats.SignalImageFsAvailable, stats.SignalContainerFsAvailable:
		return true
	}
	return false
}

// countSteps counts the failed steps of an eviction after its last step.
func (v *Evictions) countSteps(u *progress) {
	if u.victim == nil {
		return
	}
	for _, s := range u.victim.Steps() {
		if s.Err != nil {
			v.counts.StepErrors.Add(1, s.Name)
		}
	}
}
