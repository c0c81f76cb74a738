package agent

import (
	"context"
	"slices"
	"time"

	"jettison/eviction"
	"jettison/internal/kill"
	"jettison/internal/records"
	"jettison/stats"
)

// resume goes on where the process before this one was: it was killed, it crashed, or it was told to stop in the middle of an eviction.
func (a *agent) resume(ctx context.Context, now time.Time, s records.State, running []records.Record) {
	a.holdAgain(now, &s)
	alive, dropped := a.manager.Resume(now, s.Manager)
	for _, err := range dropped {
		a.log.Warn("what was kept is not whole", "error", err)
	}
	open := map[string]records.Record{}
	for _, r := range running {
		open[r.ID] = r
	}
	for i := range s.Evictions {
		if a.again(ctx, now, &s.Evictions[i], open[s.Evictions[i].Record]) {
			delete(open, s.Evictions[i].Record)
		}
	}
	for i := range alive { // others wait for them, so their end has to be told
		if uid := alive[i].Pod.PodRef.UID; a.underway[uid] == nil {
			a.manager.Done(now, uid, true)
			a.manager.Cleaned(now, uid)
		}
	}
	for _, r := range open {
		if a.keeper != nil {
			r.Outcome = records.Abandoned
			a.keeper.Update(r)
		}
	}
	if len(s.Evictions)+len(s.HoldOffs)+len(s.Manager.Aside) > 0 {
		a.log.Info("going on where the agent was", "evictions", len(a.underway), "heldOff", len(s.HoldOffs), "setAside", len(s.Manager.Aside), "savedAt", s.Time)
	}
	a.changed = true
}

// again takes up one eviction that was under way. The pod's cgroup counts only if it is still the one that was chosen; where it is
// gone, the clean-up is left. One that was killed is not killed again: whoever lives in its cgroup now and is not dying came later. false:
// nothing is left to do.
func (a *agent) again(ctx context.Context, now time.Time, s *records.Underway, r records.Record) bool {
	e, err := s.Eviction.Eviction()
	if err != nil {
		return false // Load has said so
	}
	if s.Killed.Time.IsZero() && s.Emptied.Time.IsZero() && now.Sub(s.Deadline) > dieLimit {
		return false // what was short then may be plenty now: whoever is to go is chosen anew
	}
	gone := !s.Emptied.Time.IsZero() || a.cameBack(&e)
	var victim *kill.Victim
	if !gone {
		victim, err = a.pin(&e.Pod)
	}
	if gone || err != nil {
		e.Pod.Cgroup, gone = "", true
		if victim, err = a.pin(&e.Pod); err != nil { // no sandbox is known either
			return false
		}
	}
	victim.Since(s.Began.Time)
	u := &underway{
		eviction: e, reason: e.Reason, victim: victim, began: s.Began.Time, killed: kill.Stamp(s.Killed), record: r,
		met: a.metThen(&e, &r), resumed: true,
	}
	how := way{urgent: gone || !s.Killed.Time.IsZero(), cgroup: !gone, grace: max(s.Deadline.Sub(now), 0)}
	u.remove.Store(s.RemoveFiles && !a.kubelet)
	a.underway[e.Pod.PodRef.UID] = u
	a.log.Info("going on with an eviction", append(a.fields(u), "dead", gone, "killed", how.urgent && !gone)...)
	ctx, u.cancel = context.WithCancel(ctx)
	a.evictions.Go(func() { a.carryOut(ctx, u, how) })
	return true
}

// cameBack: the runtime has a newer sandbox of the pod than those that were chosen. A kubelet keeps one cgroup across them.
func (a *agent) cameBack(e *eviction.Eviction) bool {
	p := a.pods[e.Pod.PodRef.UID]
	return p != nil && len(e.Pod.SandboxIDs) > 0 && len(p.Sandboxes) > 0 && !slices.Contains(e.Pod.SandboxIDs, p.Sandboxes[0].ID)
}

// metThen is the threshold that an eviction is for, as it was when that began, as far as its record tells.
func (a *agent) metThen(e *eviction.Eviction, r *records.Record) eviction.Met {
	m := eviction.Met{Threshold: a.thresholdOf(e), Since: r.Began.Time}
	if d := r.Decided; d != nil && d.Available != nil && d.Capacity != nil {
		m.Observed = stats.Observation{Value: *d.Available, Capacity: *d.Capacity, Time: d.Time, OK: true}
		m.Limit = m.Threshold.Value.Of(*d.Capacity)
	}
	if r.Crossed != nil {
		m.Since = r.Crossed.Time
	}
	return m
}
