package eviction

import (
	"time"

	"jettison/stats"
)

// Step decides on one look: which conditions hold, what to reclaim first, and who is to be evicted.
// At most one pod is evicted for a threshold, and none while what another one returns is on its
// way: the next look tells whether it was enough. What becomes of a decision is told with Begin and
// the events of its Life.
func (m *Manager) Step(now time.Time, in Input) Decision {
	look := LookFull
	if in.MemoryOnly {
		look = LookMemory
	}
	m.looks.looked(now, look)
	m.watch.disks.foreign = in.Foreign
	m.cheap.Node.Memory, m.cheap.Node.Pods = in.Summary.Node.Memory, in.Summary.Node.Pods
	m.watch.arrange(&in.Summary.Node)
	m.watch.judge(now, in.Summary)
	m.watch.ripen(now, in.MemoryOnly)
	m.watch.part(now, in)
	m.settle(now, in.Summary)
	m.evictions.remeasure(in, &m.watch)
	m.explain.lookAtQuiet(now, in, &m.watch)
	if !in.MemoryOnly {
		m.causes.follow(now, in.Summary, &m.watch)
	}
	held := m.conditions.hold(now, m.watch.all, m.config.PressureTransitionPeriod)
	d := Decision{Time: now, Conditions: held, Met: m.watch.met(&m.scratch.met)}
	m.before = Decision{}
	// as the kubelet: look again before anything else
	if d.Evictions = m.offenders(now, in); len(d.Evictions) > 0 {
		d.Reason = "pods exceed their own limits on local storage"
		return d
	}
	if d.Met == nil {
		return d
	}
	if !in.ObserveDisks && !in.MemoryOnly {
		d.Reclaim = m.watch.wishes()
	}
	m.decide(now, in, &d, false)
	if len(d.Reclaim) > 0 {
		m.before = d
	}
	return d
}

// settle moves the evictions on: it recognises pods that came back, ends the wait for what is over,
// and finds out what has become of each.
func (m *Manager) settle(now time.Time, s *stats.Summary) {
	m.breakers.calm(m.watch.all)
	if len(m.evictions.lives) == 0 {
		return
	}
	m.evictions.recognize(now, s.Pods, &m.watch)
	m.evictions.followShared(m.cheap.Node.Memory.ShmemBytes)
	for _, l := range m.evictions.lives {
		l.came(m.watch.all)
		if !l.settled && m.evictions.over(now, l, m.watch.all) {
			if w := m.watch.watchedBy(&l.e, &l.met.Threshold); m.breakers.count(now, l, w) {
				m.evictions.letGo(l)
			}
		}
		l.conclude(now, &m.watch)
	}
	m.evictions.forget()
}

// Reclaimed is the second half of a step whose Decision had wishes: it decides on a look taken
// after they were carried out, each by the signal that it was for. Conditions and what is met are
// as before the reclaim; pods are ranked by the new look, and messages have its figures. (The
// kubelet ranks by the look before the reclaim and writes that one's figures.)
func (m *Manager) Reclaimed(now time.Time, in Input) Decision {
	d, hadVictim := m.before, len(m.before.Evictions) > 0
	m.before = Decision{}
	d.Reclaim, d.Evictions, d.Ranking, d.Protected, d.Signal, d.Reason = nil, nil, nil, nil, Met{}, ""
	if len(d.Met) == 0 {
		d.Time = now
		return d
	}
	if hadVictim {
		d.Reason = "one victim a step"
		return d
	}
	d.Reason = m.watch.lookAfterReclaim(now, in.Summary)
	m.decide(now, in, &d, true)
	return d
}

// decide has the thresholds ask for a victim, in order, until one gets it. Those for which
// something is being reclaimed wait, and while a hard one does, no soft one gets a victim before
// it.
func (m *Manager) decide(now time.Time, in Input, d *Decision, reclaimed bool) {
	hardWaits := false
	if len(m.watch.order) == 0 {
		d.Signal, d.Reason = d.Met[0], "its grace period is not over"
		if now.Sub(d.Signal.Since) >= d.Signal.Threshold.Grace {
			d.Reason = "it was not observed anew since the last step"
		}
	}
	for _, i := range m.watch.order {
		w := &m.watch.all[i]
		if !w.due {
			continue
		}
		if w.asked && !reclaimed || hardWaits && !w.Hard() {
			hardWaits = hardWaits || w.Hard()
			if d.Reason == "" {
				d.Signal, d.Reason = *find(d.Met, w), "what can be reclaimed comes first"
			}
			continue
		}
		if m.choose(now, in, d, w) {
			return
		}
	}
}
