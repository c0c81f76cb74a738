package records

import (
	"time"

	"jettison/api"
	"jettison/eviction"
)

// state1 is a State of version 1. It contains an eviction twice: as carried out by the agent, and
// as awaited by the eviction manager.
type state1 struct {
	BootID    string     `json:"bootId"`
	Time      time.Time  `json:"time"`
	Evictions []running1 `json:"evictions"`
	Manager   struct {
		Pending []pending1 `json:"pending"`
		eviction.Saved
	} `json:"manager"`
	HoldOffs []HoldOff `json:"holdOffs"`
}

// running1 is an eviction in progress for the agent: the pod was alive, or the runtime had not
// cleaned up.
type running1 struct {
	Record      string                 `json:"record"`
	Eviction    eviction.SavedEviction `json:"eviction"`
	Began       api.Stamp              `json:"began"`
	Killed      api.Stamp              `json:"killed"`
	Deadline    time.Time              `json:"deadline"`
	Emptied     api.Stamp              `json:"emptied"`
	RemoveFiles bool                   `json:"removeFiles"`
}

// pending1 is an eviction with an effect that the manager awaited before the next one.
type pending1 struct {
	Eviction eviction.SavedEviction `json:"eviction"`
	Level    uint64                 `json:"level"`
	Died     bool                   `json:"died"`
	Until    time.Time              `json:"until"` // of a dead pod: end of the wait for its memory
	Cleaned  bool                   `json:"cleaned"`
	Ended    time.Time              `json:"ended"`
}

// memoryWait1 is the wait for a pod's memory after the end of its processes; version 1 waited
// longer if much of it was shared.
const memoryWait1 = 2 * time.Second

// migrate converts a state1 to a State. Pending evictions come first, in their order.
func (o *state1) migrate(warn func(string, ...any)) State {
	s := State{Version: StateVersion, BootID: o.BootID, Time: o.Time, Manager: o.Manager.Saved,
		HoldOffs: o.HoldOffs}
	carried := map[string]*running1{}
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
		if u == nil && !p.Died { // other evictions would wait for it forever
			warn("pending eviction of pod %.64q ignored: it was not in progress", uid)
			continue
		}
		waited[uid] = true
		s.Manager.Lives = append(s.Manager.Lives, p.life(u))
	}
	for i := range o.Evictions {
		if u := &o.Evictions[i]; !waited[u.Eviction.Pod.UID] || u != carried[u.Eviction.Pod.UID] {
			l := u.life()
			// No eviction waited for it: its memory was not freed in time, or the pod did not die.
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

// life converts the agent's state of an eviction.
func (u *running1) life() eviction.SavedLife {
	return eviction.SavedLife{
		Eviction: u.Eviction, Record: u.Record, RemoveFiles: u.RemoveFiles,
		Began: eviction.Stamp(u.Began), Deadline: u.Deadline,
		Killed: eviction.Stamp(u.Killed), Emptied: eviction.Stamp(u.Emptied),
	}
}

// life merges both states of an eviction; u is nil if the agent had finished its part.
func (p *pending1) life(u *running1) (l eviction.SavedLife) {
	if u == nil {
		l.Emptied, l.Clean, l.Gone = eviction.Stamp{Time: p.Until.Add(-memoryWait1)}, p.Cleaned, true
		if p.Cleaned {
			l.Cleaned = eviction.Stamp{Time: p.Ended}
		}
	} else {
		l = u.life()
		dead := !l.Emptied.Time.IsZero()
		l.CameBack = p.Died && !dead // in another cgroup, so that the agent did not know yet
		l.Shared = p.Died && dead && p.Until.Sub(l.Emptied.Time) > memoryWait1
	}
	l.Eviction, l.Level = p.Eviction, p.Level
	return l
}

// recall restores the observation behind an eviction from its record. A State of version 1 does not
// contain it.
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
