package eviction

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"jettison/stats"
)

// quietDisk is the state of a disk when it was last quiet: none of its thresholds was met.
type quietDisk struct {
	at   time.Time
	used uint64            // of its capacity, in the signal's unit
	pods map[string]uint64 // usage of each measured pod, by UID; nil: no full look was made
	// unmeasured contains the UIDs of pods that existed at that time and were not measured, or only
	// in part because the walk was cut off. The value reports whether the runtime had announced the
	// pod. The growth of these pods is unknown, because a longer walk finds more.
	unmeasured map[string]bool
	nextLook   time.Duration // time from at until the next look; zero: quietEvery
	// Not saved: what each pod had written at that time, or at the first look of this process.
	written map[string]writtenBase
	// Not saved: the first complete measurement since of each pod whose usage was unknown then.
	completed map[string]firstComplete
}

// writtenBase is what a pod had written at a time, and the use of the disk at that time.
type writtenBase struct{ written, used uint64 }

// firstComplete is a pod's usage, and the counter of what it had written by then.
type firstComplete struct {
	held    uint64
	written stats.Opt[uint64]
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
	lost := used(&w.observed) - min(base.used, used(&w.observed))
	if !counter.OK || !known && q.existed(uid) || lost < max(w.limit/(4*dip), 1) {
		return stats.Opt[uint64]{}, 0
	}
	return stats.Some(counter.V - min(base.written, counter.V)), max(lost/partAlone, 1)
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
			q.completed[uid] = firstComplete{min(u.V, used(&w.observed)), w.written(c.Pod)}
		}
	}
}

func (q *quietDisk) noteWritten(uid string, base writtenBase) {
	if q.written == nil {
		q.written = map[string]writtenBase{}
	}
	q.written[uid] = base
}

// growthUnknown reports whether a pod's usage when the disk was quiet is unknown. A pod that was
// only a cgroup then counts as having used nothing if its first sandbox is younger than the look. A
// start time in the future shows nothing.
func (q *quietDisk) growthUnknown(now time.Time, p *stats.PodStats) bool {
	announced, unmeasured := q.unmeasured[p.PodRef.UID]
	return unmeasured && (announced || p.StartTime.After(now) || len(p.SandboxIDs) > 1 ||
		!p.StartTime.After(q.at.Add(-justStarted)))
}

// startedSinceRequest reports whether a pod started just before a look was requested, or later. Such
// a pod counts as having used nothing, because it had no time to write much. If it counted as
// unmeasured, it could fill the disk and explain nothing. A pod with a recreated sandbox, or with a
// start time in the future, is not new.
func (e *diskExplainer) startedSinceRequest(now time.Time, p *stats.PodStats) bool {
	return len(p.SandboxIDs) <= 1 && p.StartTime.After(e.quietLookSince.Add(-justStarted)) &&
		!p.StartTime.After(now)
}

// sum returns the usage of all pods.
func (q *quietDisk) sum() (all uint64) {
	for _, held := range q.pods {
		all = stats.SaturatingAdd(all, held)
	}
	return all
}

// needsQuietLook reports whether a disk is quiet and a look at it is due. A disk is quiet if none of its
// thresholds is met, however near it is to them: a pod that fills the disk slowly must not hide one
// that fills it fast. A disk that was recently short without an explanation is not quiet.
func (e *diskExplainer) needsQuietLook(now time.Time, target *watched, all []watched) bool {
	if !target.info.kind.disk() || !target.observed.OK {
		return false
	}
	for i := range all {
		if w := &all[i]; w.Signal == target.Signal && w.met {
			return false
		}
	}
	if _, doubted := e.doubts[target.Signal]; doubted {
		return false
	}
	q := e.quiet[target.Signal]
	return q.pods == nil || elapsed(now, q.at, cmp.Or(q.nextLook, quietEvery))
}

// scheduleQuietLook determines whether a look at quiet disks is due, and ends the doubts about
// disks that are no longer short.
func (e *diskExplainer) scheduleQuietLook(now time.Time, ws *watchlist, observe bool) {
	for signal, d := range e.doubts {
		switch short := ws.short(signal); {
		case short && !d.ended.IsZero():
			d.ended = time.Time{}
		case !short && d.ended.IsZero():
			d.ended, d.reason = now, ""
		case !short && elapsed(now, d.ended, doubtKept):
			e.forgetDoubt(signal)
			continue
		default:
			continue
		}
		e.doubts[signal] = d
		e.unsaved = true
	}
	if !ws.config.Explain || observe {
		e.quietLookDue = false
		return
	}
	retry := !e.quietLookDue && elapsed(now, e.lastQuietLook, quietRetry)
	for i := range ws.all {
		w := &ws.all[i]
		if !e.needsQuietLook(now, w, ws.all) {
			continue
		}
		if q := e.quiet[w.Signal]; q.pods == nil && elapsed(now, q.at, quietEvery) {
			e.setQuiet(w.Signal, quietDisk{at: now, used: used(&w.observed)})
		}
		if retry {
			e.quietLookDue, e.quietLookSince, retry = true, now, false
		}
	}
}

// setQuiet stores the state of a quiet disk.
func (e *diskExplainer) setQuiet(signal stats.Signal, q quietDisk) {
	if e.quiet == nil {
		e.quiet = map[stats.Signal]quietDisk{}
	}
	e.quiet[signal] = q
	e.unsaved = true
}

// recordQuiet stores the state of the quiet disks. It stores nothing for a disk if less than half
// of the pods are measured. The look at a disk that became short meanwhile follows when the disk
// is quiet again.
func (e *diskExplainer) recordQuiet(now time.Time, in Input, ws *watchlist) {
	if in.MemoryOnly || in.ObserveDisks {
		return
	}
	e.noteGrowth(now, in, ws)
	if !e.quietLookDue || in.Measuring {
		return
	}
	e.quietLookDue = false
	for i := range ws.all {
		w := &ws.all[i]
		if !e.needsQuietLook(now, w, ws.all) {
			continue
		}
		e.lastQuietLook = now
		if held := ws.disks.heldByPod(in, w); 2*len(held) >= len(in.Summary.Pods) {
			q := e.measureQuiet(now, in, w, held)
			q.capToUsed()
			e.setQuiet(w.Signal, q)
		}
	}
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

// measureQuiet returns the state of a quiet disk. If a pod was not measured completely since the
// look was requested, the next look follows soon, because until then the pod's growth is computed
// from older usage. The delay grows while no further pod is unmeasured.
func (e *diskExplainer) measureQuiet(now time.Time, in Input, w *watched,
	held map[string]uint64) quietDisk {
	before := e.quiet[w.Signal]
	q := quietDisk{at: now, used: used(&w.observed), pods: held, unmeasured: map[string]bool{}}
	complete, noneNew := true, true
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		if v := w.written(p); v.OK {
			q.noteWritten(p.PodRef.UID, writtenBase{v.V, q.used})
		}
		switch st := &p.EphemeralStorage; {
		case hasKey(q.pods, p.PodRef.UID):
			if complete = complete && (st.Time.IsZero() || st.UsedBytes.OK && !st.Partial &&
				!st.Time.Before(e.quietLookSince)); st.Cut {
				q.unmeasured[p.PodRef.UID] = true
			}
		case e.startedSinceRequest(now, p):
			q.pods[p.PodRef.UID], complete = 0, false
		default:
			_, unmeasuredBefore := before.unmeasured[p.PodRef.UID]
			q.unmeasured[p.PodRef.UID], complete, noneNew = p.Announced, false, noneNew && unmeasuredBefore
		}
	}
	switch {
	case !noneNew:
		q.nextLook = quietRetry
	case !complete:
		q.nextLook = min(max(2*before.nextLook, quietRetry), quietEvery)
	}
	return q
}

// capToUsed removes the pods with the highest usage until the sum of the others is at most the use
// of the disk.
//
// Files that share blocks (FICLONE) count in full. A pod that clones many files before it fills a
// disk would seem not to grow later. Pods with lower usage stay. If several pods share blocks, a
// pod with a higher usage than each of them is removed too.
func (q *quietDisk) capToUsed() {
	all := q.sum()
	if all <= q.used {
		return
	}
	uids := slices.SortedFunc(maps.Keys(q.pods), func(a, b string) int {
		return cmp.Or(cmp.Compare(q.pods[b], q.pods[a]), cmp.Compare(a, b))
	})
	for _, uid := range uids {
		if all <= q.used {
			break
		}
		all -= q.pods[uid]
		delete(q.pods, uid)
	}
}
