package eviction

import (
	"time"

	"jettison/stats"
)

// This file tracks the returns of a victim to a disk. Files stay until the runtime and the agent
// remove them, after the last process has ended. The removal may take any time, and until its end
// the available amount shows nothing about the files that are left. Several signals share one file
// system. The known size of a victim's files is from an earlier look, and a live victim keeps
// writing.

// diskDue is a victim's measured usage in a disk signal's unit; absent if it was not measured.
type diskDue struct {
	stats.Opt[uint64]
	lowerBound bool // not all of the victim's files were found
	// for a victim over its own limit: the soft threshold (0) and the hard threshold (1) of the
	// signal expect nothing more
	returned [2]bool
}

// noteDiskUse stores a victim's usage of each disk: the highest value of any look. For the disk
// that the victim was chosen for, Eviction.Returns is the minimum.
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

// noteDiskGrowth lowers the baselines of a victim for a disk to the values at its death. Its
// returns also contain the files that it wrote while it was being stopped, and begin after its
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

// expectedOf returns the measured usage of a victim's files in a disk signal's unit. After a
// restart this may be known for the victim's own signal only.
func (l *Life) expectedOf(w *watched) stats.Opt[uint64] {
	if o := l.baselines[w.info.order].disk.Opt; o.OK || w.Signal != l.e.Signal {
		return o
	}
	return l.expected[w.info.kind]
}

// returnedOf returns how far a disk's signal rose above its baseline of an eviction. Other pods may
// have returned that amount.
func (l *Life) returnedOf(w *watched) uint64 {
	at := l.levelOf(w)
	return max(l.baselines[w.info.order].best, at.V) - at.V
}

// diskReturned reports whether no disk is expected to gain more after a victim's clean-up. For a
// victim over its own limit, every disk that held its files counts.
func (es *evictions) diskReturned(now time.Time, l *Life, all []watched) bool {
	returned := true
	for i := range all {
		w := &all[i]
		switch {
		case l.e.Local():
			// evaluate all: each threshold stores its own result
			returned = es.returnedToThreshold(now, l, w) && returned
		case w.Signal == l.e.Signal && !l.cleaned.Time.IsZero():
			returned = returned && es.measuredAfter(now, l, w, l.level, l.e.Returns)
		}
	}
	return returned
}

// measuredAfter reports whether the wait for a disk is over: a measurement after the clean-up shows
// half of the expected amount, or diskSettle has ended the wait. Half is not enough if the expected
// amount is only a lower bound, or if the rest would end the shortage. Before diskSettle, a disk
// that cannot be measured prolongs the wait; after it, any measurement after the clean-up ends the
// wait.
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

// returnedToThreshold reports whether one threshold expects no more files of a victim over its own
// limit. The result is kept even if other thresholds still wait: soft never delays hard.
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

// returnsEndShortage reports whether the amount still expected from a victim ends a disk's
// shortage. Victims over their own limits count together, because several may be evicted at the
// same time.
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
// A victim delays the disk that it was chosen for. It delays another disk only if its known files
// there end the shortage, or if their size is unknown. A pod over its own limit was chosen for no
// disk, so it delays each disk on which its known files end the shortage or are only a lower bound.
// A victim with a grace period delays a hard threshold only after its death: then its files are
// being removed, and delay the threshold if they end the shortage.
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

// overdue reports whether the victim should have died long ago. Stopping a pod takes the runtime
// seconds.
func (l *Life) overdue(now time.Time) bool {
	if l.killed.Time.IsZero() && !l.e.hard {
		return now.Sub(l.deadline) >= DieLimit
	}
	return l.sinceKill(now) >= DieLimit
}

// outgrownDisk reports whether a disk's shortage grew by more than the expected returns.
//
// While a victim is terminating, the growth is attributed to that victim. Once all victims are
// dead, or overdue, something else writes if less than half of the base is left and the expected
// returns do not make up for the loss. The expected returns no longer count after a measurement
// that follows the clean-up. While files are being removed, for cleanLimit at most, a very low
// value alone does not matter: the next victim's files would be removed only after these.
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
