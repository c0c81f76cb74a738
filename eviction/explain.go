package eviction

import (
	"fmt"
	"strings"
	"time"

	"jettison/stats"
)

// What fills a disk need not be a pod's: images, the node's own logs, a file that nobody finds.
// Pods are ranked by what they are known to hold, so that then one would go that has nothing to do
// with it. So it is kept how much of the disk was used, and what pods held of it, when the disk was
// last quiet. If what they hold more by now explains less than half of what is used more,
//
//	no pod goes before they were measured once more, anew and for longer (unfinished.go);
//	if that does not explain it either, none goes for unexplainedLimit: the node has the condition,
//	   and what can be reclaimed is;
//	then the first in the ranking goes, as ever, unless it is known that all of the ranking hold too
//	     little to help.
//
// The first goes at once if what it alone holds more ends the shortage, and is no small part of
// what was taken. How much is used is known by any look at a disk at rest, what pods held only by a
// full one: until that was made they held nothing, so that what they hold now is the most that they
// can explain. A disk that was never seen quiet has nothing to be held against. While a minimum
// reclaim keeps one short that has hardly more used than then, it is what is missing that pods have
// to explain.

const (
	// unexplainedLimit is how long no pod goes for what pods do not explain. A kubelet would evict at
	// once, one after the other.
	unexplainedLimit = 10 * time.Minute
	// quietEvery is how often a disk that rests is looked at, and quietAgain when a look at it failed.
	quietEvery = 15 * time.Minute
	quietAgain = time.Minute
	// doubtKept is how long a doubt outlives its shortage: one that ends for a moment now and then
	// must not begin anew each time.
	doubtKept = 10 * time.Minute
	// partAlone of what was taken is no small part, if one pod has it.
	partAlone = 4
	// justBegun is how long before a look at a disk at rest was asked for a pod may have begun to
	// count as one that held nothing then.
	justBegun = 10 * time.Second
)

// explaining is what a Manager remembers for that.
type explaining struct {
	pending bool      // a look at disks that rest is due
	asked   time.Time // since when
	tried   time.Time // when the last one was made
	// since when pods have to be measured once more; zero: for no doubt that this process had
	fuller  time.Time
	quiet   map[stats.Signal]quiet
	doubts  map[stats.Signal]doubt
	unsaved bool // something of quiet and doubts has changed since Save
}

// doubt is a shortage that pods do not explain.
type doubt struct {
	since  time.Time
	ended  time.Time // the shortage did; zero: it has not
	reason string    // why no pod goes; empty: one may
}

// gone reports whether so long has passed since a time; a clock that was set back must not make it
// wait.
func gone(now, since time.Time, long time.Duration) bool {
	return since.IsZero() || now.Before(since) || now.Sub(since) >= long
}

// used is how much of its capacity is not available.
func used(o *stats.Observation) uint64 { return o.Capacity - min(o.Value, o.Capacity) }

func (e *explaining) forgetDoubt(signal stats.Signal) {
	if _, doubted := e.doubts[signal]; doubted {
		delete(e.doubts, signal)
		e.unsaved = true
	}
}

func has(pods map[string]uint64, uid string) bool {
	_, has := pods[uid]
	return has
}

// grown is what became of a disk since it was last quiet.
type grown struct {
	pods  uint64 // so much more is held by pods that live
	ended uint64 // and so much by pods that have ended: nobody's end brings it back
	gone  uint64 // so much was held by pods that have ended, and is not there any more
	lost  uint64 // so much more is used of it
	short uint64 // so much is to be explained: that, or what is missing where that is more
}

// explained finds out what became of a disk. A pod that was not there then held nothing. How much
// one has grown that was not measured then is not known, so that it explains nothing but what it
// cannot have held then, and one that is not measured now holds what it held. What one held that is
// gone is free, as far as that is known: its successor has taken nothing by that.
func (e *explaining) explained(in Input, w *watched, d *fileSystems, full time.Time) (g grown,
	known bool) {
	q, known := e.quiet[w.Signal]
	if !known {
		return g, false
	}
	// Of a minimum reclaim no more is to be explained than was taken, or was missing, when the disk
	// became short.
	g.lost = taken(&w.observed, &q)
	g.short = max(g.lost, min(w.missing(),
		max(taken(&w.first, &q), w.limit-min(w.first.Value, w.limit))))
	held, less, grew, listed := d.held(in, w), uint64(0), uint64(0), map[string]bool{}
	for _, uid := range in.Summary.Remains {
		listed[uid] = true
	}
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		now, measured := held[p.PodRef.UID]
		listed[p.PodRef.UID] = true
		if !measured {
			continue
		}
		delete(held, p.PodRef.UID) // a Summary of somebody else's may have it twice
		then := q.pods[p.PodRef.UID]
		if q.unknown(full, p) {
			if !empty(p, in.object(p)) {
				grew = stats.SaturatingAdd(grew, now-min(then, now))
			}
			continue
		}
		if more, fewer := now-min(then, now), then-min(then, now); empty(p, in.object(p)) {
			g.ended, g.gone = stats.SaturatingAdd(g.ended, more), stats.SaturatingAdd(g.gone, fewer)
		} else {
			g.pods, less = stats.SaturatingAdd(g.pods, more), stats.SaturatingAdd(less, fewer)
		}
	}
	for uid, then := range q.pods {
		if !listed[uid] {
			g.gone = stats.SaturatingAdd(g.gone, then)
		}
	}
	g.pods = stats.SaturatingAdd(g.pods, grew-min(q.others(), grew))
	g.pods -= min(stats.SaturatingAdd(less, g.gone), g.pods)
	return g, true
}

// taken is how much more is used of a disk than when it was quiet.
func taken(o *stats.Observation, q *quiet) uint64 { return used(o) - min(q.used, used(o)) }

// missing is what a disk lacks for its shortage to be over, with the minimum reclaim.
func (w *watched) missing() uint64 {
	enough := w.enough(w.observed.Capacity)
	return enough - min(w.observed.Value, enough)
}

// unexplained says why no pod goes for a shortage that pods do not explain; empty: they do, or one
// may go all the same.
func (e *explaining) unexplained(
	now time.Time, in Input, w *watched, ranked []Ranked, ds *fileSystems, full time.Time,
) string {
	g, known := e.explained(in, w, ds, full)
	if !known || g.pods >= g.short-g.short/2 || e.explainsAlone(w, &ranked[0], &g, full) {
		e.forgetDoubt(w.Signal)
		return ""
	}
	d, doubted := e.doubts[w.Signal]
	of := func(v uint64) string { return amountText(w.info.kind, v) }
	what := "something else takes it"
	if g.ended >= g.short-g.short/2 {
		what = of(g.ended) + " of it is held by pods that have ended"
	}
	since := "were taken since"
	if g.short > g.lost {
		since = "are missing"
	}
	d.reason = fmt.Sprintf("what pods hold more than at %s explains %s of the %s that %s of what %s counts: ",
		e.quiet[w.Signal].at.UTC().Format(time.TimeOnly), of(g.pods), of(g.short), since, w.Signal)
	waits := now.Sub(d.since) < unexplainedLimit
	switch {
	case !doubted || now.Before(d.since):
		d.since, e.fuller = now, now
		e.unsaved = true
		d.reason += measuredAgain
	case waits && e.fuller.IsZero(): // it is this process' first word of it
		e.fuller = now
		d.reason += measuredAgain
	case waits:
		d.reason += what + e.orPods(in, w, ds) + d.since.Add(unexplainedLimit).UTC().Format(time.TimeOnly)
	case !e.mayHelp(w, ranked, ds):
		d.reason += what + ", and the end of all pods that may be evicted would not bring back what is short"
	default:
		d.reason = ""
	}
	if e.doubts == nil {
		e.doubts = map[stats.Signal]doubt{}
	}
	e.doubts[w.Signal] = d
	return d.reason
}

// explainsAlone reports whether what one pod holds more than when the disk was last quiet would end
// the shortage, and is no small part of what is to be explained: a shortage that has just begun is
// small. What those held that are gone was there for who came since.
func (e *explaining) explainsAlone(w *watched, r *Ranked, g *grown, full time.Time) bool {
	q, uid := e.quiet[w.Signal], r.Pod.PodRef.UID
	if !r.Keys.Measured || q.unknown(full, r.Pod) {
		return false
	}
	more := r.Keys.Usage - min(q.pods[uid], r.Keys.Usage)
	if q.pods[uid] == 0 {
		more -= min(g.gone, more)
	}
	return more >= g.short/partAlone && stats.SaturatingAdd(w.observed.Value, more) >= w.enough(
		w.observed.Capacity)
}

// reasons returns the words of all doubts, of each disk that is watched.
func (e *explaining) reasons(ws *watchlist) string {
	var reasons []string
	for i := range ws.all {
		if w := &ws.all[i]; i == 0 || w.Signal != ws.all[i-1].Signal {
			if d := e.doubts[w.Signal]; d.reason != "" {
				reasons = append(reasons, d.reason)
			}
		}
	}
	return strings.Join(reasons, "; ")
}

// recollect returns a function that puts back since when a disk's shortage is doubted.
func (e *explaining) recollect(w *watched) func() {
	d, doubted := e.doubts[w.Signal]
	fuller, unsaved := e.fuller, e.unsaved
	return func() {
		if e.fuller, e.unsaved = fuller, unsaved; doubted {
			e.doubts[w.Signal] = d
		} else {
			delete(e.doubts, w.Signal)
		}
	}
}
