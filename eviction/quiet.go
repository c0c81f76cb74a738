package eviction

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"jettison/stats"
)

// quiet is how a disk was when it was last quiet.
type quiet struct {
	at   time.Time
	used uint64            // of its capacity, in the signal's unit
	pods map[string]uint64 // what each pod held that was measured, by UID; nil: it was not looked at
	// unmeasured are those that were there then and not measured, or whose walk was cut off, by UID,
	// and whether the runtime had told of them: how much they have grown since is not known, for a
	// longer walk finds more.
	unmeasured map[string]bool
	again      time.Duration // it is looked at again after that; zero: after quietEvery
}

// unknown reports whether what a pod held then is not known. One held nothing of which nothing but
// a cgroup was there, and whose first sandbox is younger than that, by a clock that was not ahead.
func (q *quiet) unknown(now time.Time, p *stats.PodStats) bool {
	told, was := q.unmeasured[p.PodRef.UID]
	return was && (told || p.StartTime.After(now) || len(p.SandboxIDs) > 1 ||
		!p.StartTime.After(q.at.Add(-justBegun)))
}

// begun reports whether a pod had just begun when a look was asked for, or has begun since. It has
// no files that could have been measured, and had no time to hold much: were it as unknown as one
// that cannot be measured, it could fill the disk and explain nothing. A sandbox that was made
// anew, or by a clock that was ahead, is no new pod.
func (e *explaining) begun(now time.Time, p *stats.PodStats) bool {
	return len(p.SandboxIDs) <= 1 && p.StartTime.After(e.asked.Add(-justBegun)) &&
		!p.StartTime.After(now)
}

// sum is what all pods held.
func (q *quiet) sum() (all uint64) {
	for _, held := range q.pods {
		all = stats.SaturatingAdd(all, held)
	}
	return all
}

// rests reports whether a disk is to be looked at anew: none of its thresholds is met, however near
// they are, for what fills it slowly must not be held against who fills it fast; and it is not one
// that was short a while ago for what no pod explained.
func (e *explaining) rests(now time.Time, of *watched, all []watched) bool {
	if !of.info.kind.disk() || !of.observed.OK {
		return false
	}
	for i := range all {
		if w := &all[i]; w.Signal == of.Signal && w.met {
			return false
		}
	}
	if _, doubted := e.doubts[of.Signal]; doubted {
		return false
	}
	q := e.quiet[of.Signal]
	return q.pods == nil || gone(now, q.at, cmp.Or(q.again, quietEvery))
}

// watchQuiet finds out whether a look at disks that rest is due, and forgets what was not explained
// of those that are short no more.
func (e *explaining) watchQuiet(now time.Time, ws *watchlist, observe bool) {
	for signal, d := range e.doubts {
		switch short := ws.short(signal); {
		case short && !d.ended.IsZero():
			d.ended = time.Time{}
		case !short && d.ended.IsZero():
			d.ended, d.reason = now, ""
		case !short && gone(now, d.ended, doubtKept):
			e.forgetDoubt(signal)
			continue
		default:
			continue
		}
		e.doubts[signal] = d
		e.unsaved = true
	}
	if !ws.config.Explain || observe {
		e.pending = false
		return
	}
	again := !e.pending && gone(now, e.tried, quietAgain)
	for i := range ws.all {
		w := &ws.all[i]
		if !e.rests(now, w, ws.all) {
			continue
		}
		if q := e.quiet[w.Signal]; q.pods == nil && gone(now, q.at, quietEvery) {
			e.keep(w.Signal, quiet{at: now, used: used(&w.observed)})
		}
		if again {
			e.pending, e.asked, again = true, now, false
		}
	}
}

// keep remembers how a disk is at rest.
func (e *explaining) keep(signal stats.Signal, q quiet) {
	if e.quiet == nil {
		e.quiet = map[stats.Signal]quiet{}
	}
	e.quiet[signal] = q
	e.unsaved = true
}

// lookAtQuiet keeps how the disks are that rest. Where less than half of the pods are measured,
// what they held is not known. One that has become short meanwhile is looked at as soon as it rests
// again.
func (e *explaining) lookAtQuiet(now time.Time, in Input, ws *watchlist) {
	if !e.pending || in.MemoryOnly || in.Measuring || in.ObserveDisks {
		return
	}
	e.pending = false
	for i := range ws.all {
		w := &ws.all[i]
		if !e.rests(now, w, ws.all) {
			continue
		}
		e.tried = now
		if held := ws.disks.held(in, w); 2*len(held) >= len(in.Summary.Pods) {
			q := e.quietNow(now, in, w, held)
			q.fit()
			e.keep(w.Signal, q)
		}
	}
}

// quietNow is how a disk is that rests. Where not every pod was measured, wholly and since the look
// was asked for, the next one comes soon, and ever later while none is missing that was not before:
// until then a pod may seem to have grown, or not, by what it held.
func (e *explaining) quietNow(now time.Time, in Input, w *watched, held map[string]uint64) quiet {
	before := e.quiet[w.Signal]
	q := quiet{at: now, used: used(&w.observed), pods: held, unmeasured: map[string]bool{}}
	whole, known := true, true
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		switch st := &p.EphemeralStorage; {
		case has(q.pods, p.PodRef.UID):
			if whole = whole && (st.Time.IsZero() || st.UsedBytes.OK && !st.Partial &&
				!st.Time.Before(e.asked)); st.Cut {
				q.unmeasured[p.PodRef.UID] = true
			}
		case e.begun(now, p):
			q.pods[p.PodRef.UID], whole = 0, false
		default:
			_, was := before.unmeasured[p.PodRef.UID]
			q.unmeasured[p.PodRef.UID], whole, known = p.Announced, false, known && was
		}
	}
	switch {
	case !known:
		q.again = quietAgain
	case !whole:
		q.again = min(max(2*before.again, quietAgain), quietEvery)
	}
	return q
}

// others is how much was used beyond what pods are known to have held: those of which that is not
// known held no more, together.
func (q *quiet) others() uint64 { return q.used - min(q.sum(), q.used) }

// fit forgets what those held that held most, until the rest is no more than was used: files that
// share blocks (FICLONE) count whole, and who makes many before it fills a disk would hold no more
// then than before. What those held that held less is not forgotten for that; one that held more
// than each of several who share is.
func (q *quiet) fit() {
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
