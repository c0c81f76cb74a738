package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// evictions holds the evictions that thresholds may still wait for, or that have no outcome yet.
type evictions struct {
	config      *Config
	lives       []*Life    // in the order in which they began or were hastened
	diskCleaned time.Time  // when the files of the last victim for a disk were removed
	pool        sharedPool // shared memory of the evictions that are not settled
	history     history

	withOutcome, finished []*Life // slices that Ready returned
}

// readyCapacity is the number of evictions that fit into the slices of Ready without an allocation.
// No allocation may happen between a crossing and its kill.
const readyCapacity = 16

func newEvictions(c *Config) evictions {
	return evictions{
		config: c, withOutcome: make([]*Life, 0, readyCapacity),
		finished: make([]*Life, 0, readyCapacity),
		history:  history{aside: map[string]setAside{}, evicted: map[string]evicted{}},
	}
}

// begin adds an eviction. It supersedes an earlier one of the same pod.
func (es *evictions) begin(at Stamp, e Eviction, met Met, ws *watchlist,
	shmem stats.Opt[uint64]) *Life {
	for _, l := range es.lives {
		if l.e.Pod.PodRef.UID == e.Pod.PodRef.UID {
			es.supersede(l, ws)
		}
	}
	l := &Life{began: at}
	es.assign(l, e, met, ws, shmem)
	l.deadline = at.Time.Add(time.Duration(e.GracePeriodSeconds) * time.Second)
	es.lives = append(es.lives, l)
	return l
}

// hasten stores that a kill cut the grace period of an eviction short. It reports whether the
// eviction is now for e. It stays for the disk if its victim was chosen for a disk and e is not for
// one.
func (es *evictions) hasten(
	at Stamp, l *Life, e Eviction, met Met, ws *watchlist, shmem stats.Opt[uint64],
) (reassigned bool) {
	if reassigned = !l.e.Disk() || e.Disk(); reassigned {
		es.assign(l, e, met, ws, shmem)
	} else {
		l.expectAmounts(&e.Pod, ws.all)
		if l.shmem.pending == 0 { // the victim may have filled it since the eviction began
			es.expectShmem(l, e.Pod.Memory.ShmemBytes, shmem)
		}
	}
	l.killed = at
	es.lives = append(slices.DeleteFunc(es.lives, func(o *Life) bool { return o == l }), l)
	return reassigned
}

// assign sets the eviction and threshold of a life, with the current observations. shmem is the
// node's shared memory.
func (es *evictions) assign(l *Life, e Eviction, met Met, ws *watchlist, shmem stats.Opt[uint64]) {
	l.e, l.met, l.level = e, met, ws.observedBy(&e, &met.Threshold).Value
	es.expectReturns(l, ws, shmem)
	shared := e.Pod.Memory.ShmemBytes
	l.hasShmem = e.kind == kindMemory && shared.OK && shared.V > leastShared
}

// emptied stores that no process of a victim is left.
func (es *evictions) emptied(at Stamp, l *Life, ws *watchlist) {
	if l.Dead() || l.Phase() == Over {
		return
	}
	if l.emptied = at; l.undying {
		l.undying, l.outcome, l.outcomeAcked = false, OutcomeUnknown, false
	}
	if !l.recreated {
		es.noteDeath(at.Time, l, ws)
	}
}

// cleaned stores that the runtime has cleaned up after a victim.
func (es *evictions) cleaned(at Stamp, l *Life) {
	if l.Phase() == Over {
		return
	}
	if l.cleanedUp, l.cleaned = true, at; l.e.Disk() {
		es.diskCleaned = at.Time
	}
}

// markUndying sets aside a victim that survived its kill.
func (es *evictions) markUndying(now time.Time, l *Life, ws *watchlist) {
	if l.Phase() == Over || l.Dead() {
		return
	}
	es.settle(l)
	l.undying = true
	l.outcome, l.outcomeAcked = OutcomeUndying, false
	l.observedAfter = ws.observedBy(&l.e, &l.met.Threshold)
	es.history.rankLast(now, l.e.Pod.PodRef.UID)
}

// abandon stores that nothing is left to carry out for an eviction that an earlier process began.
func (es *evictions) abandon(now time.Time, l *Life, ws *watchlist) {
	if l.abandoned = true; !l.terminated() && !l.undying {
		l.emptied, l.cleaned, l.cleanedUp = Stamp{Time: now}, Stamp{Time: now}, true
		es.noteDeath(now, l, ws)
	}
}

// noteDeath stores that a victim has died.
func (es *evictions) noteDeath(now time.Time, l *Life, ws *watchlist) {
	es.history.noteDeath(now, l.e.Pod.PodRef.UID)
	l.noteDiskGrowth(ws)
}

// supersede ends an eviction because a later attempt at the same pod replaces it. That attempt
// cleans up for both.
func (es *evictions) supersede(l *Life, ws *watchlist) {
	if l.outcome == OutcomeUnknown {
		l.observedAfter = ws.observedBy(&l.e, &l.met.Threshold)
		l.outcome = OutcomeUndying
		if l.terminated() {
			l.outcome = OutcomeNotBack
		}
	}
	es.settle(l)
	l.cleanedUp, l.superseded = true, true
}

// settle ends the wait for a victim.
func (es *evictions) settle(l *Life) {
	if !l.settled {
		l.settled = true
		es.releaseShmem(l)
	}
}

// noteRecreated marks the victims that are gone because another cgroup or sandbox has their UID.
func (es *evictions) noteRecreated(now time.Time, pods []stats.PodStats, ws *watchlist) {
	for i := range pods {
		if l := es.terminating(pods[i].PodRef.UID); l != nil && sameUIDRecreated(&l.e.Pod, &pods[i]) {
			l.recreated = true
			es.noteDeath(now, l, ws)
		}
	}
	es.settleRecreatedShmem(now, pods)
}

// forget drops the evictions that are finished and acknowledged. In a replay nothing is
// acknowledged.
func (es *evictions) forget() {
	es.lives = slices.DeleteFunc(es.lives, func(l *Life) bool {
		return l.settled && (l.endAcked || l.abandoned || es.config.Replay)
	})
}

// sameUIDRecreated reports whether the current pod is not the evicted one although both have the
// same UID. A kubelet that restarts a pod keeps the UID and the cgroup, but creates another
// sandbox.
func sameUIDRecreated(evicted, current *stats.PodStats) bool {
	var unread stats.PodStats
	return evicted.CgroupID != unread.CgroupID && current.CgroupID != unread.CgroupID &&
		evicted.CgroupID != current.CgroupID ||
		len(evicted.SandboxIDs) > 0 && len(current.SandboxIDs) > 0 &&
			evicted.SandboxIDs[0] != current.SandboxIDs[0]
}

// life returns the eviction of a pod that is not over; nil without one.
func (es *evictions) life(uid string) *Life {
	for _, l := range slices.Backward(es.lives) {
		if l.e.Pod.PodRef.UID == uid && l.Phase() != Over {
			return l
		}
	}
	return nil
}

// inProgress returns the evictions that are not over, or whose outcome the caller has not
// acknowledged.
func (es *evictions) inProgress() []*Life {
	var out []*Life
	for _, l := range es.lives {
		if l.Phase() != Over || l.unacknowledged() {
			out = append(out, l)
		}
	}
	return out
}

// terminating returns the eviction of a pod that still runs and is not set aside; nil without one.
func (es *evictions) terminating(uid string) *Life {
	for _, l := range es.lives {
		if l.terminating() && l.e.Pod.PodRef.UID == uid {
			return l
		}
	}
	return nil
}

// report fills in the fields of r about evictions.
func (es *evictions) report(now time.Time, r *Ready) {
	es.withOutcome, es.finished = es.withOutcome[:0], es.finished[:0]
	for _, l := range es.lives {
		if l.outcome != OutcomeUnknown && !l.outcomeAcked {
			l.outcomeReported = true
			es.withOutcome = append(es.withOutcome, l)
		}
		if l.outcome != OutcomeUnknown && l.cleanedUp && !l.endAcked && !l.abandoned {
			l.endReported = true
			es.finished = append(es.finished, l)
		}
		stopped := l.began.Time
		if !l.killed.Time.IsZero() {
			stopped = l.killed.Time
		}
		r.Evicting = r.Evicting || l.CleaningUp() && now.Sub(stopped) < busyLimit
		switch {
		case l.returningMemory(now):
			r.Within = pollReturn
		// other pods may fill tmpfs between two looks, which hides the freed memory
		case l.shmemPending(now) && !l.settled:
			r.Within = min(r.Within, pollShort)
		}
	}
	r.Outcomes, r.Finished = es.withOutcome, es.finished
}

// advance marks everything that the last Ready contained as acknowledged.
func (es *evictions) advance() {
	for _, l := range es.lives {
		l.outcomeAcked, l.endAcked = l.outcomeAcked || l.outcomeReported, l.endAcked || l.endReported
		l.outcomeReported, l.endReported = false, false
	}
	es.forget()
}
