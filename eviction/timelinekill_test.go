package eviction

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"jettison/stats"
)

// The part of the shell that carries out evictions: internal/agent/evictions, internal/node/kill.

// act follows Evictions.OnDecided.
func (s *shell) act(d Decision, input Input) (begun bool) {
	s.missed = false
	for i := range d.Evictions {
		begun = s.begin(&d, i, input) || begun
	}
	return begun
}

// begin follows Evictions.begin: it pins, measures again, kills.
func (s *shell) begin(d *Decision, i int, input Input) bool {
	e := &d.Evictions[i]
	p, old := s.podOf(e.Pod.PodRef.UID), s.m.Life(e.Pod.PodRef.UID)
	if old != nil && e.CutsGracePeriod && !old.Dead() && s.jobs[old] != nil && s.hasten(old, d, i) {
		return true
	}
	if old != nil && old.RecentlyUndying(s.now()) {
		return false
	}
	if s.unpinned[p] < p.Unpinned || !p.there {
		s.unpinned[p]++
		if s.missed = e.Pod.Located(); !s.missed {
			s.m.SetPodAside(s.now(), p.uid)
		}
		return false
	}
	if remeasured := s.measure(); e.Urgent() && !remeasured.Meets(&d.Signal.Threshold) {
		return false
	}
	d.AddTexts()
	e = &d.Evictions[i]
	met := Met{}
	if !e.Local() {
		met = d.Signal
	}
	s.say("evict %s for %s, hard %v: %s", p.uid, e.Signal, e.hard, d.Reason)
	s.rules.begins(p, e, &met, input)
	if j := s.jobs[old]; j != nil {
		j.over = true
	}
	at := Stamp{Time: s.now(), Monotonic: s.t + time.Hour}
	l := s.m.Begin(at, *e, met)
	j := &job{realPod: p, of: l, its: p.life, deadline: s.t + DieLimit}
	s.jobs[l] = j
	if e.Urgent() && !p.Refused {
		s.m.Killed(at, l)
	}
	l.RemoveFiles = e.Disk() && !s.Kubelet
	s.rules.begun(p, l)
	s.carryOut(j, time.Duration(e.GracePeriodSeconds)*time.Second, e.Urgent())
	return true
}

func (s *shell) hasten(l *Life, d *Decision, i int) bool {
	e := &d.Evictions[i]
	if remeasured := s.measure(); e.Urgent() && !remeasured.Meets(&d.Signal.Threshold) {
		s.m.HastenUnneeded()
		return true
	}
	j := s.jobs[l]
	if j.Refused {
		return s.m.HastenRefused(l)
	}
	s.say("hasten %s for %s", j.uid, e.Signal)
	d.AddTexts()
	s.m.Hasten(Stamp{Time: s.now(), Monotonic: s.t + time.Hour}, l, d.Evictions[i], d.Signal)
	l.RemoveFiles = l.RemoveFiles || e.Disk() && !s.Kubelet
	s.rules.begun(j.realPod, l)
	s.killOnce(j)
	s.awaits(j, s.t+DieLimit)
	return true
}

// carryOut follows carrier.carryOut: it waits for the end of a pod, and lets the runtime clean up.
func (s *shell) carryOut(j *job, grace time.Duration, urgent bool) {
	switch p := j.realPod; {
	case j.ended:
		s.emptied(j)
		return
	case urgent && p.Refused:
		s.later(p.Clean, func() { s.killOnce(j) })
	case urgent:
		s.killOnce(j)
	default:
		end := grace + stopBound
		if p.StopAfter > 0 {
			end = min(end, p.StopAfter)
		}
		s.later(end, func() { s.killOnce(j) })
		s.awaits(j, s.t+end+DieLimit)
		return
	}
	s.awaits(j, s.t+DieLimit)
}

// killOnce kills the pod that the job is for, and no later one.
func (s *shell) killOnce(j *job) {
	switch {
	case j.over || j.life != j.its:
	case !j.alive:
		s.emptied(j)
	default:
		s.kill(j.realPod)
		s.later(max(j.at+max(j.Die, j.Stuck)-s.t, 0), func() { s.emptied(j) })
	}
}

// awaits reports to the loop if the pod does not die in time.
func (s *shell) awaits(j *job, deadline time.Duration) {
	j.deadline = deadline
	s.later(deadline-s.t, func() {
		if j.over || j.late || j.life != j.its || !j.alive || s.t < j.deadline {
			return
		}
		j.late = true
		if s.current(j) {
			s.say("%s does not die", j.uid)
			s.m.MarkUndying(s.now(), j.of)
		}
		if j.Hasty {
			s.later(j.Clean, func() { s.clean(j) })
		}
	})
}

// current reports whether the job is not superseded.
func (s *shell) current(j *job) bool { return !j.over && s.m.Life(j.uid) == j.of }

// emptied handles the end of the pod's last process.
func (s *shell) emptied(j *job) {
	if j.over || j.endReported || j.life != j.its && !j.ended {
		return
	}
	j.endReported = true
	if !j.late && s.current(j) {
		s.say("%s is dead", j.uid)
		s.m.Emptied(s.stamp(), j.of)
		s.later(j.Die, func() { s.m.CacheDropped(j.of) }) // its page cache takes as long as its end
	}
	if !j.Uncleaned {
		s.later(j.Clean, func() { s.clean(j) })
	}
}

// endedByItself handles the end of a pod within its grace period: the carrier waits for the cgroup
// to be empty, whatever the cause.
func (s *shell) endedByItself(p *realPod) {
	for _, l := range s.m.Lives() {
		if j := s.jobs[l]; j != nil && j.realPod == p && !j.of.e.Urgent() {
			s.emptied(j)
		}
	}
}

// clean follows the runtime's clean-up, and what the agent frees on a node without a kubelet.
func (s *shell) clean(j *job) {
	if j.over {
		return
	}
	mine := j.life == j.its
	if mine && !j.alive && !s.Kubelet {
		j.vol = 0
		if j.of.RemoveFiles {
			j.disk = 0
		}
	}
	if j.late && mine && !j.alive && s.current(j) {
		s.m.Emptied(s.stamp(), j.of)
		s.m.CacheDropped(j.of)
	}
	if s.current(j) {
		s.say("%s is cleaned up", j.uid)
		s.m.Cleaned(s.stamp(), j.of)
	}
	if j.over = true; j.of.e.Disk() {
		s.walk()
	}
	if mine {
		s.cleaned(j.realPod)
	}
}

func (s *shell) stamp() Stamp { return Stamp{Time: s.now(), Monotonic: s.t + time.Hour} }

// resume follows Evictions.Resume in a new process.
func (s *shell) resume() {
	s.away, s.m, s.node, s.slow, s.growing = false, NewManager(s.config), stats.NodeStats{}, -time.Hour, nil
	s.rules.resumed()
	var saved Saved
	text, err := json.Marshal(s.saved)
	if err := errors.Join(err, json.Unmarshal(text, &saved)); err != nil {
		panic(err)
	}
	for _, err := range s.m.Resume(s.now(), saved) {
		s.say("not taken back: %v", err)
	}
	for _, l := range slices.Clone(s.m.Lives()) {
		p := s.podOf(l.e.Pod.PodRef.UID)
		if awaited := l.Phase() == Cleaned || l.Phase() == Over; awaited {
			continue
		}
		if l.GracePeriodLapsed(s.now()) {
			s.m.Abandon(s.now(), l)
			continue
		}
		here := p.listed() && !sameUIDRecreated(&l.e.Pod, new(p.stats(s.now(), false, false)))
		if !here && len(l.e.Pod.SandboxIDs) == 0 {
			s.m.Abandon(s.now(), l)
			continue
		}
		j := &job{realPod: p, of: l, its: p.life, ended: l.Dead() || !here, deadline: s.t + DieLimit}
		s.jobs[l] = j
		s.say("going on with %s", p.uid)
		switch killed := !l.Killed().Time.IsZero(); {
		case j.ended || !p.alive:
			s.emptied(j)
		case killed && p.killed:
			s.later(p.at+max(p.Die, p.Stuck)-s.t, func() { s.emptied(j) })
			s.awaits(j, s.t+l.DieWithin(s.stamp()))
		case killed: // what lives in its cgroup started later, or the runtime kills it
			s.later(p.Clean, func() { s.killOnce(j) })
			s.awaits(j, s.t+DieLimit)
		default:
			s.carryOut(j, max(l.Deadline().Sub(s.now()), 0), false)
		}
	}
}
