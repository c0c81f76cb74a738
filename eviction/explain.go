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
//	2. If the new measurements do not explain the growth either, no pod is evicted for suspectDelay.
//	   The delay ends early if the pods' writes explain it where measurements are missing, or if the
//	   disk will be full within urgentLeft (fillrate.go). The node still reports the condition, and
//	   reclaim continues.
//	3. Then a pod is evicted by suspicion (suspicion.go), unless all ranked pods are known to use too
//	   little to help.
//
// The first pod is evicted immediately if its growth alone ends the shortage and is at least a
// quarter of the growth in use. Any look shows the use of a quiet disk, but only a full one shows
// the pods' usage. Before the first full look pods count as having held nothing, so that their
// current usage is the most that they can explain. A disk that was never quiet has no earlier
// state, so this check does not apply. A minimum reclaim may keep a disk short although its use has
// hardly grown: then pods must explain the amount that is missing.

const (
	// quietEvery is the interval between looks at a quiet disk, and quietRetry the one after a failed
	// look.
	quietEvery = 15 * time.Minute
	quietRetry = time.Minute
	// doubtKept is the time by which a doubt outlives its shortage, so that a shortage with short
	// breaks does not restart the delay. A break longer than suspectDelay does not count for it.
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
	rates          fillRates
	backoffs       suspectBackoffs
	written        writtenBases // not saved
	unsaved        bool         // quiet or doubts have changed since Save
}

// elapsed reports whether that much time has passed since a time. It returns true if the clock was
// set back, so that this delays nothing.
func elapsed(now, since time.Time, long time.Duration) bool {
	return since.IsZero() || now.Before(since) || now.Sub(since) >= long
}

// used returns how much of the capacity is not available.
func used(o *stats.Observation) uint64 { return o.Capacity - min(o.Value, o.Capacity) }

// forgetDoubt ends a doubt. Without another doubt about the same disk, its delays end too.
func (e *diskExplainer) forgetDoubt(signal stats.Signal, ds *fileSystems) {
	if _, doubted := e.doubts[signal]; !doubted {
		return
	}
	delete(e.doubts, signal)
	e.unsaved = true
	disk := ds.diskOf(signals[signal].fs)
	for other := range e.doubts {
		if ds.diskOf(signals[other].fs) == disk {
			return
		}
	}
	e.backoffs.of(disk, false).delay, e.backoffs.of(disk, true).delay = 0, 0
}

func hasKey(pods map[string]uint64, uid string) bool {
	_, has := pods[uid]
	return has
}

// judge returns why no pod is evicted for a disk's shortage; empty if one may be evicted. suspects
// is not nil if measurements do not explain the shortage: an eviction is by suspicion.
func (e *diskExplainer) judge(now time.Time, in Input, w *watched, ranked []Ranked, ds *fileSystems,
	full time.Time) (reason string, suspects *diskChange) {
	g, known := e.changeSinceQuiet(in, w, ds, full)
	if !known || g.explained(g.heldMore) || e.explainsAlone(w, &ranked[0], &g, full) {
		e.forgetDoubt(w.Signal, ds)
		return "", nil
	}
	d, doubted := e.doubts[w.Signal]
	begins := !doubted || now.Before(d.since)
	if begins {
		d, e.unsaved = doubt{since: w.actsSince(now)}, true
	}
	// restored: the doubt is from an earlier process
	restored, written, urgent := e.remeasureSince.IsZero(), g.explained(g.estimate), e.rates.urgent(w)
	deadline := e.backoffs.deadline(now, &d, ds.diskOf(w.info.fs), w.Hard(), written || urgent)
	switch {
	case begins && !(written && urgent), restored && now.Before(deadline):
		e.remeasureSince = now
		d.reason = e.explainedText(w, &g) + remeasureFirst
	case now.Before(deadline):
		d.reason = e.explainedText(w, &g) + g.holder(w) + e.orUnfinished(in, w, ds) +
			deadline.UTC().Format(time.TimeOnly)
	case !e.evictionsMayHelp(w, ranked, ds) && !g.written(ranked):
		d.reason = e.explainedText(w, &g) + g.holder(w) +
			", and evicting all eligible pods would not end the shortage"
	default:
		d.reason = ""
	}
	if e.doubts == nil {
		e.doubts = map[stats.Signal]doubt{}
	}
	e.doubts[w.Signal] = d
	return d.reason, &g
}

// actsSince returns since when a threshold asks for a victim. Measurements and garbage collection
// come after that.
func (w *watched) actsSince(now time.Time) time.Time {
	at := w.metSince.Add(w.Grace)
	if w.metSince.IsZero() || at.After(now) {
		return now
	}
	return at
}

// explainedText returns the beginning of a doubt's reason.
func (e *diskExplainer) explainedText(w *watched, g *diskChange) string {
	gap := "used since then"
	if g.toExplain > g.usedMore {
		gap = "missing"
	}
	return fmt.Sprintf("%s: growth of pods since %s explains %s of the %s %s: ", w.Signal,
		e.quiet[w.Signal].at.UTC().Format(time.TimeOnly), amountText(w.info.kind, g.heldMore),
		amountText(w.info.kind, g.toExplain), gap)
}

// holder returns what holds the rest of a disk's growth.
func (g *diskChange) holder(w *watched) string {
	if g.explained(g.endedHeldMore) {
		return amountText(w.info.kind, g.endedHeldMore) + " is held by pods that have ended"
	}
	return "something else uses the rest"
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
	fuller, backoffs, unsaved := e.remeasureSince, e.backoffs, e.unsaved
	return func() {
		if e.remeasureSince, e.backoffs, e.unsaved = fuller, backoffs, unsaved; doubted {
			e.doubts[w.Signal] = d
		} else {
			delete(e.doubts, w.Signal)
		}
	}
}
