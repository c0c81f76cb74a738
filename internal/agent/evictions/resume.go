package evictions

import (
	"context"
	"slices"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/stats"
)

// Resume continues the evictions that the manager restored: the previous process was killed,
// crashed or stopped in the middle of them. running are their records. It returns the number of
// evictions that continue.
func (v *Evictions) Resume(ctx context.Context, now time.Time, running []api.Record) int {
	open := map[string]api.Record{}
	for _, r := range running {
		open[r.ID] = r
	}
	n := 0
	for _, life := range slices.Clone(v.o.Manager.Lives()) {
		u := &progress{life: life, reason: life.Eviction().Reason, job: &job{began: life.Began().Time,
			cancel: func() {}}}
		if r, has := open[life.Record]; has {
			u.record = &r
		}
		// After the clean-up only the outcome, or its record, is missing.
		awaited := life.Phase() == eviction.Cleaned || life.Phase() == eviction.Over
		if !awaited && !v.resumeOne(ctx, now, u) {
			v.o.Manager.Abandon(now, life)
			continue
		}
		n++
		v.inProgress[life] = u
		delete(open, life.Record)
	}
	for _, r := range open {
		v.abandon(r)
	}
	v.watchRecorded(now)
	v.o.Keeper.Changed()
	return n
}

// resumeOne resumes one eviction in progress. The pod's cgroup is used only if it is still the
// chosen one; if it is gone, only the clean-up remains. A pod that was killed is not killed again:
// processes in its cgroup that are not dying started later. It is killed again only if the stored
// kill was still waiting for the kernel and the sandbox is known to be the same, because then the
// pod may be alive. It returns false if nothing is left to do.
func (v *Evictions) resumeOne(ctx context.Context, now time.Time, u *progress) bool {
	life := u.life
	if life.GracePeriodLapsed(now) { // the resource may be plentiful now: a victim is chosen again
		return false
	}
	pod := life.Eviction().Pod
	gone := life.Dead() || v.newSandbox(&pod)
	if known := v.o.Pods.All()[pod.PodRef.UID]; known != nil && !gone {
		pod.Outside = known.Outside
	}
	var err error
	if !gone {
		u.victim, err = v.o.Pin(&pod)
	}
	if gone || err != nil {
		pod.Cgroup, pod.Outside, gone = "", nil, true
		if u.victim, err = v.o.Pin(&pod); err != nil { // no sandbox is known, either
			return false
		}
	}
	if u.victim.Since(life.Began()); len(pod.SandboxIDs) > 0 {
		u.victim.Settle()
	}
	killed := !life.Killed().Time.IsZero()
	u.urgent, u.cgroup, u.grace = gone || killed, u.victim.Located(), max(life.Deadline().Sub(now), 0)
	u.remove.Store(life.RemoveFiles && !v.o.Kubelet())
	again := killed && !gone && life.KillPending && v.sameSandbox(&pod)
	switch {
	case again:
		u.killErr = u.victim.Kill()
	case killed:
		if u.dieWithin = life.DieWithin(kill.Now()); !gone && !life.KillPending {
			u.victim.SetKilled(life.Killed())
		}
	}
	//log: The agent continues an eviction that the previous agent process began.
	v.o.Log.Info("resuming eviction", append(v.fields(u), api.EventEviction.Attr(), "dead",
		gone, "killed", killed &&
			!gone, "killedAgain", again)...)
	v.carry(ctx, u)
	return true
}

// sameSandbox reports whether the runtime's newest sandbox of the pod is one of those that were
// chosen.
func (v *Evictions) sameSandbox(was *stats.PodStats) bool {
	p := v.o.Pods.All()[was.PodRef.UID]
	return p != nil && len(p.Sandboxes) > 0 && slices.Contains(was.SandboxIDs, p.Sandboxes[0].ID)
}

// newSandbox reports whether the runtime has a newer sandbox of the pod than those that were
// chosen. A kubelet keeps one cgroup across sandboxes.
func (v *Evictions) newSandbox(was *stats.PodStats) bool {
	p := v.o.Pods.All()[was.PodRef.UID]
	return p != nil && len(was.SandboxIDs) > 0 && len(p.Sandboxes) > 0 &&
		!slices.Contains(was.SandboxIDs, p.Sandboxes[0].ID)
}
