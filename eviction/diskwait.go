package eviction

import (
	"time"

	"jettison/stats"
)

// What a victim returns of a disk. It lies in files, which stay until they are removed: by the
// runtime and the agent, once the last process is gone. That takes as long as it takes, and until
// it is done what is left says nothing of what is to come. One file system is spoken of by several
// signals, and what is known of a victim's files is of an old look: while it lives it writes on.

// owed is what a victim was measured to hold of what a disk's signal counts; absent: it was not
// measured.
type owed struct {
	stats.Opt[uint64]
	least bool // a lower bound: not all of its files were found
	// back: of one that exceeded a limit of its own, nothing more is expected for the signal's soft
	// threshold, and its hard one
	back [2]bool
}

// owe notes what a victim holds of each disk, by a look at it: the most that was ever found. For
// what it was chosen the eviction says it, but for a limit of its own.
func (l *Life) owe(p *stats.PodStats, ws *watchlist) {
	c := Candidate{Pod: p}
	for i := range ws.all {
		w := &ws.all[i]
		if !w.info.kind.disk() {
			continue
		}
		has := ws.disks.use(&c, w)
		if w.info.kind == l.e.kind && ws.disks.sameDisk(w.info.fs, signals[l.e.Signal].fs) {
			has = stats.Opt[uint64]{V: max(l.e.Returns, has.V), OK: has.OK || l.e.Returns > 0}
		}
		if k := &l.marks[w.info.order].disk; has.OK && has.V <= implausible && (!k.OK || has.V >= k.V) {
			k.Opt, k.least = has, atLeast(&c, w)
		}
	}
}

// wroteOn: what a victim took of disks while it was being stopped is to come back, too, and nothing
// has come before its end.
func (l *Life) wroteOn(ws *watchlist) {
	if !l.e.Disk() {
		return
	}
	if o := ws.observedBy(&l.e, &l.met.Threshold); o.OK {
		l.level = min(l.level, o.Value)
	}
	for i := range ws.all {
		w := &ws.all[i]
		if k := &l.marks[w.info.order]; w.info.kind.disk() && w.observed.OK && k.ok {
			k.level = min(k.level, w.observed.Value)
			k.best = max(k.level, w.observed.Value)
		}
	}
}

// dueOf is what the files of a victim take of what a disk's signal counts, as far as that was
// measured. After a restart that may be known of its own signal only.
func (l *Life) dueOf(w *watched) stats.Opt[uint64] {
	if o := l.marks[w.info.order].disk.Opt; o.OK || w.Signal != l.e.Signal {
		return o
	}
	return l.due[w.info.kind]
}

// cameOf is by how much more is left of a disk's signal than when the victim was dead: others may
// have given that.
func (l *Life) cameOf(w *watched) uint64 {
	at := l.levelOf(w)
	return max(l.marks[w.info.order].best, at.V) - at.V
}

// diskReturned reports whether nothing more is to be expected of a disk after a clean-up. One that
// exceeded a limit of its own is awaited on every disk on which it had files.
func (es *evictions) diskReturned(now time.Time, l *Life, all []watched) bool {
	returned := true
	for i := range all {
		w := &all[i]
		switch {
		case l.e.Local():
			returned = es.returnedTo(now, l, w) && returned // of each it is kept
		case w.Signal == l.e.Signal && !l.cleaned.Time.IsZero():
			returned = returned && es.measuredAfter(now, l, w, l.level, l.e.Returns)
		}
	}
	return returned
}

// measuredAfter: the disk was measured after the clean-up, and half of what was expected is there,
// or it had diskSettle for it. Where only the least was known, or what is still to come would end
// the shortage, half says nothing. A disk that cannot be measured now has shown nothing.
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
	return !(w.met && es.ends(l, w)) && !l.marks[w.info.order].disk.least
}

// returnedTo is returned of one that exceeded a limit of its own, to one threshold. Once it is, it
// stays so, whatever others wait for: soft never delays hard.
func (es *evictions) returnedTo(now time.Time, l *Life, w *watched) bool {
	due := l.dueOf(w)
	if !w.info.kind.disk() || due.V == 0 {
		return true
	}
	back := &l.marks[w.info.order].disk.back[index(w.Hard())]
	*back = *back || l.clean && (l.cleaned.Time.IsZero() || es.measuredAfter(now, l, w, l.levelOf(w).V,
		due.V))
	return *back
}

// ends reports whether what is still expected of a victim ends the shortage of a disk; of one that
// exceeded a limit of its own together with what is of others like it: several may do so at once.
func (es *evictions) ends(l *Life, w *watched) bool {
	left := l.remaining(w)
	if l.e.Local() && left.OK {
		left.V = es.dueTogether(w)
	}
	return left.OK && (!w.observed.Short(w.limit) || stats.SaturatingAdd(w.observed.Value,
		left.V) >= w.limit)
}

// dueTogether is what a threshold still expects of all that exceeded a limit of their own. What
// came back is taken off once.
func (es *evictions) dueTogether(w *watched) uint64 {
	var due, came uint64
	for _, l := range es.lives {
		if !l.settled && l.e.Local() && !l.marks[w.info.order].disk.back[index(w.Hard())] {
			due, came = stats.SaturatingAdd(due, l.dueOf(w).V), max(came, l.cameOf(w))
		}
	}
	return due - min(due, came)
}

// index of a threshold among those of its signal.
func index(hard bool) int {
	if hard {
		return 1
	}
	return 0
}

// easesDisk is eases for what lies on disks. A victim holds another disk than its own only by what
// it is known to have there. So does one that exceeded a limit of its own with every disk, for it
// was chosen for none; but where only the least is known of that, the rest may end the shortage. A
// gentle one does not hold up a hard threshold, but once it is dead, its files are on their way
// out, and they end the shortage.
func (es *evictions) easesDisk(l *Life, w *watched, d *fileSystems) bool {
	left, explains := l.remaining(w), es.ends(l, w)
	switch {
	case l.e.Local():
		has := &l.marks[w.info.order].disk
		return !has.back[index(w.Hard())] && (explains || left.OK && has.least)
	case w.Hard() && !l.e.hard:
		return l.departed() && explains
	case d.sameDisk(w.info.fs, signals[l.e.Signal].fs):
		return true
	}
	return explains || !left.OK
}

// awaits counts what is still to come of a victim's files, with those of others: what came back is
// taken off once, not of each.
func (h *held) awaits(now time.Time, l *Life, w *watched) {
	o := l.dueOf(w)
	h.due, h.came = stats.SaturatingAdd(h.due, o.V), max(h.came, l.cameOf(w))
	h.remaining = h.due - min(h.due, h.came)
	h.removing = h.removing || !l.clean || !w.observed.Time.After(l.cleaned.Time)
	h.dying = h.dying || !l.departed() && !l.overdue(now)
}

// overdue: the victim should be dead for long. To stop one takes the runtime seconds.
func (l *Life) overdue(now time.Time) bool {
	if l.killed.Time.IsZero() && !l.e.hard {
		return now.Sub(l.deadline) >= DieLimit
	}
	return l.since(now) >= DieLimit
}

// outgrownDisk is outgrown for what lies on disks: while a victim is on its way out, it is what
// writes, however much. Once all are dead, or should be, somebody else does, where less than half
// is left of what was left then, and what is still to come does not make up for that: once it was
// measured after the clean-up, that is not sure to come. It does not matter how little is left
// while their files are being removed, for cleanLimit at most: who is next would be stopped, and
// its files be removed, after them.
func (h *held) outgrownDisk(w *watched) bool {
	base := h.base(w)
	switch {
	case h.dying:
		return false
	case !h.last.departed() && w.observed.Value < h.floor(w):
		return true
	}
	return w.observed.HalfGone(base) &&
		(!h.removing || stats.SaturatingAdd(w.observed.Value, h.remaining) < base)
}
