package eviction

import (
	"maps"
	"time"

	"jettison/stats"
)

// This file tracks what pods write after a disk was quiet, by the kernel's counters. That shows the
// growth of a pod whose usage is not measured, or not completely.

// writtenBases holds the base of each pod by UID, for each disk threshold. A soft threshold may be
// met for hours before the hard one. Writes of that time would hide the pod that writes now.
type writtenBases map[breakerKey]map[string]writtenBase

// writtenBase holds a pod's counter of writes and the use of the disk at two looks, at least
// writtenOver apart once both differ. The older one is the base.
type writtenBase struct{ older, newer writtenAt }

type writtenAt struct {
	at            time.Time
	written, used uint64
}

// writtenOver is the time before a threshold is met for which writes count, at least. Without it the
// first look at a short disk would show no difference between the pod that fills it and the others.
const writtenOver = fullRegular

// recentOver is the shortest time of writes that are compared with what the disk has lost.
const recentOver = 3 * time.Second

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

// writtenBase returns a pod's base for a threshold; the zero value without one.
func (e *diskExplainer) writtenBase(w *watched, uid string) writtenBase {
	return e.written[w.key()][uid]
}

// recent returns the newer look if it is at least recentOver old, so that little is counted that was
// written before the disk began to fill.
func (b writtenBase) recent(now *stats.Observation) writtenAt {
	if now.Time.Sub(b.newer.at) >= recentOver {
		return b.newer
	}
	return b.older
}

// wroteSince returns what a pod has written since a base, and what the disk has lost since then. A
// pod that did not exist when the disk was quiet, and that no look showed before, has written
// everything since.
func (q *quietDisk) wroteSince(base writtenAt, uid string, counter stats.Opt[uint64],
	w *watched) (wrote stats.Opt[uint64], lost uint64) {
	known := !base.at.IsZero()
	if !known {
		base.used = q.used
	}
	if !counter.OK || !known && q.existed(uid) || counter.V < base.written {
		return stats.Opt[uint64]{}, 0 // a counter that fell is of a new cgroup
	}
	return stats.Some(counter.V - base.written), w.lostSince(base.used)
}

// lostSince returns how much a disk's use grew.
func (w *watched) lostSince(before uint64) uint64 {
	return used(&w.observed) - min(before, used(&w.observed))
}

// noteGrowth stores what pods had written at the last look before a threshold was met, or at the
// first one after that for pods that existed before. It also stores the first complete measurement
// of each pod whose usage was unknown when the disk was quiet. Earlier writes would make a suspect of
// a pod that overwrites its files.
func (e *diskExplainer) noteGrowth(now time.Time, in Input, ws *watchlist) {
	for i := range ws.all {
		w := &ws.all[i]
		q, known := e.quiet[w.Signal]
		if !known || !w.observed.OK {
			continue
		}
		for j := range in.Summary.Pods {
			c := Candidate{Pod: &in.Summary.Pods[j], Object: in.object(&in.Summary.Pods[j])}
			uid := c.Pod.PodRef.UID
			counter := ws.disks.written(c.Pod, w)
			b, known := e.written[w.key()][uid]
			begins := !known && q.existed(uid) || known && counter.V < b.older.written
			if counter.OK && (!w.met || begins) {
				e.noteWritten(w, uid, writtenAt{now, counter.V, used(&w.observed)})
			}
			q.noteComplete(now, &c, w, &ws.disks, counter)
		}
		e.quiet[w.Signal] = q
	}
}

// noteComplete stores a pod's first complete measurement.
func (q *quietDisk) noteComplete(now time.Time, c *Candidate, w *watched, d *fileSystems,
	counter stats.Opt[uint64]) {
	uid, u := c.Pod.PodRef.UID, d.usage(c, w)
	if _, known := q.completed[uid]; known || !q.growthUnknown(now, c.Pod) || !u.OK || !d.complete(c, w) {
		return
	}
	if q.completed == nil {
		q.completed = map[string]firstComplete{}
	}
	q.completed[uid] = firstComplete{held: min(u.V, used(&w.observed)), used: used(&w.observed),
		written: counter}
}

func (e *diskExplainer) noteWritten(w *watched, uid string, now writtenAt) {
	if e.written == nil {
		e.written = writtenBases{}
	}
	pods := e.written[w.key()]
	if pods == nil {
		pods = map[string]writtenBase{}
		e.written[w.key()] = pods
	}
	b, known := pods[uid]
	switch {
	case !known, now.at.Before(b.newer.at), now.written < b.older.written: // a new cgroup, or clock
		b = writtenBase{now, now}
	case now.at.Sub(b.newer.at) >= writtenOver:
		b = writtenBase{b.newer, now}
	}
	pods[uid] = b
}

// forgetWritten removes the pods that are gone, once they are more than those that are listed.
func (e *diskExplainer) forgetWritten(s *stats.Summary) {
	most := 0
	for _, pods := range e.written {
		most = max(most, len(pods))
	}
	if most <= 2*len(s.Pods) {
		return
	}
	listed := make(map[string]bool, len(s.Pods))
	for i := range s.Pods {
		listed[s.Pods[i].PodRef.UID] = true
	}
	for _, pods := range e.written {
		maps.DeleteFunc(pods, func(uid string, _ writtenBase) bool { return !listed[uid] })
	}
}
