package evictions

import (
	"cmp"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/internal/node/records"
	"jettison/reclaim"
)

// recordBegin stores the record of an eviction that began.
func (v *Evictions) recordBegin(d *eviction.Decision, u *progress) {
	if !v.o.Keeper.Keeps() {
		return
	}
	l := u.life
	r := records.Begin(d, l.Eviction(), l.Began(), l.Killed(), v.o.Pods.Name)
	if m := l.Met(); m.Threshold.Signal != "" {
		r.Crossed = records.ReadingOf(m.Threshold, m.First, stampAt(m.Since))
	}
	if u.killErr != nil {
		r.Error = u.killErr.Error()
	}
	r.Reclaimed, r.Squeeze = v.o.Squeeze.Reclaimed(u.began, r.Signal), u.reclaim
	if v.o.Gate.Enforces() {
		r.HoldOffUntil = v.o.Gate.Until(r.Pod.UID)
	}
	u.record, l.Record = &r, r.ID
	v.o.Keeper.Begin(&r)
	v.watch(&r)
}

// recordEmptied reports that no process is left. The record is stored with the outcome.
func (v *Evictions) recordEmptied(u *progress, at kill.Stamp) {
	if u.record != nil {
		u.record.Emptied = at
		v.o.Keeper.Publish(u.record)
	}
}

// recordCleaned records that the runtime ended the victim's sandbox, or failed with err.
func (v *Evictions) recordCleaned(u *progress, at kill.Stamp, err error) {
	if u.record == nil {
		return
	}
	if err == nil {
		u.record.Cleaned = at
	}
	v.recordSteps(u)
}

// recordKilled records that a victim's grace period was cut short for another signal.
func (v *Evictions) recordKilled(u *progress) {
	if u.record == nil {
		return
	}
	killed := u.life.Killed()
	u.record.Killed = killed
	v.o.Keeper.Begin(u.record)
}

// recordOutcome records the outcome of an eviction.
func (v *Evictions) recordOutcome(u *progress) {
	if u.record == nil {
		return
	}
	r, l := u.record, u.life
	r.Outcome, r.Killed, r.Emptied = api.Outcome(l.Outcome().String()), l.Killed(), l.Emptied()
	if err := cmp.Or(u.aliveErr, u.killErr); err != nil {
		r.Error = err.Error()
	} else if u.victim != nil { // otherwise the error stored by the previous process stays
		r.Error = ""
	}
	if m := l.Met(); m.Threshold.Signal != "" {
		o := l.ObservedAfter()
		r.After = records.ReadingOf(m.Threshold, o, stampAt(cmp.Or(o.Time, time.Now())))
		if released, ok := l.Released(); ok {
			r.Released = &released
		}
	}
	v.recordSteps(u)
	v.o.Keeper.Changed()
}

// recordSteps records the steps so far.
func (v *Evictions) recordSteps(u *progress) {
	if u.record == nil {
		return
	}
	if u.victim != nil { // otherwise the previous process stored them
		u.record.Steps = steps(u.victim)
	}
	v.o.Keeper.Update(u.record)
}

func steps(victim *kill.Victim) (out []api.Step) {
	for _, s := range victim.Steps() {
		step := api.Step{Name: s.Name, Monotonic: s.At, N: s.N}
		if s.Err != nil {
			step.Error = s.Err.Error()
		}
		out = append(out, step)
	}
	return out
}

// recordReclaim records the effect of the preceding proactive reclaim.
func (v *Evictions) recordReclaim(u *progress) {
	if u.record != nil {
		u.record.Squeeze = u.reclaim
		v.o.Keeper.Update(u.record)
	}
}

// reclaimRecord converts the effect of proactive reclaim to its form in a record.
func reclaimRecord(e *reclaim.MemoryEffect) *api.ProactiveReclaim {
	return &api.ProactiveReclaim{
		Signal: e.Signal, Kind: e.Kind.String(), Began: e.Began.Round(0), Took: e.Took, Asked: e.Asked,
		Stopped: e.Stopped,
		Freed:   optional(e.Freed), Refaulted: optional(e.Refaulted),
	}
}

// stampAt returns an instant with its wall clock and monotonic time.
func stampAt(at time.Time) api.Stamp {
	if at.IsZero() {
		return api.Stamp{}
	}
	return kill.StampOf(at)
}

// abandon records that an eviction of the previous process is not continued.
func (v *Evictions) abandon(r api.Record) {
	r.Outcome, r.Complete = api.OutcomeAbandoned, true
	v.o.Keeper.Update(&r)
}
