package eviction

import (
	"time"

	"jettison/stats"
)

// Step decides on one look: which conditions are true, what to reclaim first, and which pod to
// evict. At most one pod is evicted for a threshold, and none while the returns of an earlier
// eviction are still expected: the next look shows whether they were enough. The caller reports the
// progress of the eviction with Begin and the methods in reports.go.
func (m *Manager) Step(now time.Time, in Input) Decision {
	look := LookFull
	if in.MemoryOnly {
		look = LookMemory
	}
	m.looks.record(now, look)
	m.watch.disks.foreign = in.Foreign
	m.lastCheap.Node.Memory, m.lastCheap.Node.Pods = in.Summary.Node.Memory, in.Summary.Node.Pods
	m.watch.applyLayout(&in.Summary.Node)
	m.watch.evaluate(now, in.Summary)
	m.watch.findDue(now, in.MemoryOnly)
	m.watch.splitTotals(now, in)
	m.settle(now, in.Summary)
	m.evictions.remeasure(in, &m.watch)
	m.explain.recordQuiet(now, in, &m.watch)
	if !in.MemoryOnly {
		m.causes.follow(now, in.Summary, &m.watch)
	}
	held := m.conditions.update(now, m.watch.all, m.config.PressureTransitionPeriod)
	d := Decision{Time: now, Conditions: held, Met: m.watch.met(&m.scratch.met)}
	m.firstHalf = Decision{}
	// like the kubelet: look again before evicting for thresholds
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
		m.firstHalf = d
	}
	return d
}

// settle updates the evictions: it detects recreated pods, ends the wait for evictions that are
// over, and sets outcomes.
func (m *Manager) settle(now time.Time, s *stats.Summary) {
	m.breakers.closeRecovered(m.watch.all)
	if len(m.evictions.lives) == 0 {
		return
	}
	m.evictions.noteRecreated(now, s.Pods, &m.watch)
	m.evictions.followShmem(m.lastCheap.Node.Memory.ShmemBytes)
	for _, l := range m.evictions.lives {
		l.noteReturned(m.watch.all)
		if !l.settled && m.evictions.over(now, l, m.watch.all) {
			if w := m.watch.watchedBy(&l.e, &l.met.Threshold); m.breakers.countOutcome(now, l, w) {
				m.explain.settleSuspected(l, w, &m.watch.disks)
				m.evictions.settle(l)
			}
		}
		l.conclude(now, &m.watch)
	}
	m.evictions.forget()
}

// StepAfterReclaim is the second half of a step with reclaim requests in its Decision. It decides
// on a look made after the reclaim. Conditions and the thresholds met stay those before the
// reclaim. Pods are ranked by the new look, and messages contain its values. (The kubelet ranks by
// the look before the reclaim and writes the values of that look.)
func (m *Manager) StepAfterReclaim(now time.Time, in Input) Decision {
	d, hadVictim := m.firstHalf, len(m.firstHalf.Evictions) > 0
	m.firstHalf = Decision{}
	d.Reclaim, d.Evictions, d.Ranking, d.Protected, d.Signal, d.Reason = nil, nil, nil, nil, Met{}, ""
	if len(d.Met) == 0 {
		d.Time = now
		return d
	}
	if hadVictim {
		d.Reason = "one victim per step"
		return d
	}
	d.Reason = m.watch.observeAfterReclaim(now, in.Summary)
	m.decide(now, in, &d, true)
	return d
}

// softHold bounds how long soft thresholds wait while a hard threshold waits for its reclaim. The
// garbage collection of a disk takes up to reliefLimit, and may be repeated.
const softHold = 20 * time.Second

// hold is a wait of soft thresholds.
type hold struct{ since, last time.Time }

// over reports whether soft thresholds have waited long enough. A hold that was not continued for
// reliefInterval is another one.
func (h *hold) over(now time.Time) bool {
	if now.Sub(h.last) > reliefInterval {
		h.since = now
	}
	h.last = now
	return now.Sub(h.since) >= softHold
}

// decide chooses a victim for the first threshold, in order of urgency, that may evict one now. A
// threshold waits for its reclaim. While a hard threshold waits, no soft threshold gets a victim
// for softHold.
func (m *Manager) decide(now time.Time, in Input, d *Decision, reclaimed bool) {
	hardWaits := false
	if len(m.watch.order) == 0 {
		d.Signal, d.Reason = d.Met[0], "grace period is not over"
		if now.Sub(d.Signal.Since) >= d.Signal.Threshold.Grace {
			d.Reason = "not observed again since the last step"
		}
	}
	for _, i := range m.watch.order {
		w := &m.watch.all[i]
		if !w.due {
			continue
		}
		if w.reclaiming && !reclaimed || hardWaits && !w.Hard() && !m.softHold.over(now) {
			hardWaits = hardWaits || w.Hard()
			if d.Reason == "" {
				d.Signal, d.Reason = *findMet(d.Met, w), "waiting for reclaim"
			}
			continue
		}
		if m.choose(now, in, d, w) {
			return
		}
	}
}
