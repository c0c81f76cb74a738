package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// Pods that go for a critical one, in the middle of all else: internal/agent/evictions Preempt. None of what holds for victims of thresholds
// ceases to hold for it; of preemption itself these rules hold.
const (
	ruleSpared = "spared" // none goes for a critical pod that nothing may have killed
	ruleRoom   = "room"   // there is room once the pod that held it is dead, and not before; and its wait has an end
)

// roomServed is how long after the end of a pod its room may be waited for: what its processes had in shared memory goes with them.
const roomServed = sharedLimit + servedLimit

// roomOf is a pod that was to make room.
type roomOf struct {
	*realPod
	l     *Life
	its   int
	since time.Duration // it was seen dead; negative: it was not
}

// preempt has pods go, by the bits of a number, all at the same time; where one cannot be pinned none goes.
func (s *shell) preempt(mask int) {
	if s.away {
		return
	}
	now, sum := s.now(), s.summary(s.now(), false, false)
	var going []*realPod
	var evictions []Eviction
	for i, p := range s.pods {
		at := slices.IndexFunc(sum.Pods, func(o stats.PodStats) bool { return o.PodRef.UID == p.uid })
		if mask&(1<<i) == 0 || at < 0 || !p.alive { // nobody has the room of one that is dead
			continue
		}
		object := p.known()
		if s.config.Policy.Spares(&sum.Pods[at], object) != "" {
			continue
		}
		if p.Self || p.Static && !p.Strange || p.Mirror && !p.Strange {
			s.rules.fail(ruleSpared, "%s goes for a critical pod", p.uid)
		}
		old := s.m.Life(p.uid)
		if old != nil && old.Leaving() && !old.Left() {
			s.rules.made = append(s.rules.made, &roomOf{p, old, p.life, -1})
			continue
		}
		if old != nil && old.Resting(now) {
			return
		}
		if s.unpinned[p] < p.Unpinned {
			s.unpinned[p]++
			return
		}
		going, evictions = append(going, p), append(evictions, Preempted(&sum.Pods[at], object, "Preempting", "m"))
	}
	for i, p := range going {
		s.say("%s goes for a critical pod", p.uid)
		if j := s.jobs[s.m.Life(p.uid)]; j != nil {
			j.over = true
		}
		l := s.m.Begin(s.stamp(), evictions[i], Met{})
		j := &job{realPod: p, of: l, its: p.life, deadline: s.t + DieLimit}
		s.jobs[l] = j
		s.rules.preempted(p, l)
		s.carry(j, time.Duration(evictions[i].GracePeriodSeconds)*time.Second, false)
	}
}

// preempted takes note of a pod that goes for a critical one: nobody else's wait begins anew by that.
func (r *rules) preempted(p *realPod, l *Life) {
	if l.e.hard || l.e.Urgent() || l.e.returnsKind(kindMemory) || l.e.Disk() {
		r.fail(ruleSpared, "%s goes for a critical pod as for what is short: %+v", p.uid, l.e)
	}
	begin, stopped := r.begin, r.stopped
	r.begun(p, l)
	r.begin, r.stopped = begin, stopped
	r.made = append(r.made, &roomOf{p, l, p.life, -1})
}

// rooms holds at each look: whoever waits for room is told that it is there by the world as it is.
func (r *rules) rooms() {
	now := r.s.now()
	r.made = slices.DeleteFunc(r.made, func(m *roomOf) bool {
		back, over := m.l.Room(now)
		lives := m.life == m.its && m.alive
		switch {
		case back && lives:
			r.fail(ruleRoom, "there is room for %s, which lives", m.uid)
		case back && !over:
			r.fail(ruleRoom, "the room of %s is there, and is waited for", m.uid)
		case lives || over:
			m.since = -1
		case m.since < 0:
			m.since = r.s.t
		case r.s.t-m.since > roomServed:
			r.fail(ruleRoom, "%s is dead for %v, and its room is waited for", m.uid, r.s.t-m.since)
		}
		return over
	})
}
