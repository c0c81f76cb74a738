package records

import (
	"time"

	"jettison/api"
	"jettison/eviction"
)

// state1 is a State of version 1. It held an eviction twice: what the agent carried out, and what
// its effect was awaited by.
type state1 struct {
	BootID    string      `json:"bootId"`
	Time      time.Time   `json:"time"`
	Evictions []underway1 `json:"evictions"`
	Manager   struct {
		Pending []pending1 `json:"pending"`
		eviction.Saved
	} `json:"manager"`
	HoldOffs []HoldOff `json:"holdOffs"`
}

// underway1 is an eviction that was not over for the agent: the pod lived, or the runtime had not
// cleaned up.
type underway1 struct {
	Record      string                 `json:"record"`
	Eviction    eviction.SavedEviction `json:"eviction"`
	Began       api.Stamp              `json:"began"`
	Killed      api.Stamp              `json:"killed"`
	Deadline    time.Time              `json:"deadline"`
	Emptied     api.Stamp              `json:"emptied"`
	RemoveFiles bool                   `json:"removeFiles"`
}

// pending1 is an eviction that others waited for.
type pending1 struct {
	Eviction eviction.SavedEviction `json:"eviction"`
	Level    uint64                 `json:"level"`
	Died     bool                   `json:"died"`
	Until    time.Time              `json:"until"` // of a dead one: what it returned was awaited
	Cleaned  bool                   `json:"cleaned"`
	Ended    time.Time              `json:"ended"`
}

// settle1 is how long after the end of its processes a pod's memory was awaited; longer where much
// of it was shared.
const settle1 = 2 * time.Second

// migrate makes a State of it. Evictions that others waited for come first, in their order.
func (o *state1) migrate(warn func(string, ...any)) State {
	s := State{Version: StateVersion, BootID: o.BootID, Time: o.Time, Manager: o.Manager.Saved,
		HoldOffs: o.HoldOffs}
	carried := map[string]*underway1{}
	for i := range o.Evictions {
		u := &o.Evictions[i]
		if uid := u.Eviction.Pod.UID; carried[uid] == nil {
			carried[uid] = u
		}
	}
	s.Manager.Lives = nil
	waited := map[string]bool{}
	for i := range o.Manager.Pending {
		p := &o.Manager.Pending[i]
		uid := p.Eviction.Pod.UID
		u := carried[uid]
		if u == nil && !p.Died { // others would wait for it for ever
			warn("the eviction of pod %.64q is awaited, and is not carried out", uid)
			continue
		}
		waited[uid] = true
		s.Manager.Lives = append(s.Manager.Lives, p.life(u))
	}
	for i := range o.Evictions {
		if u := &o.Evictions[i]; !waited[u.Eviction.Pod.UID] || u != carried[u.Eviction.Pod.UID] {
			l := u.life()
			// Nothing waited for it any more: what it returned did not come for long, or it did not die.
			l.Settled, l.Undying = true, l.Emptied.Time.IsZero()
			if l.Undying {
				l.Outcome = string(api.OutcomeUndying)
			}
			s.Manager.Lives = append(s.Manager.Lives, l)
		}
	}
	for i := range s.HoldOffs { // the oldest have no signal
		if u := carried[s.HoldOffs[i].UID]; u != nil && s.HoldOffs[i].Signal == "" {
			s.HoldOffs[i].Signal = u.Eviction.Signal
		}
	}
	return s
}

// life is what the agent knew of an eviction.
func (u *underway1) life() eviction.SavedLife {
	return eviction.SavedLife{
		Eviction: u.Eviction, Record: u.Record, RemoveFiles: u.RemoveFiles,
		Began: eviction.Stamp(u.Began), Deadline: u.Deadline,
		Killed: eviction.Stamp(u.Killed), Emptied: eviction.Stamp(u.Emptied),
	}
}

// life joins both; u is nil where the agent had done its part.
func (p *pending1) life(u *underway1) (l eviction.SavedLife) {
	if u == nil {
		l.Emptied, l.Clean, l.Gone = eviction.Stamp{Time: p.Until.Add(-settle1)}, p.Cleaned, true
		if p.Cleaned {
			l.Cleaned = eviction.Stamp{Time: p.Ended}
		}
	} else {
		l = u.life()
		dead := !l.Emptied.Time.IsZero()
		l.CameBack = p.Died && !dead // in another cgroup, so that the agent did not know yet
		l.Shared = p.Died && dead && p.Until.Sub(l.Emptied.Time) > settle1
	}
	l.Eviction, l.Level = p.Eviction, p.Level
	return l
}

// recall adds what an eviction was decided on, which a State of version 1 left to its record.
func (s *State) recall(running []api.Record) {
	for i := range s.Manager.Lives {
		l := &s.Manager.Lives[i]
		for j := range running {
			r := &running[j]
			if l.Met != nil || l.Record == "" || r.ID != l.Record {
				continue
			}
			l.Met = &eviction.SavedMet{Since: r.Began.Time}
			if r.Crossed != nil {
				l.Met.Since = r.Crossed.Time
			}
			if d := r.Decided; d != nil && d.Available != nil && d.Capacity != nil {
				l.Met.Time, l.Met.Value, l.Met.Capacity = d.Time, *d.Available, *d.Capacity
			}
		}
	}
}
