package evictions

import (
	"cmp"
	"maps"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/internal/node/records"
	"jettison/reclaim"
)

// recordBegin keeps that an eviction has begun.
func (v *Evictions) recordBegin(d *eviction.Decision, u *underway) {
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
	r.Reclaimed, r.Squeeze = v.o.Squeeze.Reclaimed(u.began, r.Signal), u.squeeze
	if v.o.Gate.Keeps() {
		r.HoldOffUntil = v.o.Gate.Until(r.Pod.UID)
	}
	u.record, l.Record = &r, r.ID
	v.o.Keeper.Begin(&r)
	v.follow(&r)
}

// recordEmptied tells that no process is left. It is written down with the outcome.
func (v *Evictions) recordEmptied(u *underway, at kill.Stamp) {
	if u.record != nil {
		u.record.Emptied = at
		v.o.Keeper.Tell(u.record)
	}
}

// recordCleaned keeps that the runtime has ended the victim's sandbox; err: it has not.
func (v *Evictions) recordCleaned(u *underway, at kill.Stamp, err error) {
	if u.record == nil {
		return
	}
	if err == nil {
		u.record.Cleaned = at
	}
	v.recordSteps(u)
}

// recordKilled keeps that the stop of a victim was cut short, for something else than it was chosen
// for.
func (v *Evictions) recordKilled(u *underway) {
	if u.record == nil {
		return
	}
	killed := u.life.Killed()
	u.record.Killed = killed
	v.o.Keeper.Begin(u.record)
}

// wouldAgain is how long a dry run has not wanted to evict a pod until it would be another
// eviction.
const wouldAgain = time.Minute

// recordWould keeps what a dry run would have done: once for as long as it would, for it asks for
// the same pod at every look.
func (v *Evictions) recordWould(d *eviction.Decision, e *eviction.Eviction) {
	key := e.Pod.PodRef.UID + "/" + string(e.Signal)
	last, again := v.would[key]
	maps.DeleteFunc(v.would, func(_ string, said time.Time) bool {
		return d.Time.Sub(
			said) > wouldAgain
	})
	v.would[key] = d.Time
	if again && d.Time.Sub(last) <= wouldAgain {
		return
	}
	v.counts.Outcomes.Add(1, string(e.Signal), string(api.OutcomeDryRun), string(e.Pod.QOSClass),
		"true")
	if !v.o.Keeper.Keeps() {
		return
	}
	r := records.Begin(d, e, stampAt(d.Time), kill.Stamp{}, v.o.Pods.Name)
	if m := d.Signal; !e.Local() && m.Threshold.Signal != "" {
		r.Crossed = records.ReadingOf(m.Threshold, m.First, stampAt(m.Since))
	}
	v.o.Keeper.Would(&r)
}

// recordOutcome keeps what became of it.
func (v *Evictions) recordOutcome(u *underway) {
	if u.record == nil {
		return
	}
	r, l := u.record, u.life
	r.Outcome, r.Killed, r.Emptied = api.Outcome(l.Outcome().String()), l.Killed(), l.Emptied()
	if err := cmp.Or(u.alive, u.killErr); err != nil {
		r.Error = err.Error()
	} else if u.victim != nil { // else what the process before this one knew stays
		r.Error = ""
	}
	if m := l.Met(); m.Threshold.Signal != "" {
		o := l.After()
		r.After = records.ReadingOf(m.Threshold, o, stampAt(cmp.Or(o.Time, time.Now())))
		if released, ok := l.Released(); ok {
			r.Released = &released
		}
	}
	v.recordSteps(u)
	v.o.Keeper.Changed()
}

// recordSteps keeps the steps that there are by now.
func (v *Evictions) recordSteps(u *underway) {
	if u.record == nil {
		return
	}
	if u.victim != nil { // else the process before this one has kept them
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

// recordSqueeze keeps what is known of the reclaim of memory before it.
func (v *Evictions) recordSqueeze(u *underway) {
	if u.record != nil {
		u.record.Squeeze = u.squeeze
		v.o.Keeper.Update(u.record)
	}
}

// squeezeRecord is the effect of a reclaim of memory as a record has it.
func squeezeRecord(e *reclaim.MemoryEffect) *api.Squeeze {
	return &api.Squeeze{
		Signal: e.Signal, Kind: e.Kind.String(), Began: e.Began.Round(0), Took: e.Took, Asked: e.Asked,
		Stopped: e.Stopped,
		Freed:   known(e.Freed), Refaulted: known(e.Refaulted),
	}
}

// stampAt is an instant by the wall clock, with what the other clock showed then.
func stampAt(at time.Time) api.Stamp {
	if at.IsZero() {
		return api.Stamp{}
	}
	return kill.StampOf(at)
}

// abandon keeps that nothing goes on with an eviction which the process before this one had begun.
func (v *Evictions) abandon(r api.Record) {
	r.Outcome, r.Over = api.OutcomeAbandoned, true
	v.o.Keeper.Update(&r)
}
