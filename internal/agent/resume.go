package agent

import (
	"context"
	"slices"
	"time"

	"jettison/eviction"
	"jettison/internal/kill"
	"jettison/internal/records"
)

// resume goes on where the process before this one was: it was killed, it crashed, or it was told to stop in the middle of an eviction.
func (a *agent) resume(ctx context.Context, now time.Time, s records.State, running []records.Record) {
	a.holdAgain(now, &s)
	for _, err := range a.manager.Resume(now, s.Manager) {
		a.log.Warn("what was kept is not whole", "error", err)
	}
	open := map[string]records.Record{}
	for _, r := range running {
		open[r.ID] = r
	}
	for _, l := range a.manager.Lives() {
		e := l.Eviction()
		held := a.held[e.Pod.PodRef.UID]
		held.signal = e.Signal
		a.held[e.Pod.PodRef.UID] = held
		if l.Phase() == eviction.Cleaned || a.again(ctx, now, l, open[l.Record]) {
			delete(open, l.Record)
			continue
		}
		a.manager.Gone(now, l)
	}
	for _, r := range open {
		if a.keeper != nil {
			r.Outcome = records.Abandoned
			a.keeper.Update(r)
		}
	}
	if len(s.Manager.Lives)+len(s.HoldOffs)+len(s.Manager.Aside) > 0 {
		a.log.Info("going on where the agent was", "evictions", len(a.underway), "heldOff", len(s.HoldOffs), "setAside", len(s.Manager.Aside), "savedAt", s.Time)
	}
	a.changed = true
}

// again takes up one eviction that was under way. false: nothing is left to do.
func (a *agent) again(ctx context.Context, now time.Time, l *eviction.Life, r records.Record) bool {
	if l.Lapsed(now) {
		return false
	}
	e := l.Eviction()
	pod := e.Pod
	gone := l.Dead() || a.cameBack(e)
	var victim *kill.Victim
	var err error
	if !gone {
		victim, err = a.pin(&pod)
	}
	if gone || err != nil {
		pod.Cgroup, gone = "", true
		if victim, err = a.pin(&pod); err != nil { // no sandbox is known either
			return false
		}
	}
	victim.Since(l.Began().Time)
	u := &underway{Life: l, reason: e.Reason, victim: victim, record: r}
	how := way{urgent: gone || !l.Killed().Time.IsZero(), cgroup: !gone, grace: max(l.Deadline().Sub(now), 0)}
	u.remove.Store(l.RemoveFiles && !a.kubelet)
	a.underway[e.Pod.PodRef.UID], a.lives[l] = u, u
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
