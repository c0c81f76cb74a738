package eviction

import (
	"fmt"
	"time"

	"jettison/stats"
)

// This file handles measurements that are too small to show that a pod does not fill a disk. A walk
// that was cut off found only a part of the pod's files. A walk from before the shortage found
// nothing that was written since. While such measurements exist a doubt is open: the walks are
// repeated immediately and run longer (Ready.DiskWalkedSince). A pod that turns out to explain the
// shortage is evicted at the next look, even while all others wait.

const remeasureFirst = "pods are measured again before one is evicted"

// orUnfinished returns the end of the reason text for a doubt that is still open.
func (e *diskExplainer) orUnfinished(in Input, w *watched, d *fileSystems) string {
	if n := e.unfinished(in, w, d); n > 0 {
		return fmt.Sprintf(", or %d of %d pods that are not completely measured; "+
			"no other pod is evicted before ", n, len(in.Summary.Pods))
	}
	return "; no pod is evicted before "
}

// diskWhole returns the time since which walks that were cut off must be repeated; zero if no doubt
// needs that. It delays only evictions of pods that nothing is known against.
func (e *diskExplainer) diskWhole(ws *watchlist) time.Time {
	for signal, d := range e.doubts {
		if d.ended.IsZero() && ws.short(signal) {
			return e.remeasureSince
		}
	}
	return time.Time{}
}

// unfinished counts the live pods that may hold more of a disk than is known.
func (e *diskExplainer) unfinished(in Input, w *watched, d *fileSystems) (n int) {
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		c := Candidate{Pod: p, Object: in.object(p)}
		if !empty(p, c.Object) && (!d.usage(&c, w).OK || atLeast(&c, w) || e.stale(&c, w, d)) {
			n++
		}
	}
	return n
}

// stale reports whether a part of a pod's usage was measured before the disk became short, or
// before pods were to be measured again.
//
// A runtime may report writable layers only now and then, and those of all pods together. That
// raises no doubt for a disk that does not hold them. Usage without a time, as in a kubelet's
// Summary, is not stale.
func (e *diskExplainer) stale(c *Candidate, w *watched, d *fileSystems) bool {
	since, oldest := w.metSince, time.Time{}
	if e.remeasureSince.After(since) {
		since = e.remeasureSince
	}
	d.eachPart(c, w, func(u *stats.FsUsage) {
		if !u.Time.IsZero() && (oldest.IsZero() || u.Time.Before(oldest)) {
			oldest = u.Time
		}
	})
	if oldest.IsZero() {
		oldest = c.Pod.EphemeralStorage.Time
	}
	return !oldest.IsZero() && oldest.Before(since)
}

// evictionsMayHelp reports whether the end of all ranked pods might bring a disk back to its limit,
// or, if next to nothing is left of it, above that. The usage of a pod that was not measured, was
// cut off, or is stale is unknown and might be enough.
func (e *diskExplainer) evictionsMayHelp(w *watched, ranked []Ranked, d *fileSystems) bool {
	all, nothing := w.observed.Value, w.limit/(4*dip)
	for i := range ranked {
		k := &ranked[i].Keys
		if !k.Measured || k.AtLeast || e.stale(&ranked[i].Candidate, w, d) {
			return true
		}
		all = stats.SaturatingAdd(all, k.Usage)
	}
	return all >= w.limit || w.observed.Value < nothing && all >= nothing
}
