package eviction

import (
	"time"

	"jettison/stats"
)

// This file tracks what pods write after a disk was quiet, by the kernel's counters. That shows the
// growth of a pod whose usage is not measured, or not completely.

// writtenBase is what a pod had written at a time, and the use of the disk at that time.
type writtenBase struct{ written, used uint64 }

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

// written returns the counter that shows what a pod has written, in a disk signal's unit.
func (w *watched) written(p *stats.PodStats) stats.Opt[uint64] {
	if w.info.kind == kindInodes {
		return p.Written.Inodes
	}
	return p.Written.Bytes
}

// wroteSince returns what a pod has written since the disk was quiet, or since the first look that
// shows it. A pod that did not exist then has written everything since. enough is the amount that
// makes it a suspect: 1/partAlone of what the disk lost meanwhile. Writes show nothing before the
// disk lost 1/32 of the limit.
func (q *quietDisk) wroteSince(uid string, counter stats.Opt[uint64],
	w *watched) (wrote stats.Opt[uint64], enough uint64) {
	base, known := q.written[uid]
	if !known {
		base.used = q.used
	}
	lost, much := w.lostSince(base.used)
	if !counter.OK || !known && q.existed(uid) || !much {
		return stats.Opt[uint64]{}, 0
	}
	return stats.Some(counter.V - min(base.written, counter.V)), max(lost/partAlone, 1)
}

// lostSince returns how much a disk's use grew. much reports whether that is at least 1/32 of the
// limit.
func (w *watched) lostSince(before uint64) (lost uint64, much bool) {
	lost = used(&w.observed) - min(before, used(&w.observed))
	return lost, lost >= max(w.limit/(4*dip), 1)
}

// noteGrowth stores what a full look shows first: what a pod had written that already existed when
// the disk was quiet, and its first complete measurement if its usage was unknown then.
func (q *quietDisk) noteGrowth(in Input, w *watched, d *fileSystems, full time.Time) {
	for i := range in.Summary.Pods {
		c := Candidate{Pod: &in.Summary.Pods[i], Object: in.object(&in.Summary.Pods[i])}
		uid := c.Pod.PodRef.UID
		if _, known := q.written[uid]; !known && q.existed(uid) && w.written(c.Pod).OK {
			q.noteWritten(uid, writtenBase{w.written(c.Pod).V, used(&w.observed)})
		}
		u := d.usage(&c, w)
		if _, known := q.completed[uid]; !known && q.growthUnknown(full, c.Pod) && u.OK &&
			d.complete(&c, w) {
			if q.completed == nil {
				q.completed = map[string]firstComplete{}
			}
			q.completed[uid] = firstComplete{held: min(u.V, used(&w.observed)), used: used(&w.observed),
				written: w.written(c.Pod)}
		}
	}
}

func (q *quietDisk) noteWritten(uid string, base writtenBase) {
	if q.written == nil {
		q.written = map[string]writtenBase{}
	}
	q.written[uid] = base
}

// noteGrowth stores what a full look shows about the pods' growth since the disks were quiet.
func (e *diskExplainer) noteGrowth(now time.Time, in Input, ws *watchlist) {
	for i := range ws.all {
		w := &ws.all[i]
		if q, known := e.quiet[w.Signal]; known && w.observed.OK {
			q.noteGrowth(in, w, &ws.disks, now)
			e.quiet[w.Signal] = q
		}
	}
}
