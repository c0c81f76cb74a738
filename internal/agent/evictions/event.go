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

// OnEvent takes the word of an eviction's goroutine.
func (v *Evictions) OnEvent(now time.Time, e Event) {
	u := v.of(e.job)
	if u == nil || v.o.Manager.Life(u.life.Eviction().Pod.PodRef.UID) != u.life ||
		errors.Is(e.err, context.Canceled) {
		return // a later attempt took its place, or the agent is being stopped
	}
	v.o.Keeper.Changed()
	at := kill.StampOf(now)
	switch {
	case e.stage == emptied && e.err != nil:
		u.alive = errors.Join(u.killErr, e.err)
		v.o.Log.Error("the victim does not die, set aside", append(v.fields(u), api.EventEviction.Attr(),
			"error", u.alive)...)
		v.o.Manager.Refused(now, u.life)
		v.o.NotKilled(u.life.Eviction().Pod.PodRef.UID, e.err.Error())
	case e.stage == emptied:
		u.alive = nil
		v.o.Manager.Emptied(at, u.life)
		v.recordEmptied(u, at)
	case e.stage == uncached:
		v.o.Manager.Uncached(u.life)
	default:
		if e.err != nil {
			v.o.Log.Error("the runtime did not clean up after an evicted pod", api.EventEviction.Attr(),
				"pod", v.name(u),
				"error", e.err)
		}
		v.o.Manager.Cleaned(at, u.life)
		v.recordCleaned(u, at, e.err)
		v.o.OnCleaned(u.life)
	}
}

// of is the eviction that a goroutine reports of; nil: it is over.
func (v *Evictions) of(j *job) *underway {
	for _, u := range v.underway {
		if u.job == j {
			return u
		}
	}
	return nil
}

// OnReady logs each eviction once its effect is known, and forgets it when nothing more is to come.
// reported: one was logged.
func (v *Evictions) OnReady(now time.Time, ready *eviction.Ready) (reported bool) {
	for _, life := range ready.Outcomes {
		u := v.underway[life]
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
		if u := v.underway[life]; u != nil {
			if u.record != nil {
				u.record.Over = true
			}
			v.recordSteps(u)
			v.countSteps(u)
			delete(v.underway, life)
			v.o.Keeper.Changed()
		}
	}
	if reported {
		v.o.Log.Afresh()
	}
	return reported
}

// OnSqueezed adds what is known of the reclaim of memory to the record of the eviction that
// followed it.
func (v *Evictions) OnSqueezed(f squeeze.Follower, effect *reclaim.MemoryEffect) {
	if u := v.squeezed; effect != nil && u != nil && follower(u) == f.ID {
		u.squeeze = squeezeRecord(effect)
		v.recordSqueeze(u)
	}
}

// SqueezeFields name the eviction that followed a reclaim of memory.
func (v *Evictions) SqueezeFields(id string) []any {
	if u := v.squeezed; u != nil && follower(u) == id {
		return []any{"evicted", v.name(u), "uid", u.life.Eviction().Pod.PodRef.UID}
	}
	return nil
}

// Interrupted leaves a trace of evictions that were under way when the agent was told to stop.
func (v *Evictions) Interrupted() {
	for _, u := range v.underway {
		if u.life.Outcome() == eviction.OutcomeUnknown {
			v.o.Log.Info("stopped during an eviction", append(v.fields(u), api.EventEviction.Attr(),
				"killedAtMonotonic", u.life.Killed().Monotonic)...)
		}
	}
}

// Underway are the evictions that are not over, for the State.
func (v *Evictions) Underway() []api.UnderwayState {
	out := []api.UnderwayState{}
	for _, l := range v.o.Manager.Lives() {
		e := l.Eviction()
		out = append(out, api.UnderwayState{
			Pod: e.Pod.PodRef, Signal: e.Signal, GracePeriodSeconds: e.GracePeriodSeconds,
			Message: e.Message, Began: l.Began().Time,
			Dead: l.Dead(), Cleaned: !l.Cleaned().Time.IsZero(),
		})
	}
	return out
}

// Changed tells that what a restart needs of evictions is something else now.
func (v *Evictions) Changed() { v.o.Keeper.Changed() }

// Save hands over what the next process needs, if that has changed.
func (v *Evictions) Save(now time.Time, fill func(*records.State)) {
	v.o.Keeper.Save(now, func(s *records.State) {
		for life, u := range v.underway {
			if !life.Killed().Time.IsZero() && u.victim.Killed() {
				life.KillWaits = !u.victim.Struck()
			}
		}
		fill(s)
	})
}

// name is the victim's.
func (v *Evictions) name(u *underway) string { return v.o.Pods.Name(u.life.Eviction().Pod.PodRef) }

// known is a value as a record has it.
func known(value stats.Opt[uint64]) *uint64 {
	if !value.OK {
		return nil
	}
	return &value.V
}
