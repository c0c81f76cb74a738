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
	// Not saved: the first complete measurement since of each pod whose usage was unknown then.
	completed map[string]firstComplete
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
			if long := now.Sub(d.ended); long > suspectDelay { // another shortage
				d.since = d.since.Add(long)
			}
			d.ended = time.Time{}
		case !short && d.ended.IsZero():
			d.ended, d.reason = now, ""
		case !short && elapsed(now, d.ended, doubtKept):
			e.forgetDoubt(signal, &ws.disks)
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
	e.forgetWritten(in.Summary)
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

// measureQuiet returns the state of a quiet disk. If a pod was not measured completely since the
// look was requested, the next look follows soon, because until then the pod's growth is computed
// from older usage. The delay grows while no further pod is unmeasured.
func (e *diskExplainer) measureQuiet(now time.Time, in Input, w *watched, held map[string]uint64) quietDisk {
	before := e.quiet[w.Signal]
	q := quietDisk{at: now, used: used(&w.observed), pods: held, unmeasured: map[string]bool{}}
	complete, noneNew := true, true
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
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
