package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// Preemptions in the middle of everything else: internal/agent/evictions Preempt. All rules for
// victims of thresholds stay true; these rules are for preemption itself.
const (
	ruleSpared = "spared" // no spared pod is preempted
	ruleRoom   = "room"   // the room is free when its pod is dead, not before; and the wait for it ends
)

// roomServed bounds the wait for the room of a pod after its end: the shared memory of its
// processes goes with them.
const roomServed = sharedLimit + servedLimit

// roomOf is a preempted pod.
type roomOf struct {
	*realPod
	l     *Life
	its   int
	since time.Duration // when it was seen dead; negative: it was not
}

// preempt preempts the pods of a bit mask, all at the same time; if one cannot be pinned, none.
func (s *shell) preempt(mask int) {
	if s.away {
		return
	}
	now, sum := s.now(), s.summary(s.now(), false, false)
	var going []*realPod
	var evictions []Eviction
	for i, p := range s.pods {
		at := slices.IndexFunc(sum.Pods, func(o stats.PodStats) bool { return o.PodRef.UID == p.uid })
		if mask&(1<<i) == 0 || at < 0 || !p.alive { // a dead pod has no room
			continue
		}
		object := p.known()
		if s.config.Policy.PreemptionProtected(&sum.Pods[at], object) != "" {
			continue
		}
		if p.Self || p.Static && !p.Strange || p.Mirror && !p.Strange {
			s.rules.fail(ruleSpared, "protected pod %s is preempted", p.uid)
		}
		old := s.m.Life(p.uid)
		if old != nil && old.CleaningUp() && !old.Terminated() {
			s.rules.made = append(s.rules.made, &roomOf{p, old, p.life, -1})
			continue
		}
		if old != nil && old.RecentlyUndying(now) {
			return
		}
		if s.unpinned[p] < p.Unpinned {
			s.unpinned[p]++
			return
		}
		going, evictions = append(going, p), append(evictions, Preempted(&sum.Pods[at], object, "Preempting", "m"))
	}
	for i, p := range going {
		s.say("%s is preempted", p.uid)
		if j := s.jobs[s.m.Life(p.uid)]; j != nil {
			j.over = true
		}
		l := s.m.Begin(s.stamp(), evictions[i], Met{})
		j := &job{realPod: p, of: l, its: p.life, deadline: s.t + DieLimit}
		s.jobs[l] = j
		s.rules.preempted(p, l)
		s.carryOut(j, time.Duration(evictions[i].GracePeriodSeconds)*time.Second, false)
	}
}

// preempted records a preemption: it restarts no other pod's wait.
func (r *rules) preempted(p *realPod, l *Life) {
	if l.e.hard || l.e.Urgent() || l.e.returnsKind(kindMemory) || l.e.Disk() {
		r.fail(ruleSpared, "preempted pod %s is evicted as for a shortage: %+v", p.uid, l.e)
	}
	begin, stopped := r.begin, r.stopped
	r.begun(p, l)
	r.begin, r.stopped = begin, stopped
	r.made = append(r.made, &roomOf{p, l, p.life, -1})
}

// rooms checks at each look that a free room, by the real world, is reported to those that wait for
// it.
func (r *rules) rooms() {
	now := r.s.now()
	r.made = slices.DeleteFunc(r.made, func(m *roomOf) bool {
		served := time.Duration(roomServed)
		if m.Refused { // the runtime reports its death
			served += m.Clean
		}
		back, over := m.l.RoomState(now)
		lives := m.life == m.its && m.alive
		switch {
		case back && lives:
			r.fail(ruleRoom, "room of %s is free, but the pod lives", m.uid)
		case back && !over:
			r.fail(ruleRoom, "room of %s is free, but still awaited", m.uid)
		case lives || over:
			m.since = -1
		case m.since < 0:
			m.since = r.s.t
		case r.s.t-m.since > served:
			r.fail(ruleRoom, "%s is dead for %v, and its room is still awaited", m.uid, r.s.t-m.since)
		}
		return over
	})
}
