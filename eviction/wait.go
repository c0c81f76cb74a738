package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// This file delays a threshold while earlier evictions still return its resource, because another
// victim would die without need.

// dip is the divisor of the largest share of the available amount that a runtime uses while it
// tears a pod down: one eighth.
const dip = 8

// over reports whether nothing more is expected of an eviction.
func (es *evictions) over(now time.Time, l *Life, all []watched) bool {
	return es.returned(now, l, all) && !l.shmemPending(now)
}

// returned reports whether nothing more is expected of an eviction except shared memory. A disk
// gains during the clean-up or later: half of the expected amount, measured after the clean-up, is
// enough.
func (es *evictions) returned(now time.Time, l *Life, all []watched) bool {
	switch {
	case !l.terminated():
		return false
	case l.recreated:
		return true
	case !l.e.Disk():
		return l.cleanedUp || now.Sub(l.emptied.Time) >= l.returnLimit()
	case !l.cleanedUp:
		return now.Sub(l.emptied.Time) >= cleanLimit
	}
	return es.diskReturned(now, l, all)
}

// pendingReturns holds the returns that one threshold still expects from earlier evictions.
type pendingReturns struct {
	// the latest eviction that the threshold waits for; nil: none
	last      *Life
	remaining uint64 // still expected from all awaited evictions
	unknown   bool   // the expected amount of at least one eviction is unknown

	// For a disk: the usage of all awaited victims, and the disk's gain, which any of them may have
	// returned
	diskExpected, diskReturned uint64
	terminating                bool // at least one victim will die soon
	// files of a victim are being removed, or the disk was not measured since the removal
	removing bool
}

// pendingReturns collects the evictions that a threshold waits for.
func (es *evictions) pendingReturns(now time.Time, w *watched, ws *watchlist) (h pendingReturns) {
	expected := es.expectedTotal(now, w, ws.all)
	for _, l := range es.lives {
		if l.settled || !l.shmemEndsShortage(now, w, expected) &&
			(es.returned(now, l, ws.all) || !es.worthWaiting(now, l, w, expected, &ws.disks)) {
			continue
		}
		h.last = l
		if w.info.kind.disk() {
			h.addDisk(now, l, w)
			continue
		}
		left := l.remaining(w)
		h.remaining, h.unknown = stats.SaturatingAdd(h.remaining, left.V), h.unknown || !left.OK
	}
	return h
}

// worthWaiting reports whether a threshold waits for the returns of an eviction.
//
// Evictions for a pod's own limits hold back disks only. Victims in a grace period hold back no
// hard threshold, not even when they are dead: soft never delays hard. A threshold waits for a
// victim that was chosen for its resource. For any other victim, the known returns together with
// those of other victims must end the shortage: they are available once the victim's processes end.
// The files of any victim stay.
func (es *evictions) worthWaiting(now time.Time, l *Life, w *watched, expected uint64,
	d *fileSystems) bool {
	chosen, short := l.e.kind, w.info.kind
	switch {
	case short.disk() && l.e.Disk():
		return es.worthWaitingOnDisk(l, w, d)
	case !l.countsFor(now, w), es.lingers(now, l):
		return false
	case short == chosen:
		return true
	case short.pressure(): // a share of time: its later value is unknown
		return true
	case !l.remaining(w).OK:
		return short != kindMemory
	}
	return !w.observed.Short(w.limit) || stats.SaturatingAdd(w.observed.Value, expected) >= w.limit
}

// countsFor reports whether the returns of an eviction may count for a threshold that is not for a
// disk.
//
// A victim for a disk counts only from its kill (spared) until its death, because its clean-up
// takes minutes. Its expected returns are an estimate: if its death is late, only a measurement
// after the kill counts. Page cache returns a moment after any victim's death.
func (l *Life) countsFor(now time.Time, w *watched) bool {
	chosen, short := l.e.kind, w.info.kind
	switch {
	case short == kindMemory && (l.e.Disk() || chosen != kindMemory) && l.Dead() && !l.cacheDropped &&
		!l.recreated:
		return now.Sub(l.emptied.Time) < settleLimit
	case w.Hard() && !l.e.hard && !l.hastened(), short.disk():
		return false
	case l.e.Disk():
		return short < amounts && !l.killed.Time.IsZero() && !l.terminated() &&
			(l.heldSince[short].OK || l.sinceKill(now) < settleLimit)
	}
	return short == chosen || short.pressure() || !l.terminated()
}

// spared reports whether the runtime is stopping a victim for a disk that a hard threshold for
// memory, swap or PIDs would kill immediately. The runtime takes one to three seconds, in which
// memory may run out.
func (l *Life) spared(w *watched) bool {
	k := w.info.kind
	return w.Hard() && k < amounts && !k.disk() && l.e.hard && l.e.kind.disk() && !l.e.Local() &&
		!l.killRefused && l.killed.Time.IsZero()
}

// endsShortage reports whether the expected returns of l alone end the shortage.
func (l *Life) endsShortage(w *watched) bool {
	left := l.remaining(w)
	return left.OK && left.V > 0 && w.observed.Short(w.limit) && stats.SaturatingAdd(w.observed.Value,
		left.V) >= w.limit
}

// shmemEndsShortage reports whether a dead victim's shared memory, together with the expected
// returns of others, ends a shortage of memory. The victim may have been evicted for any signal.
func (l *Life) shmemEndsShortage(now time.Time, w *watched, expected uint64) bool {
	return w.info.kind == kindMemory && l.shmemPending(now) && (!w.observed.Short(w.limit) ||
		stats.SaturatingAdd(w.observed.Value, expected) >= w.limit)
}

// expectedTotal returns the expected returns of all victims together, of an amount other than a
// disk's: those of terminating victims, chosen for any signal, and the shared memory of dead ones.
// Several may end a shortage that none ends alone.
func (es *evictions) expectedTotal(now time.Time, w *watched, all []watched) (amount uint64) {
	if !w.Amount() || w.info.kind.disk() {
		return 0
	}
	shared := uint64(0)
	for _, l := range es.lives {
		switch {
		case l.settled:
		case w.info.kind == kindMemory && l.shmemPending(now):
			shared = stats.SaturatingAdd(shared, l.shmem.pending)
		case !es.returned(now, l, all) && l.countsFor(now, w) && !es.lingers(now, l):
			amount = stats.SaturatingAdd(amount, l.remaining(w).V)
		}
	}
	return stats.SaturatingAdd(amount, min(shared, es.pool.pending()))
}

// blocked returns why a threshold must wait for the returns of earlier evictions; empty if it need
// not wait.
func (es *evictions) blocked(now time.Time, w *watched, ws *watchlist) string {
	h := es.pendingReturns(now, w, ws)
	if h.last == nil || h.outgrown(now, w) {
		return ""
	}
	if h.last.terminated() {
		return "waiting for the returns of the eviction of pod " + h.last.e.Pod.PodRef.UID
	}
	return "eviction of pod " + h.last.e.Pod.PodRef.UID + " in progress"
}

// outgrown reports whether the shortage grew by more than the amount that is still expected, and by
// more than the runtime's own usage (dip).
//
// The base is the value of the threshold's own signal when the victim was killed, or the limit if
// the signal was not short then. In three cases the shortage has outgrown the returns only if less
// than half of the base is left: the expected amount is unknown; the victim is dead, so that a part
// has returned; or its death is late.
func (h *pendingReturns) outgrown(now time.Time, w *watched) bool {
	if w.info.kind.disk() {
		return h.outgrownDisk(w)
	}
	base, late := h.baseline(w), h.late(now)
	half := w.observed.HalfGone(base) || late && w.observed.Value < h.floor(w)
	switch {
	case !w.Amount():
		return false
	// the returns do not end the shortage
	case late && !h.unknown && !h.last.terminated() && stats.SaturatingAdd(w.observed.Value,
		h.remaining) < w.limit:
		return true
	case late && half:
		return true
	case w.observed.Value >= base:
		return false
	case h.last.terminated():
		return half
	case h.unknown:
		return half
	}
	return stats.SaturatingAdd(w.observed.Value, max(h.remaining, base/dip)) < base
}

// late reports whether the returns are overdue: the kernel holds the victim, or an owner holds its
// volumes.
func (h *pendingReturns) late(now time.Time) bool {
	if h.last.Dead() {
		return now.Sub(h.last.emptied.Time) >= settleLimit
	}
	return h.last.sinceKill(now) >= settleLimit
}

// floor returns the amount below which a threshold stops waiting for late returns. The amount is
// lower once the victim is dead and only an owner holds its volumes, because their memory will
// return.
func (h *pendingReturns) floor(w *watched) uint64 {
	if h.last.terminated() {
		return w.limit / (4 * dip)
	}
	return w.limit / dip
}

// baseline returns the value that a shortage is compared with: the value at the kill, or the
// highest value since, because another pod may use the returned amount. For a disk the value at the
// kill counts: a disk gains late, and also from the removal of other pods' files.
func (h *pendingReturns) baseline(w *watched) uint64 {
	at := h.last.levelOf(w)
	switch {
	case !at.OK:
		return w.limit
	case !w.info.kind.disk():
		at.V = max(at.V, h.last.baselines[w.info.order].best)
	}
	return min(at.V, w.limit)
}

// worthRemeasuring reports whether a new look should update the expected returns of the victim that
// a threshold waits for. That is so if a killed victim is still alive, and its death is late or
// half of the baseline is gone: the look shows the amount that the victim still holds. It is also
// so if a dead victim's shared memory is late: the look shows whether the pod was recreated with
// its volumes.
func (es *evictions) worthRemeasuring(now time.Time, w *watched, ws *watchlist) bool {
	h := es.pendingReturns(now, w, ws)
	switch {
	case h.last == nil || w.info.kind.disk():
		return false
	case h.last.terminated():
		return h.late(now) && h.last.shmemPending(now)
	case h.last.sinceKill(now) <= 0:
		return false
	case h.late(now):
		return true
	}
	return w.info.kind.memoryView() && (w.observed.HalfGone(h.baseline(w)) ||
		w.observed.Value < w.limit/dip)
}

// remeasure updates the expected returns of victims that still run, because a leaking pod keeps
// leaking until its end.
func (es *evictions) remeasure(in Input, ws *watchlist) {
	for _, l := range es.lives {
		if !l.terminating() {
			continue
		}
		at := slices.IndexFunc(in.Summary.Pods,
			func(s stats.PodStats) bool { return s.PodRef.UID == l.e.Pod.PodRef.UID })
		for i := range ws.all {
			w := &ws.all[i]
			if at < 0 || w.Signal != l.e.Signal || in.Summary.Pods[at].Memory.Quick {
				continue
			}
			c := Candidate{Pod: &in.Summary.Pods[at], Object: in.object(&in.Summary.Pods[at])}
			// A pod does not return its part in a pressure, so the part is absent here.
			es.config.Policy.measure(&c, w, &ws.disks, in.Summary.Node.Memory.Ordinary(),
				stats.Opt[uint64]{})
			if r := expected(&c, w); r.OK && r.V <= implausible && l.killed.Time.IsZero() {
				l.e.Returns = max(l.e.Returns, r.V)
				l.expectReturned()
			}
		}
		if at >= 0 && !in.Summary.Pods[at].Memory.Quick {
			es.applyMeasurement(l, &in.Summary.Pods[at])
			l.noteDiskUse(&in.Summary.Pods[at], ws)
		}
	}
}

// lingers reports whether a preempted or descheduled pod takes longer to stop than any pod evicted
// for a threshold. Its grace period is its own and may be an hour. Soft thresholds then do not wait
// for the pod, and may evict it: it already had the grace period that they would give it.
func (es *evictions) lingers(now time.Time, l *Life) bool {
	longest := time.Duration(max(es.config.MaxPodGracePeriodSeconds, hardGrace))*time.Second + DieLimit
	return l.e.Planned() && !l.terminated() && now.Sub(l.began.Time) >= longest
}

// fillKeys sets the keys of a candidate that is being evicted already. It returns false if the pod
// is no candidate, because an eviction for this threshold would not end it sooner.
func (es *evictions) fillKeys(k *Keys, now time.Time, uid string, w *watched) (candidate bool) {
	l := es.terminating(uid)
	if l == nil {
		return true
	}
	spared, late := l.spared(w), !w.Hard() && es.lingers(now, l) && l.killed.Time.IsZero()
	if ((l.e.hard || l.hastened()) && !spared || !w.Hard() || l.e.Local() && w.info.kind.disk()) &&
		!late {
		return false
	}
	k.Dying, k.eases = true, l.e.returnsKind(w.info.kind) || (spared || late) && l.endsShortage(w)
	return true
}
