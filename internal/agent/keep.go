package agent

import (
	"cmp"
	"time"

	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/internal/kill"
	"jettison/internal/records"
)

// keepClose is how long the last records may take to be written when the agent ends.
const keepClose = time.Second

// startKeeping begins to write records and state, and returns what the process before this one has left. A dry run leaves no trace.
func (a *agent) startKeeping(now time.Time) (state records.State, running []records.Record, stop func()) {
	dir := a.o.Config.StateDir
	if a.o.DryRun {
		return state, nil, func() {}
	}
	a.bootID = records.BootID(cmp.Or(a.o.ProcMount, "/proc"))
	if dir != "" {
		var warnings []error
		state, running, warnings = records.Load(dir, now, a.bootID)
		for _, err := range warnings {
			a.log.Warn("what was kept is not whole", "error", err)
		}
	}
	writer, err := records.Start(records.Options{Dir: dir, BootID: a.bootID, Agent: a.o.Version, Report: func(n records.Notice) {
		if n.Err != nil {
			a.log.Warn("not kept", "what", n.What, "error", n.Err)
			return
		}
		a.log.Info("kept again", "what", n.What, "lost", n.Lost)
	}})
	if err != nil {
		a.log.Warn("neither records nor state are kept", "error", err)
		return state, running, func() {}
	}
	a.keeper = writer
	return state, running, func() {
		a.save(time.Now())
		if err := writer.Close(keepClose); err != nil {
			a.log.Warn("stopping", "error", err)
		}
	}
}

// stamp is an instant of the kill's clocks as a record has it.
func stamp(s kill.Stamp) records.Stamp { return records.Stamp(s) }

// stampAt is an instant by the wall clock, with what the other clock showed then.
func stampAt(at time.Time) records.Stamp {
	if at.IsZero() {
		return records.Stamp{}
	}
	now := kill.Now()
	return records.Stamp{Time: at, Monotonic: max(now.Monotonic-now.Time.Sub(at), 0)}
}

// recordBegin keeps that an eviction has begun.
func (a *agent) recordBegin(d *eviction.Decision, u *underway) {
	if a.keeper == nil {
		return
	}
	r := records.Begin(d, u.Eviction(), stampAt(u.Began().Time), records.Stamp(u.Killed()), a.name)
	if m := *u.Met(); m.Threshold.Signal != "" {
		r.Crossed = records.ReadingOf(m.Threshold, m.First, stampAt(m.Since))
	}
	if u.killErr != nil {
		r.Killed, r.Error = records.Stamp{}, u.killErr.Error()
	}
	r.Reclaimed, r.Squeeze = a.reclaimed(u.Began().Time, u.Eviction().Signal), u.squeeze
	if a.synced && a.o.Config.Gate { // else nobody keeps it out
		r.HoldOffUntil = a.holds.All()[r.Pod.UID].Until
	}
	u.record, u.Record = r, r.ID
	a.keeper.Begin(r)
	a.changed = true
}

// recordOutcome keeps what became of it.
func (a *agent) recordOutcome(u *underway, outcome records.Outcome, err error) {
	if a.keeper == nil || u.record.ID == "" {
		return
	}
	r := &u.record
	r.Outcome, r.Killed, r.Emptied = outcome, records.Stamp(u.Killed()), stampAt(u.Emptied().Time)
	if u.killErr != nil {
		r.Killed = records.Stamp{}
	}
	if r.Error = ""; err != nil {
		r.Error = err.Error()
	}
	if o := u.After(); u.Met().Threshold.Signal != "" {
		r.After = records.ReadingOf(u.Met().Threshold, o, stampAt(cmp.Or(o.Time, time.Now())))
		if released, ok := u.Released(); ok {
			r.Released = &released
		}
	}
	a.recordSteps(u)
	a.changed = true
}

// recordSteps keeps the steps that there are by now.
func (a *agent) recordSteps(u *underway) {
	if a.keeper == nil || u.record.ID == "" {
		return
	}
	u.record.Steps = nil
	for _, s := range u.victim.Steps() {
		step := records.Step{Name: s.Name, Monotonic: s.At, N: s.N}
		if s.Err != nil {
			step.Error = s.Err.Error()
		}
		u.record.Steps = append(u.record.Steps, step)
	}
	a.keeper.Update(u.record)
}

// save hands over what the next process needs, if that has changed.
func (a *agent) save(now time.Time) {
	if a.keeper == nil || !a.changed {
		return
	}
	a.changed = false
	s := records.State{BootID: a.bootID, Time: now, Manager: a.manager.Save()}
	for uid, h := range a.holds.All() {
		if now.Before(h.Until) {
			held := a.held[uid]
			s.HoldOffs = append(s.HoldOffs, records.HoldOff{UID: uid, Until: h.Until, Reason: h.Reason, Times: max(held.times, 1), Signal: held.signal})
		}
	}
	a.keeper.Save(s)
}

// holdAgain keeps those out who were kept out before.
func (a *agent) holdAgain(now time.Time, s *records.State) {
	for _, h := range s.HoldOffs {
		a.holds.Set(now, h.UID, nri.Hold{Until: h.Until, Reason: h.Reason})
		a.held[h.UID] = heldOff{times: h.Times, last: now, signal: h.Signal}
	}
}
