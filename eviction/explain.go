package eviction

import (
	"fmt"
	"strings"
	"time"

	"jettison/stats"
)

// This file checks whether the growth of pods explains a disk's loss.
//
// Something other than a pod may fill a disk: images, the node's logs, an unknown file. Pods are
// ranked by their known usage, so an eviction would then hit a pod that has nothing to do with it.
// The Manager therefore stores the use of a disk, and each pod's usage, while the disk is quiet. If
// the growth of pods since then explains less than half of the growth in use:
//
//	1. No pod is evicted until pods were measured again, for longer (unfinished.go).
//	2. If the new measurements do not explain the growth either, no pod is evicted for
//	   unexplainedLimit. The node still reports the condition, and reclaim continues.
//	3. Then the first pod of the ranking is evicted as usual, unless all ranked pods are known to
//	   use too little to help.
//
// The first pod is evicted immediately if its growth alone ends the shortage and is at least a
// quarter of the growth in use. Any look shows the use of a quiet disk, but only a full one shows
// the pods' usage. Before the first full look pods count as having held nothing, so that their
// current usage is the most that they can explain. A disk that was never quiet has no earlier
// state, so this check does not apply. A minimum reclaim may keep a disk short although its use has
// hardly grown: then pods must explain the amount that is missing.

const (
	// unexplainedLimit is the time in which no pod is evicted for a shortage that pods do not
	// explain. A kubelet would evict immediately, one pod after the other.
	unexplainedLimit = 10 * time.Minute
	// quietEvery is the interval between looks at a quiet disk, and quietRetry the one after a failed
	// look.
	quietEvery = 15 * time.Minute
	quietRetry = time.Minute
	// doubtKept is the time by which a doubt outlives its shortage, so that a shortage with short
	// breaks does not restart unexplainedLimit.
	doubtKept = 10 * time.Minute
	// partAlone: one pod's growth alone explains a shortage only if it is at least 1/partAlone of the
	// growth in use.
	partAlone = 4
	// A pod that started less than justStarted before a look at a quiet disk was requested counts as
	// having held nothing then.
	justStarted = 10 * time.Second
)

// diskExplainer holds the states of quiet disks and the doubts about shortages.
type diskExplainer struct {
	quietLookDue   bool      // a look at quiet disks is due
	quietLookSince time.Time // when the look became due
	lastQuietLook  time.Time // time of the last look at quiet disks
	// pods measured before this time must be measured again; zero: no doubt of this process requires
	// it
	remeasureSince time.Time
	quiet          map[stats.Signal]quietDisk
	doubts         map[stats.Signal]doubt
	unsaved        bool // quiet or doubts have changed since Save
}

// doubt is a shortage that pods do not explain.
type doubt struct {
	since  time.Time
	ended  time.Time // end of the shortage; zero: it has not ended
	reason string    // why no pod is evicted; empty: a pod may be evicted
}

// elapsed reports whether that much time has passed since a time. It returns true if the clock was
// set back, so that this delays nothing.
func elapsed(now, since time.Time, long time.Duration) bool {
	return since.IsZero() || now.Before(since) || now.Sub(since) >= long
}

// used returns how much of the capacity is not available.
func used(o *stats.Observation) uint64 { return o.Capacity - min(o.Value, o.Capacity) }

func (e *diskExplainer) forgetDoubt(signal stats.Signal) {
	if _, doubted := e.doubts[signal]; doubted {
		delete(e.doubts, signal)
		e.unsaved = true
	}
}

func hasKey(pods map[string]uint64, uid string) bool {
	_, has := pods[uid]
	return has
}

// diskChange is the change of a disk since it was last quiet.
type diskChange struct {
	heldMore      uint64 // growth of live pods
	endedHeldMore uint64 // growth of pods that have ended, which no eviction returns
	freed         uint64 // usage of ended pods that was freed since
	usedMore      uint64 // growth in use of the disk
	toExplain     uint64 // usedMore, or the missing amount if that is more
}

// changeSinceQuiet computes the change of a disk since it was last quiet. A pod that did not exist
// at that time counts as having used nothing. A pod that was not measured at that time explains
// only usage beyond the unattributed usage of that time. A pod that is not measured now counts with
// its earlier usage. The known usage of a pod that is gone counts as freed, so a successor with the
// same usage explains nothing.
func (e *diskExplainer) changeSinceQuiet(in Input, w *watched, d *fileSystems,
	full time.Time) (g diskChange, known bool) {
	q, known := e.quiet[w.Signal]
	if !known {
		return g, false
	}
	// With a minimum reclaim, pods must explain no more than the amount that was used or missing when
	// the disk became short.
	g.usedMore = usedMore(&w.observed, &q)
	g.toExplain = max(g.usedMore, min(w.missing(),
		max(usedMore(&w.firstMet, &q), w.limit-min(w.firstMet.Value, w.limit))))
	held, shrunk, unknownGrowth, listed := d.heldByPod(in, w), uint64(0), uint64(0), map[string]bool{}
	for _, uid := range in.Summary.RemainingDirs {
		listed[uid] = true
	}
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		now, measured := held[p.PodRef.UID]
		listed[p.PodRef.UID] = true
		if !measured {
			continue
		}
		delete(held, p.PodRef.UID) // a foreign Summary may contain a pod twice
		then := q.pods[p.PodRef.UID]
		if q.growthUnknown(full, p) {
			if !empty(p, in.object(p)) {
				unknownGrowth = stats.SaturatingAdd(unknownGrowth, now-min(then, now))
			}
			continue
		}
		if growth, shrinkage := now-min(then, now), then-min(then, now); empty(p, in.object(p)) {
			g.endedHeldMore = stats.SaturatingAdd(g.endedHeldMore, growth)
			g.freed = stats.SaturatingAdd(g.freed, shrinkage)
		} else {
			g.heldMore = stats.SaturatingAdd(g.heldMore, growth)
			shrunk = stats.SaturatingAdd(shrunk, shrinkage)
		}
	}
	for uid, then := range q.pods {
		if !listed[uid] {
			g.freed = stats.SaturatingAdd(g.freed, then)
		}
	}
	g.heldMore = stats.SaturatingAdd(g.heldMore, unknownGrowth-min(q.unattributed(), unknownGrowth))
	g.heldMore -= min(stats.SaturatingAdd(shrunk, g.freed), g.heldMore)
	return g, true
}

// usedMore returns the growth in use of a disk since it was quiet.
func usedMore(o *stats.Observation, q *quietDisk) uint64 { return used(o) - min(q.used, used(o)) }

// missing returns the amount that must be freed to end a disk's shortage, including the minimum
// reclaim.
func (w *watched) missing() uint64 {
	enough := w.recoveryTarget(w.observed.Capacity)
	return enough - min(w.observed.Value, enough)
}

// unexplained returns why no pod is evicted for a shortage that pods do not explain. It returns ""
// if pods explain the shortage, or if a pod may be evicted anyway.
func (e *diskExplainer) unexplained(
	now time.Time, in Input, w *watched, ranked []Ranked, ds *fileSystems, full time.Time,
) string {
	g, known := e.changeSinceQuiet(in, w, ds, full)
	if !known || g.heldMore >= g.toExplain-g.toExplain/2 || e.explainsAlone(w, &ranked[0], &g, full) {
		e.forgetDoubt(w.Signal)
		return ""
	}
	d, doubted := e.doubts[w.Signal]
	amount := func(v uint64) string { return amountText(w.info.kind, v) }
	holder := "something else uses the rest"
	if g.endedHeldMore >= g.toExplain-g.toExplain/2 {
		holder = amount(g.endedHeldMore) + " is held by pods that have ended"
	}
	gap := "used since then"
	if g.toExplain > g.usedMore {
		gap = "missing"
	}
	d.reason = fmt.Sprintf("%s: growth of pods since %s explains %s of the %s %s: ", w.Signal,
		e.quiet[w.Signal].at.UTC().Format(time.TimeOnly), amount(g.heldMore), amount(g.toExplain), gap)
	spared := now.Sub(d.since) < unexplainedLimit
	switch {
	case !doubted || now.Before(d.since):
		d.since, e.remeasureSince = now, now
		e.unsaved = true
		d.reason += remeasureFirst
	case spared && e.remeasureSince.IsZero(): // the doubt was restored from an earlier process
		e.remeasureSince = now
		d.reason += remeasureFirst
	case spared:
		d.reason += holder + e.orUnfinished(in, w, ds) +
			d.since.Add(unexplainedLimit).UTC().Format(time.TimeOnly)
	case !e.evictionsMayHelp(w, ranked, ds):
		d.reason += holder + ", and evicting all eligible pods would not end the shortage"
	default:
		d.reason = ""
	}
	if e.doubts == nil {
		e.doubts = map[stats.Signal]doubt{}
	}
	e.doubts[w.Signal] = d
	return d.reason
}

// explainsAlone reports whether returning one pod's growth would end the shortage, and that growth
// is at least 1/partAlone of the amount to explain. The second condition is needed because a
// shortage is small when it begins. The growth of a new pod does not count as far as pods that are
// gone freed that space.
func (e *diskExplainer) explainsAlone(w *watched, r *Ranked, g *diskChange, full time.Time) bool {
	q, uid := e.quiet[w.Signal], r.Pod.PodRef.UID
	if !r.Keys.Measured || q.growthUnknown(full, r.Pod) {
		return false
	}
	growth := r.Keys.Usage - min(q.pods[uid], r.Keys.Usage)
	if q.pods[uid] == 0 {
		growth -= min(g.freed, growth)
	}
	return growth >= g.toExplain/partAlone &&
		stats.SaturatingAdd(w.observed.Value, growth) >= w.recoveryTarget(w.observed.Capacity)
}

// reasons returns the reasons of the doubts about all disks, joined.
func (e *diskExplainer) reasons(ws *watchlist) string {
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

// snapshot returns a function that restores the current doubt about a disk's shortage.
func (e *diskExplainer) snapshot(w *watched) func() {
	d, doubted := e.doubts[w.Signal]
	fuller, unsaved := e.remeasureSince, e.unsaved
	return func() {
		if e.remeasureSince, e.unsaved = fuller, unsaved; doubted {
			e.doubts[w.Signal] = d
		} else {
			delete(e.doubts, w.Signal)
		}
	}
}
