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
	r := records.Begin(d, &u.eviction, stampAt(u.began), stamp(u.killed), a.name)
	if m := u.met; m.Threshold.Signal != "" {
		r.Crossed = records.ReadingOf(m.Threshold, m.First, stampAt(m.Since))
	}
	if u.killErr != nil {
		r.Killed, r.Error = records.Stamp{}, u.killErr.Error()
	}
	r.Reclaimed, r.Squeeze = a.reclaimed(u.began, u.eviction.Signal), u.squeeze
	if a.synced && a.o.Config.Gate { // else nobody keeps it out
		r.HoldOffUntil = a.holds.All()[r.Pod.UID].Until
	}
	u.record = r
	a.keeper.Begin(r)
	a.changed = true
}

// recordOutcome keeps what became of it.
func (a *agent) recordOutcome(u *underway, outcome records.Outcome, err error) {
	if a.keeper == nil || u.record.ID == "" {
		return
	}
	r := &u.record
	r.Outcome, r.Killed, r.Emptied = outcome, stamp(u.killed), stampAt(u.emptied)
	if u.killErr != nil {
		r.Killed = records.Stamp{}
	}
	if r.Error = ""; err != nil {
		r.Error = err.Error()
	}
	if o := a.manager.Observed(u.eviction.Signal); u.met.Threshold.Signal != "" {
		r.After = records.ReadingOf(u.met.Threshold, o, stampAt(cmp.Or(o.Time, time.Now())))
		amount := u.met.Threshold.Window == 0 // a share of stalled time is none: nothing of it is returned
		if amount && r.Decided != nil && r.Decided.Available != nil && o.OK && o.Value >= *r.Decided.Available && !u.emptied.IsZero() {
			released := o.Value - *r.Decided.Available
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
	s := records.State{Version: records.Version, BootID: a.bootID, Time: now, Manager: a.manager.Save()}
	for _, u := range a.underway {
		if !u.cleaned.IsZero() {
			continue
		}
		saved := records.Underway{
			Record: u.record.ID, Eviction: eviction.SaveEviction(&u.eviction), Began: stampAt(u.began), Emptied: stampAt(u.emptied),
			RemoveFiles: u.remove.Load(),
		}
		if u.killErr == nil {
			saved.Killed = stamp(u.killed)
		}
		if saved.Killed.Time.IsZero() {
			saved.Deadline = u.began.Add(time.Duration(u.eviction.GracePeriodSeconds) * time.Second)
		}
		s.Evictions = append(s.Evictions, saved)
	}
	for uid, h := range a.holds.All() {
		if now.Before(h.Until) {
			held := a.held[uid]
			s.HoldOffs = append(s.HoldOffs, records.HoldOff{UID: uid, Until: h.Until, Reason: h.Reason, Times: max(held.times, 1), Signal: held.signal})
		}
	}
	a.keeper.Save(s)
}

// thresholdOf is the configured threshold that an eviction is for.
func (a *agent) thresholdOf(e *eviction.Eviction) (t eviction.Threshold) {
	for i := range a.o.Config.Thresholds {
		if c := &a.o.Config.Thresholds[i]; c.Signal == e.Signal && c.Hard() == e.Hard() {
			return *c
		}
	}
	return t
}

// holdAgain keeps those out who were kept out before.
func (a *agent) holdAgain(now time.Time, s *records.State) {
	for _, h := range s.HoldOffs {
		a.holds.Set(now, h.UID, nri.Hold{Until: h.Until, Reason: h.Reason})
		a.held[h.UID] = heldOff{times: h.Times, last: now, signal: h.Signal}
	}
	for i := range s.Evictions { // a state of an older agent has no signal in its hold-offs
		uid := s.Evictions[i].Eviction.Pod.UID
		held := a.held[uid]
		held.signal = s.Evictions[i].Eviction.Signal
		a.held[uid] = held
	}
}
