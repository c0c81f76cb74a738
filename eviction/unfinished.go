package eviction

import (
	"fmt"
	"time"

	"jettison/stats"
)

// A figure that is too small says nothing against pods: a walk that was cut off found a part of
// what there is, and one from before a disk became short nothing of what was taken since. While
// there are such figures a doubt is open: the walks are made again, at once and for longer
// (Ready.DiskWhole), and whoever turns out to explain the shortage goes at the next look, however
// long others are spared.

const measuredAgain = "they are measured once more before one goes"

// orPods ends the words on a doubt that nothing has settled.
func (e *explaining) orPods(in Input, w *watched, d *fileSystems) string {
	if n := e.unfinished(in, w, d); n > 0 {
		return fmt.Sprintf(", or %d of %d pods, of which not all is measured yet; no other pod goes "+
			"for it before ", n, len(in.Summary.Pods))
	}
	return ", and no pod goes for it before "
}

// diskWhole is since when walks of pods that were cut off are to be made again; zero: no doubt
// wants that. Nobody waits for it but the pods that nothing is known against.
func (e *explaining) diskWhole(ws *watchlist) time.Time {
	for signal, d := range e.doubts {
		if d.ended.IsZero() && ws.short(signal) {
			return e.fuller
		}
	}
	return time.Time{}
}

// unfinished is how many pods that live may hold more of a disk than is known.
func (e *explaining) unfinished(in Input, w *watched, d *fileSystems) (n int) {
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		c := Candidate{Pod: p, Object: in.object(p)}
		if !empty(p, c.Object) && (!d.use(&c, w).OK || atLeast(&c, w) || e.late(&c, w, d)) {
			n++
		}
	}
	return n
}

// late reports whether a part of a pod that counts for a threshold was measured before the disk
// became short, or before pods were to be measured once more. A runtime may tell of writable layers
// now and then only, and of all pods' at once: that is no doubt for a disk on which they are not.
// Who does not say when that was, as a kubelet's Summary, is not late.
func (e *explaining) late(c *Candidate, w *watched, d *fileSystems) bool {
	since, oldest := w.since, time.Time{}
	if e.fuller.After(since) {
		since = e.fuller
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

// mayHelp reports whether the end of all of a ranking might bring a disk back to its limit; or,
// where next to nothing is left of it, to more than that. What a pod holds that was not measured,
// not to its end, or not since, is not known, and might be all of it.
func (e *explaining) mayHelp(w *watched, ranked []Ranked, d *fileSystems) bool {
	all, nothing := w.observed.Value, w.limit/(4*dip)
	for i := range ranked {
		k := &ranked[i].Keys
		if !k.Measured || k.AtLeast || e.late(&ranked[i].Candidate, w, d) {
			return true
		}
		all = stats.SaturatingAdd(all, k.Usage)
	}
	return all >= w.limit || w.observed.Value < nothing && all >= nothing
}
