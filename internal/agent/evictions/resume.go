package evictions

import (
	"context"
	"slices"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/stats"
)

// Resume goes on with the evictions that the manager was given back: the process before this one
// was killed, it crashed, or it was told to stop in the middle of them. running are the records
// that say so. It returns how many go on.
func (v *Evictions) Resume(ctx context.Context, now time.Time, running []api.Record) int {
	open := map[string]api.Record{}
	for _, r := range running {
		open[r.ID] = r
	}
	n := 0
	for _, life := range slices.Clone(v.o.Manager.Lives()) {
		u := &underway{life: life, reason: life.Eviction().Reason, job: &job{began: life.Began().Time,
			cancel: func() {}}}
		if r, has := open[life.Record]; has {
			u.record = &r
		}
		// Of one that was cleaned up already only the outcome is awaited, or was not recorded yet.
		awaited := life.Phase() == eviction.Cleaned || life.Phase() == eviction.Over
		if !awaited && !v.again(ctx, now, u) {
			v.o.Manager.Gone(now, life)
			continue
		}
		n++
		v.underway[life] = u
		delete(open, life.Record)
	}
	for _, r := range open {
		v.abandon(r)
	}
	v.followKept(now)
	v.o.Keeper.Changed()
	return n
}

// again takes up one eviction that was under way. The pod's cgroup counts only if it is still the
// one that was chosen; where it is gone, the clean-up is left. One that was killed is not killed
// again: what lives in its cgroup now and is not dying came later. But where that kill only waited
// for the kernel when it was kept, and the sandbox is known to be the same, too, it lives perhaps:
// then it is. false: nothing is left to do.
func (v *Evictions) again(ctx context.Context, now time.Time, u *underway) bool {
	life := u.life
	if life.Lapsed(now) { // what was short then may be plenty now: a victim is chosen anew
		return false
	}
	pod := life.Eviction().Pod
	gone := life.Dead() || v.cameBack(&pod)
	var err error
	if !gone {
		u.victim, err = v.o.Pin(&pod)
	}
	if gone || err != nil {
		pod.Cgroup, gone = "", true
		if u.victim, err = v.o.Pin(&pod); err != nil { // no sandbox is known either
			return false
		}
	}
	if u.victim.Since(life.Began()); len(pod.SandboxIDs) > 0 {
		u.victim.Settle()
	}
	killed := !life.Killed().Time.IsZero()
	u.urgent, u.cgroup, u.grace = gone || killed, !gone, max(life.Deadline().Sub(now), 0)
	u.remove.Store(life.RemoveFiles && !v.o.Kubelet())
	again := killed && !gone && life.KillWaits && v.stayed(&pod)
	if again {
		u.killErr = u.victim.Kill()
	}
	v.o.Log.Info("going on with an eviction", append(v.fields(u), api.EventEviction.Attr(), "dead",
		gone, "killed", killed &&
			!gone, "killedAgain", again)...)
	v.carry(ctx, u)
	return true
}

// stayed: the runtime has no newer sandbox of the pod than those that were chosen, and has one of
// them.
func (v *Evictions) stayed(was *stats.PodStats) bool {
	p := v.o.Pods.All()[was.PodRef.UID]
	return p != nil && len(p.Sandboxes) > 0 && slices.Contains(was.SandboxIDs, p.Sandboxes[0].ID)
}

// cameBack: the runtime has a newer sandbox of the pod than those that were chosen. A kubelet keeps
// one cgroup across them.
func (v *Evictions) cameBack(was *stats.PodStats) bool {
	p := v.o.Pods.All()[was.PodRef.UID]
	return p != nil && len(was.SandboxIDs) > 0 && len(p.Sandboxes) > 0 &&
		!slices.Contains(was.SandboxIDs, p.Sandboxes[0].ID)
}
