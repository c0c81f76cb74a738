package evictions

import (
	"context"
	"errors"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/squeeze"
	"jettison/internal/node/kill"
	"jettison/internal/node/records"
	"jettison/reclaim"
	"jettison/stats"
)

// OnEvent processes a report of an eviction's goroutine.
func (v *Evictions) OnEvent(now time.Time, e Event) {
	u := v.findByJob(e.job)
	if u == nil || v.o.Manager.Life(u.life.Eviction().Pod.PodRef.UID) != u.life ||
		errors.Is(e.err, context.Canceled) {
		return // a later attempt replaced it, or the agent is stopping
	}
	v.o.Keeper.Changed()
	at := kill.StampOf(now)
	switch {
	case e.stage == emptied && e.err != nil:
		u.aliveErr = errors.Join(u.killErr, e.err)
		//log: The victim still has processes after all kill steps. The agent ranks it last for a while
		//  and chooses another pod.
		//do: See the key error. Processes in uninterruptible sleep (state D) cannot die: check storage
		//  and network file systems.
		v.o.Log.Error("victim did not die, set aside", append(v.fields(u), api.EventEviction.Attr(),
			"error", u.aliveErr)...)
		v.o.Manager.MarkUndying(now, u.life)
		v.o.NotKilled(u.life.Eviction().Pod.PodRef.UID, e.err.Error())
	case e.stage == emptied:
		u.aliveErr = nil
		v.o.Manager.Emptied(at, u.life)
		v.recordEmptied(u, at)
	case e.stage == uncached:
		v.o.Manager.CacheDropped(u.life)
	default:
		if e.err != nil {
			//log: The pod is dead, but the runtime failed to remove its sandbox. The resources of the pod's
			//  processes are free.
			//do: Check the runtime's log. When the runtime works again, remove the sandbox: crictl stopp ID,
			//  then crictl rmp ID.
			v.o.Log.Error("runtime did not clean up evicted pod", api.EventEviction.Attr(),
				"pod", v.name(u),
				"error", e.err)
		}
		v.o.Manager.Cleaned(at, u.life)
		v.recordCleaned(u, at, e.err)
		v.o.OnCleaned(u.life)
	}
}

// findByJob returns the eviction in progress of a job; nil if it is finished.
func (v *Evictions) findByJob(j *job) *progress {
	for _, u := range v.inProgress {
		if u.job == j {
			return u
		}
	}
	return nil
}

// OnReady logs each eviction with a known outcome, and removes the finished ones. reported: at
// least one was logged.
func (v *Evictions) OnReady(now time.Time, ready *eviction.Ready) (reported bool) {
	for _, life := range ready.Outcomes {
		u := v.inProgress[life]
		if u == nil {
			continue
		}
		if life.Outcome() != eviction.OutcomeUndying {
			v.report(now, u)
			reported = true
		}
		v.recordOutcome(u)
		v.countOutcome(now, u)
	}
	for _, life := range ready.Finished {
		if u := v.inProgress[life]; u != nil {
			if u.record != nil {
				u.record.Complete = true
			}
			v.recordSteps(u)
			v.countSteps(u)
			delete(v.inProgress, life)
			v.o.Keeper.Changed()
		}
	}
	if reported {
		v.o.Log.Reset()
	}
	return reported
}

// OnReclaimed adds the effect of proactive reclaim to the record of the eviction that followed it.
func (v *Evictions) OnReclaimed(f squeeze.Follower, effect *reclaim.MemoryEffect) {
	if u := v.afterReclaim; effect != nil && u != nil && evictionID(u) == f.ID {
		u.reclaim = reclaimRecord(effect)
		v.recordReclaim(u)
	}
}

// ReclaimFields returns log fields with the eviction that followed a reclaim.
func (v *Evictions) ReclaimFields(id string) []any {
	if u := v.afterReclaim; u != nil && evictionID(u) == id {
		return []any{"evicted", v.name(u), "uid", u.life.Eviction().Pod.PodRef.UID}
	}
	return nil
}

// Interrupted logs the evictions in progress when the agent stops.
func (v *Evictions) Interrupted() {
	for _, u := range v.inProgress {
		if u.life.Outcome() == eviction.OutcomeUnknown {
			//log: The agent stopped while an eviction was in progress. The next start resumes it.
			v.o.Log.Info("agent stopped during eviction", append(v.fields(u), api.EventEviction.Attr(),
				"killedAtMonotonic", u.life.Killed().Monotonic)...)
		}
	}
}

// InProgress returns the unfinished evictions for the published State.
func (v *Evictions) InProgress() []api.EvictionInProgress {
	out := []api.EvictionInProgress{}
	for _, l := range v.o.Manager.Lives() {
		e := l.Eviction()
		out = append(out, api.EvictionInProgress{
			Pod: e.Pod.PodRef, Signal: e.Signal, GracePeriodSeconds: e.GracePeriodSeconds,
			Message: e.Message, Began: l.Began().Time,
			Dead: l.Dead(), Cleaned: !l.Cleaned().Time.IsZero(),
		})
	}
	return out
}

// Pod returns the evicted pod with a UID, from the evictions in progress and the history. The
// runtime no longer knows a pod that is held off. ok is false if it is in neither.
func (v *Evictions) Pod(uid string) (pod stats.PodReference, ok bool) {
	for _, l := range v.o.Manager.Lives() {
		if ref := l.Eviction().Pod.PodRef; ref.UID == uid {
			return ref, true
		}
	}
	for i := range v.history {
		if ref := v.history[i].Pod; ref.UID == uid {
			return ref, true
		}
	}
	return pod, false
}

// Changed marks the saved state of the evictions as changed.
func (v *Evictions) Changed() { v.o.Keeper.Changed() }

// Save stores the state for the next process, if it has changed. fill adds the state of the other
// parts.
func (v *Evictions) Save(now time.Time, fill func(*records.State)) {
	v.o.Keeper.Save(now, func(s *records.State) {
		for life, u := range v.inProgress {
			if !life.Killed().Time.IsZero() && u.victim.Killed() {
				life.KillPending = !u.victim.Struck()
			}
		}
		fill(s)
	})
}

// name returns the victim's display name.
func (v *Evictions) name(u *progress) string { return v.o.Pods.Name(u.life.Eviction().Pod.PodRef) }

// optional converts a value to its form in a record.
func optional(value stats.Opt[uint64]) *uint64 {
	if !value.OK {
		return nil
	}
	return &value.V
}
