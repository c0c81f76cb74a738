package eviction

import (
	"fmt"
	"time"

	"jettison/stats"
)

// A figure that is too small says nothing against pods: a walk that was cut off found a part of what there is, and one from before a disk
// became short nothing of what was taken since. While there are such figures a doubt is open: the walks are made again, at once and for
// longer (Ready.DiskWhole), and whoever turns out to explain the shortage goes at the next look, however long others are spared.

const measuredAgain = "they are measured once more before one goes"

// orPods ends the words on a doubt that nothing has settled.
func (m *Manager) orPods(in Input, w *watched) string {
	if n := m.unfinished(in, w); n > 0 {
		return fmt.Sprintf(", or %d of %d pods, of which not all is measured yet; no other pod goes for it before ", n, len(in.Summary.Pods))
	}
	return ", and no pod goes for it before "
}

// diskWhole is since when walks of pods that were cut off are to be made again; zero: no doubt wants that. Nobody waits for it but the pods
// that nothing is known against.
func (m *Manager) diskWhole() time.Time {
	for signal, d := range m.explain.doubts {
		if d.ended.IsZero() && m.short(signal) {
			return m.explain.fuller
		}
	}
	return time.Time{}
}

// unfinished is how many pods that live may hold more of a disk than is known.
func (m *Manager) unfinished(in Input, w *watched) (n int) {
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		c := Candidate{Pod: p, Object: in.object(p)}
		if !empty(p, c.Object) && (!m.diskUse(&c, w).OK || atLeast(&c, w) || m.late(&c, w)) {
			n++
		}
	}
	return n
}

// late reports whether a part of a pod that counts for a threshold was measured before the disk became short, or before pods were to be
// measured once more. A runtime may tell of writable layers now and then only, and of all pods' at once: that is no doubt for a disk on
// which they are not. Who does not say when that was, as a kubelet's Summary, is not late.
func (m *Manager) late(c *Candidate, w *watched) bool {
	since, oldest := w.since, time.Time{}
	if m.explain.fuller.After(since) {
		since = m.explain.fuller
	}
	m.eachPart(c, w, func(u *stats.FsUsage) {
		if !u.Time.IsZero() && (oldest.IsZero() || u.Time.Before(oldest)) {
			oldest = u.Time
		}
	})
	if oldest.IsZero() {
		oldest = c.Pod.EphemeralStorage.Time
	}
	return !oldest.IsZero() && oldest.Before(since)
}

// atLeast reports whether what is known of a pod's disk usage is a lower bound. It is compared as that figure.
func atLeast(c *Candidate, w *watched) bool {
	s := &c.Pod.EphemeralStorage
	if s.Logs.V.Partial || s.Files.V.Partial || s.ExitedLayers.V.Partial || unnamed(c, w).V.Partial {
		return true
	}
	for i := range s.Volumes {
		if s.Volumes[i].Partial {
			return true
		}
	}
	for i := range c.Pod.Containers {
		if p := &c.Pod.Containers[i]; p.Rootfs.V.Partial || p.Logs.V.Partial {
			return true
		}
	}
	return false
}

// mayHelp reports whether the end of all of a ranking might bring a disk back to its limit; or, where next to nothing is left of it, to
// more than that. What a pod holds that was not measured, not to its end, or not since, is not known, and might be all of it.
func (m *Manager) mayHelp(w *watched, ranked []Ranked) bool {
	all, nothing := w.observed.Value, w.limit/(4*dip)
	for i := range ranked {
		k := &ranked[i].Keys
		if !k.Measured || k.AtLeast || m.late(&ranked[i].Candidate, w) {
			return true
		}
		all = stats.SaturatingAdd(all, k.Usage)
	}
	return all >= w.limit || w.observed.Value < nothing && all >= nothing
}
