package eviction

import (
	"time"

	"jettison/stats"
)

// This file tracks the returns of a victim to a disk. Files stay until the runtime and the agent
// remove them, after the last process has ended. The removal has no bound, and until it is done the
// value left shows nothing about the rest. Several signals share one file system. The known size of
// a victim's files is from an old look: while the victim lives it writes on.

// diskDue is the measured usage of a victim by a disk's signal; absent if it was not measured.
type diskDue struct {
	stats.Opt[uint64]
	lowerBound bool // not all of its files were found
	// for a victim over its own limit: nothing more is expected, by the signal's soft and its hard
	// threshold
	returned [2]bool
}

// noteDiskUse stores a victim's usage of each disk: the highest value of any look. For the disk it
// was chosen for, the eviction's Returns counts, except for a pod over its own limit.
func (l *Life) noteDiskUse(p *stats.PodStats, ws *watchlist) {
	c := Candidate{Pod: p}
	for i := range ws.all {
		w := &ws.all[i]
		if !w.info.kind.disk() {
			continue
		}
		usage := ws.disks.usage(&c, w)
		if w.info.kind == l.e.kind && ws.disks.sameDisk(w.info.fs, signals[l.e.Signal].fs) {
			usage = stats.Opt[uint64]{V: max(l.e.Returns, usage.V), OK: usage.OK || l.e.Returns > 0}
		}
		if k := &l.baselines[w.info.order].disk; usage.OK && usage.V <= implausible &&
			(!k.OK || usage.V >= k.V) {
			k.Opt, k.lowerBound = usage, atLeast(&c, w)
		}
	}
}

// noteDiskGrowth lowers the baselines of a victim for a disk to the values at its death. Files
// written while the victim was being stopped are returned too, and nothing is returned before its
// death.
func (l *Life) noteDiskGrowth(ws *watchlist) {
	if !l.e.Disk() {
		return
	}
	if o := ws.observedBy(&l.e, &l.met.Threshold); o.OK {
		l.level = min(l.level, o.Value)
	}
	for i := range ws.all {
		w := &ws.all[i]
		if k := &l.baselines[w.info.order]; w.info.kind.disk() && w.observed.OK && k.ok {
			k.level = min(k.level, w.observed.Value)
			k.best = max(k.level, w.observed.Value)
		}
	}
}

// expectedOf returns the usage of a victim's files by a disk's signal, as far as it was measured.
// After a restart this may be known for the victim's own signal only.
func (l *Life) expectedOf(w *watched) stats.Opt[uint64] {
	if o := l.baselines[w.info.order].disk.Opt; o.OK || w.Signal != l.e.Signal {
		return o
	}
	return l.expected[w.info.kind]
}

// returnedOf returns how much more is left of a disk's signal than at the victim's death. Others
// may have returned it.
func (l *Life) returnedOf(w *watched) uint64 {
	at := l.levelOf(w)
	return max(l.baselines[w.info.order].best, at.V) - at.V
}

// diskReturned reports whether nothing more is expected of a disk after a clean-up. A victim over
// its own limit is expected to return on every disk that held files of it.
func (es *evictions) diskReturned(now time.Time, l *Life, all []watched) bool {
	returned := true
	for i := range all {
		w := &all[i]
		switch {
		case l.e.Local():
			returned = es.returnedToThreshold(now, l, w) && returned // every threshold keeps its own result
		case w.Signal == l.e.Signal && !l.cleaned.Time.IsZero():
			returned = returned && es.measuredAfter(now, l, w, l.level, l.e.Returns)
		}
	}
	return returned
}

// measuredAfter reports whether the disk was measured after the clean-up and half of the expected
// amount returned, or diskSettle has passed. Half is not enough if the expected amount is only a
// lower bound, or if the rest would end the shortage. A disk that cannot be measured now has shown
// nothing.
func (es *evictions) measuredAfter(now time.Time, l *Life, w *watched, level, returns uint64) bool {
	o, cleaned := &w.observed, l.cleaned.Time
	switch {
	case o.OK && o.Time.IsZero():
		return true
	case now.Sub(cleaned) >= diskSettle:
		return o.Time.After(cleaned) || !o.OK
	case !o.OK || !o.Time.After(cleaned) || !o.Better(level) || o.Value-level < returns/2:
		return false
	}
	return !(w.met && es.returnsEndShortage(l, w)) && !l.baselines[w.info.order].disk.lowerBound
}

// returnedToThreshold reports whether a victim over its own limit has returned its files, by one
// threshold. The result is kept even if other thresholds still wait: soft never delays hard.
func (es *evictions) returnedToThreshold(now time.Time, l *Life, w *watched) bool {
	due := l.expectedOf(w)
	if !w.info.kind.disk() || due.V == 0 {
		return true
	}
	returned := &l.baselines[w.info.order].disk.returned[index(w.Hard())]
	*returned = *returned || l.cleanedUp && (l.cleaned.Time.IsZero() ||
		es.measuredAfter(now, l, w, l.levelOf(w).V, due.V))
	return *returned
}

// returnsEndShortage reports whether the amount still expected of a victim ends a disk's shortage.
// Victims over their own limits count together, because several may be evicted at the same time.
func (es *evictions) returnsEndShortage(l *Life, w *watched) bool {
	left := l.remaining(w)
	if l.e.Local() && left.OK {
		left.V = es.expectedFromLocal(w)
	}
	return left.OK && (!w.observed.Short(w.limit) || stats.SaturatingAdd(w.observed.Value,
		left.V) >= w.limit)
}

// expectedFromLocal returns the amount that a threshold still expects of all victims over their own
// limits. The disk's gain is subtracted once.
func (es *evictions) expectedFromLocal(w *watched) uint64 {
	var due, came uint64
	for _, l := range es.lives {
		if !l.settled && l.e.Local() && !l.baselines[w.info.order].disk.returned[index(w.Hard())] {
			due, came = stats.SaturatingAdd(due, l.expectedOf(w).V), max(came, l.returnedOf(w))
		}
	}
	return due - min(due, came)
}

// index returns the index of a threshold in diskDue.returned.
func index(hard bool) int {
	if hard {
		return 1
	}
	return 0
}

// worthWaitingOnDisk reports whether a disk's threshold waits for the returns of an eviction.
//
// A victim holds back a disk other than its own only by the files that it is known to have there. A
// pod over its own limit does so on every disk, because it was chosen for none; if only a lower
// bound is known, the rest may end the shortage. A victim in a grace period does not hold back a
// hard threshold until it is dead: then its files are being removed, and they may end the shortage.
func (es *evictions) worthWaitingOnDisk(l *Life, w *watched, d *fileSystems) bool {
	left, ends := l.remaining(w), es.returnsEndShortage(l, w)
	switch {
	case l.e.Local():
		due := &l.baselines[w.info.order].disk
		return !due.returned[index(w.Hard())] && (ends || left.OK && due.lowerBound)
	case w.Hard() && !l.e.hard:
		return l.terminated() && ends
	case d.sameDisk(w.info.fs, signals[l.e.Signal].fs):
		return true
	}
	return ends || !left.OK
}

// addDisk adds a victim's files to the expected amount. The disk's gain is subtracted once, not for
// each victim.
func (h *pendingReturns) addDisk(now time.Time, l *Life, w *watched) {
	o := l.expectedOf(w)
	h.diskExpected = stats.SaturatingAdd(h.diskExpected, o.V)
	h.diskReturned = max(h.diskReturned, l.returnedOf(w))
	h.remaining = h.diskExpected - min(h.diskExpected, h.diskReturned)
	h.removing = h.removing || !l.cleanedUp || !w.observed.Time.After(l.cleaned.Time)
	h.terminating = h.terminating || !l.terminated() && !l.overdue(now)
}

// overdue reports whether the victim should have died long ago. The runtime takes seconds to stop a
// pod.
func (l *Life) overdue(now time.Time) bool {
	if l.killed.Time.IsZero() && !l.e.hard {
		return now.Sub(l.deadline) >= DieLimit
	}
	return l.sinceKill(now) >= DieLimit
}

// outgrownDisk reports whether a disk's shortage outgrew the expected returns.
//
// While a victim is terminating, it is the one that writes. Once all are dead, or should be,
// something else writes if less than half of the base is left and the expected returns do not make
// up for that. After a measurement that follows the clean-up the expected returns no longer count.
// How little is left does not matter while files are being removed, for cleanLimit at most: the
// next victim would be stopped, and its files removed, after them.
func (h *pendingReturns) outgrownDisk(w *watched) bool {
	base := h.baseline(w)
	switch {
	case h.terminating:
		return false
	case !h.last.terminated() && w.observed.Value < h.floor(w):
		return true
	}
	return w.observed.HalfGone(base) &&
		(!h.removing || stats.SaturatingAdd(w.observed.Value, h.remaining) < base)
}
