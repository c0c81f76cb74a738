package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// Evictions that others wait for: what they return is on its way, and the next victim would die for
// nothing.

// dip is the share of what was available that a runtime takes for itself while it tears a pod down:
// an eighth at most.
const dip = 8

// over reports whether nothing more is to be expected of an eviction.
func (es *evictions) over(now time.Time, l *Life, all []watched) bool {
	return es.returned(now, l, all) && !l.sharedAwaited(now)
}

// returned is the same but for shared memory. What a disk gives back comes with the clean-up or
// after it: half of what is expected, measured after the clean-up, is enough to go by.
func (es *evictions) returned(now time.Time, l *Life, all []watched) bool {
	switch {
	case !l.departed():
		return false
	case l.back:
		return true
	case !l.e.Disk():
		return l.clean || now.Sub(l.emptied.Time) >= l.limit()
	case !l.clean:
		return now.Sub(l.emptied.Time) >= cleanLimit
	}
	return es.diskReturned(now, l, all)
}

// held is what holds back a threshold.
type held struct {
	last      *Life  // the eviction that was begun last of those that it waits for; nil: none
	remaining uint64 // what is still to come of all of them
	unknown   bool   // of some that is not known

	// Of a disk.
	due, came uint64 // what all of them held, and what came back since: each may have given that
	dying     bool   // one is on its way out still, and not for long
	// the files of one are still being removed, or it was not measured since they were
	removing bool
}

// holding finds the evictions that a threshold waits for.
func (es *evictions) holding(now time.Time, w *watched, ws *watchlist) (h held) {
	together := es.together(now, w, ws.all)
	for _, l := range es.lives {
		if l.settled || !l.sharesEnough(now, w, together) &&
			(es.returned(now, l, ws.all) || !es.eases(now, l, w, together, &ws.disks)) {
			continue
		}
		h.last = l
		if w.info.kind.disk() {
			h.awaits(now, l, w)
			continue
		}
		left := l.remaining(w)
		h.remaining, h.unknown = stats.SaturatingAdd(h.remaining, left.V), h.unknown || !left.OK
	}
	return h
}

// eases reports whether what an eviction returns is worth waiting for. Those for a pod's own limits
// hold up disks only, and gentle ones no hard threshold, not even when they are over: soft never
// delays hard. What a victim was chosen for is worth it; else what it is known to return has to
// explain the shortage, with what is expected of others: it is there once its processes are gone.
// Files stay, whatever else a victim went for.
func (es *evictions) eases(now time.Time, l *Life, w *watched, together uint64,
	d *fileSystems) bool {
	chosen, short := l.e.kind, w.info.kind
	switch {
	case short.disk() && l.e.Disk():
		return es.easesDisk(l, w, d)
	case !l.counts(now, w), es.lingers(now, l):
		return false
	case short == chosen:
		return true
	case short.pressure(): // a share of time: what it will be is not known
		return true
	case !l.remaining(w).OK:
		return short != kindMemory
	}
	return !w.observed.Short(w.limit) || stats.SaturatingAdd(w.observed.Value, together) >= w.limit
}

// counts reports whether what an eviction returns may count for a threshold that is not for a disk.
// A disk's victim counts once it was killed for one (spared), until it is dead, for its clean-up
// takes minutes; and what it returns is a guess: where its end is late, only what was measured
// since tells. Page cache comes back a moment after a victim's end, whatever it was chosen for, and
// however gently.
func (l *Life) counts(now time.Time, w *watched) bool {
	chosen, short := l.e.kind, w.info.kind
	switch {
	case short == kindMemory && (l.e.Disk() || chosen != kindMemory) && l.Dead() && !l.uncached &&
		!l.back:
		return now.Sub(l.emptied.Time) < settleLimit
	case w.Hard() && !l.e.hard && !l.hastened(), short.disk():
		return false
	case l.e.Disk():
		return short < amounts && !l.killed.Time.IsZero() && !l.departed() &&
			(l.holds[short].OK || l.since(now) < settleLimit)
	}
	return short == chosen || short.pressure() || !l.departed()
}

// spared reports whether a disk's victim is being stopped that a hard threshold would have killed
// at once: that takes a second or three, in which memory may be gone.
func (l *Life) spared(w *watched) bool {
	k := w.info.kind
	return w.Hard() && k < amounts && !k.disk() && l.e.hard && l.e.kind.disk() && !l.e.Local() &&
		!l.refused && l.killed.Time.IsZero()
}

// endsAlone reports whether what is expected of an eviction is all that is short.
func (l *Life) endsAlone(w *watched) bool {
	left := l.remaining(w)
	return left.OK && left.V > 0 && w.observed.Short(w.limit) && stats.SaturatingAdd(w.observed.Value,
		left.V) >= w.limit
}

// sharesEnough reports whether what a dead victim has in shared memory explains a shortage, with
// what is expected of others, whatever it was evicted for, however gently.
func (l *Life) sharesEnough(now time.Time, w *watched, together uint64) bool {
	return w.info.kind == kindMemory && l.sharedAwaited(now) && (!w.observed.Short(w.limit) ||
		stats.SaturatingAdd(w.observed.Value, together) >= w.limit)
}

// together is what is expected of victims for an amount that is no disk's: of those that are on
// their way out, whatever each was chosen for, and what dead ones have in shared memory. What none
// of them explains alone they may explain together.
func (es *evictions) together(now time.Time, w *watched, all []watched) (amount uint64) {
	if !w.Amount() || w.info.kind.disk() {
		return 0
	}
	shared := uint64(0)
	for _, l := range es.lives {
		switch {
		case l.settled:
		case w.info.kind == kindMemory && l.sharedAwaited(now):
			shared = stats.SaturatingAdd(shared, l.shmem.left)
		case !es.returned(now, l, all) && l.counts(now, w) && !es.lingers(now, l):
			amount = stats.SaturatingAdd(amount, l.remaining(w).V)
		}
	}
	return stats.SaturatingAdd(amount, min(shared, es.pool.left()))
}

// blocked says why a threshold has to wait for what earlier evictions return; empty: it has not.
func (es *evictions) blocked(now time.Time, w *watched, ws *watchlist) string {
	h := es.holding(now, w, ws)
	if h.last == nil || h.outgrown(now, w) {
		return ""
	}
	if h.last.departed() {
		return "what the eviction of pod " + h.last.e.Pod.PodRef.UID + " returns is still on its way"
	}
	return "the eviction of pod " + h.last.e.Pod.PodRef.UID + " is under way"
}

// outgrown reports whether the shortage has grown by more than what is still on its way, and by
// more than a dip, which is the runtime's own work. It is judged by what was left of the
// threshold's own signal when the victim was killed, for whatever that went, or by the limit where
// it was not short then. Where it is not known what is to come, less than half of that must be
// left: once the victim is dead, for some is there already; and where it should be dead for long.
func (h *held) outgrown(now time.Time, w *watched) bool {
	if w.info.kind.disk() {
		return h.outgrownDisk(w)
	}
	base, late := h.base(w), h.late(now)
	half := w.observed.HalfGone(base) || late && w.observed.Value < h.floor(w)
	switch {
	case !w.Amount():
		return false
	// it does not explain the shortage
	case late && !h.unknown && !h.last.departed() && stats.SaturatingAdd(w.observed.Value,
		h.remaining) < w.limit:
		return true
	case late && half:
		return true
	case w.observed.Value >= base:
		return false
	case h.last.departed():
		return half
	case h.unknown:
		return half
	}
	return stats.SaturatingAdd(w.observed.Value, max(h.remaining, base/dip)) < base
}

// late reports whether what is awaited should have been there long ago: the victim is held by the
// kernel, or its volumes by their owner.
func (h *held) late(now time.Time) bool {
	if h.last.Dead() {
		return now.Sub(h.last.emptied.Time) >= settleLimit
	}
	return h.last.since(now) >= settleLimit
}

// floor is what has to be left where what is awaited is late: next to nothing where its owner has
// it, for that will come.
func (h *held) floor(w *watched) uint64 {
	if h.last.departed() {
		return w.limit / (4 * dip)
	}
	return w.limit / dip
}

// base is what a shortage is held against: what was left at the kill, or the most since then, for
// what came back since may be eaten again. Of a disk it is the former: that comes back late, and of
// others' files.
func (h *held) base(w *watched) uint64 {
	at := h.last.levelOf(w)
	switch {
	case !at.OK:
		return w.limit
	case !w.info.kind.disk():
		at.V = max(at.V, h.last.marks[w.info.order].best)
	}
	return min(at.V, w.limit)
}

// doubtful reports whether a threshold waits for a victim that was killed and has not died, while
// half of what was left is gone, or for too long: what that victim still has is worth being
// measured. Where it waits too long for what a dead one has in shared memory, a look tells whether
// that one has come back, and its volumes with it.
func (es *evictions) doubtful(now time.Time, w *watched, ws *watchlist) bool {
	h := es.holding(now, w, ws)
	switch {
	case h.last == nil || w.info.kind.disk():
		return false
	case h.last.departed():
		return h.late(now) && h.last.sharedAwaited(now)
	case h.last.since(now) <= 0:
		return false
	case h.late(now):
		return true
	}
	return w.info.kind.memoryView() && (w.observed.HalfGone(h.base(w)) ||
		w.observed.Value < w.limit/dip)
}

// remeasure follows pods that are being evicted gently: one that leaks goes on leaking, and what it
// takes meanwhile it returns, too.
func (es *evictions) remeasure(in Input, ws *watchlist) {
	for _, l := range es.lives {
		if !l.dying() {
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
			// What a pod did to a pressure does not come back.
			es.config.Policy.measure(&c, w, &ws.disks, stats.Opt[uint64]{})
			if r := expected(&c, w); r.OK && r.V <= implausible && l.killed.Time.IsZero() {
				l.e.Returns = max(l.e.Returns, r.V)
				l.expect()
			}
		}
		if at >= 0 && !in.Summary.Pods[at].Memory.Quick {
			es.measured(l, &in.Summary.Pods[at])
			l.owe(&in.Summary.Pods[at], ws)
		}
	}
}

// lingers reports whether a pod that goes though nothing is short takes longer to stop than any
// that goes for a threshold: its grace period is its own, and may be an hour. Soft thresholds do
// not wait for it any more then, nor spare it: it has had the time that they would give it.
func (es *evictions) lingers(now time.Time, l *Life) bool {
	longest := time.Duration(max(es.config.MaxPodGracePeriodSeconds, hardGrace))*time.Second + DieLimit
	return l.e.Planned() && !l.departed() && now.Sub(l.began.Time) >= longest
}

// fillKeys fills in whether a candidate for a threshold is being evicted already. false: it is no
// candidate, for it is on its way out as fast as this threshold could have it.
func (es *evictions) fillKeys(k *Keys, now time.Time, uid string, w *watched) (candidate bool) {
	l := es.dying(uid)
	if l == nil {
		return true
	}
	spared, late := l.spared(w), !w.Hard() && es.lingers(now, l) && l.killed.Time.IsZero()
	if ((l.e.hard || l.hastened()) && !spared || !w.Hard() || l.e.Local() && w.info.kind.disk()) &&
		!late {
		return false
	}
	k.Dying, k.eases = true, l.e.eases(w.info.kind) || (spared || late) && l.endsAlone(w)
	return true
}
