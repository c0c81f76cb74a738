package eviction

import (
	"fmt"
	"time"

	"jettison/stats"
)

// This file handles incomplete measurements of pods' disk usage, which cannot rule out that a pod
// fills the disk. A walk that was cut off found only a part of the pod's files. A walk before the
// shortage did not see later files. While pods do not explain a shortage, such walks are repeated
// immediately and run longer (Ready.DiskWalkedSince). A pod that then explains the shortage is
// evicted at the next look, even while no other pod may be evicted.

const remeasureFirst = "pods are measured again before one is evicted"

// orUnfinished returns the end of the reason text for a doubt, with the number of pods that are not
// completely measured.
func (e *diskExplainer) orUnfinished(in Input, w *watched, d *fileSystems) string {
	if n := e.unfinished(in, w, d); n > 0 {
		return fmt.Sprintf(", or %d of %d pods that are not completely measured; "+
			"no other pod is evicted before ", n, len(in.Summary.Pods))
	}
	return "; no pod is evicted before "
}

// walkedSince returns the time before which no walk that was cut off may have begun, or it must be
// repeated; zero if no doubt requires a repetition.
func (e *diskExplainer) walkedSince(ws *watchlist) time.Time {
	for signal, d := range e.doubts {
		if d.ended.IsZero() && ws.short(signal) {
			return e.remeasureSince
		}
	}
	return time.Time{}
}

// unfinished returns the number of live pods that may use more of a disk than was measured.
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
// before new measurements were requested.
//
// Writable layers may be old because a runtime reports them rarely, for all pods together. They do
// not count for a disk that does not hold them. Usage without a time, as in a kubelet's Summary, is
// not stale.
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

// evictionsMayHelp reports whether evicting all ranked pods might bring a disk back to its limit.
// If the disk is nearly full, reaching 1/32 of the limit suffices. A pod's usage that is not
// measured, cut off or stale might be enough.
func (e *diskExplainer) evictionsMayHelp(w *watched, ranked []Ranked, d *fileSystems) bool {
	all := w.observed.Value
	for i := range ranked {
		k := &ranked[i].Keys
		if !k.Measured || k.AtLeast || e.stale(&ranked[i].Candidate, w, d) {
			return true
		}
		all = stats.SaturatingAdd(all, k.Usage)
	}
	return all >= w.limit || nearlyNothing(w) && all >= w.limit/(4*dip)
}
