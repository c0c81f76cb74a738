package eviction

import (
	"time"

	"jettison/stats"
)

// This file tracks what pods write after a disk was quiet, by the kernel's counters. That shows the
// growth of a pod whose usage is not measured, or not completely.

// writtenBase holds a pod's counter of writes and the use of the disk at two looks, at least
// writtenOver apart once both differ. The older one is the base.
type writtenBase struct{ older, newer writtenAt }

type writtenAt struct {
	at            time.Time
	written, used uint64
}

// writtenOver is the time before a disk becomes short for which writes count, at least. Without it the
// first look at a short disk would show no difference between the pod that fills it and the others.
const writtenOver = fullRegular

// firstComplete is a pod's usage at a time, the counter of what it had written, and the use of the
// disk.
type firstComplete struct {
	held, used uint64
	written    stats.Opt[uint64]
}

// existed reports whether a pod may have existed when the disk was quiet.
func (q *quietDisk) existed(uid string) bool {
	_, unmeasured := q.unmeasured[uid]
	return q.pods == nil || unmeasured || hasKey(q.pods, uid)
}

// written returns the counter that shows what a pod has written to a signal's disk, in the signal's
// unit. Writes to other disks show nothing. If the disk is unknown, as that of btrfs, all count.
func (d *fileSystems) written(p *stats.PodStats, w *watched) stats.Opt[uint64] {
	if w.info.kind == kindInodes {
		return p.Written.Inodes
	}
	return p.Written.OnDisk(d.disks[w.info.fs])
}

// wroteSince returns what a pod has written since the last look before the disk became short, or the
// first one after that. A pod that did not exist when the disk was quiet, and that no look showed
// before, has written everything since. enough is the amount that makes it a suspect: 1/partAlone of
// what the disk lost meanwhile. Writes show nothing before the disk lost 1/32 of the limit.
func (q *quietDisk) wroteSince(uid string, counter stats.Opt[uint64],
	w *watched) (wrote stats.Opt[uint64], enough uint64) {
	both, known := q.written[uid]
	base := both.older
	if !known {
		base.used = q.used
	}
	lost, much := w.lostSince(base.used)
	if !counter.OK || !known && q.existed(uid) || !much || counter.V < base.written {
		return stats.Opt[uint64]{}, 0 // a counter that fell is of a new cgroup
	}
	return stats.Some(counter.V - base.written), max(lost/partAlone, 1)
}

// lostSince returns how much a disk's use grew. much reports whether that is at least 1/32 of the
// limit.
func (w *watched) lostSince(before uint64) (lost uint64, much bool) {
	lost = used(&w.observed) - min(before, used(&w.observed))
	return lost, lost >= max(w.limit/(4*dip), 1)
}

// noteGrowth stores what pods had written at the last look before the disk became short, or at the
// first one after that for pods that existed before, and the first complete measurement of a pod
// whose usage was unknown when the disk was quiet. Earlier writes would make a suspect of a pod that
// overwrites its files.
func (q *quietDisk) noteGrowth(now time.Time, in Input, w *watched, d *fileSystems, short bool) {
	for i := range in.Summary.Pods {
		c := Candidate{Pod: &in.Summary.Pods[i], Object: in.object(&in.Summary.Pods[i])}
		uid := c.Pod.PodRef.UID
		counter := d.written(c.Pod, w)
		if _, known := q.written[uid]; (!short || !known && q.existed(uid)) && counter.OK {
			q.noteWritten(uid, writtenAt{now, counter.V, used(&w.observed)})
		}
		u := d.usage(&c, w)
		if _, known := q.completed[uid]; !known && q.growthUnknown(now, c.Pod) && u.OK &&
			d.complete(&c, w) {
			if q.completed == nil {
				q.completed = map[string]firstComplete{}
			}
			q.completed[uid] = firstComplete{held: min(u.V, used(&w.observed)), used: used(&w.observed),
				written: counter}
		}
	}
}

func (q *quietDisk) noteWritten(uid string, now writtenAt) {
	if q.written == nil {
		q.written = map[string]writtenBase{}
	}
	b, known := q.written[uid]
	switch {
	case !known, now.at.Before(b.newer.at), now.written < b.older.written: // a new cgroup, or clock
		b = writtenBase{now, now}
	case now.at.Sub(b.newer.at) >= writtenOver:
		b = writtenBase{b.newer, now}
	}
	q.written[uid] = b
}

// noteGrowth stores what a full look shows about the pods' growth since the disks were quiet.
func (e *diskExplainer) noteGrowth(now time.Time, in Input, ws *watchlist) {
	for i := range ws.all {
		w := &ws.all[i]
		if q, known := e.quiet[w.Signal]; known && w.observed.OK {
			q.noteGrowth(now, in, w, &ws.disks, ws.short(w.Signal))
			e.quiet[w.Signal] = q
		}
	}
}
