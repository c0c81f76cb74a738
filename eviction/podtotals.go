package eviction

import (
	"time"

	"jettison/stats"
)

// podTotals holds all pods' usage of a resource at one moment, and the amount that was available.
type podTotals struct {
	at         time.Time // zero: not read
	used, left uint64
	split
}

// split divides the usage of pods into that of eligible and of protected pods. For memory it
// includes page cache, because only usage with page cache is read for all pods.
type split struct {
	splitAt             time.Time // zero: unknown
	eligible, protected uint64
}

// recordTotals stores a new reading of all pods' usage, with the amount that was available at the
// same moment.
func (w *watched) recordTotals(p *stats.PodsTotal) {
	used := stats.Opt[uint64]{}
	switch w.info.kind {
	case kindMemory:
		used = p.WorkingSetBytes
	case kindSwap:
		used = p.SwapBytes
	case kindPID:
		used = p.Tasks
	}
	if used.OK && used.V <= implausible && w.observed.OK && !p.Time.Equal(w.podTotals.at) {
		w.podTotals.at, w.podTotals.used, w.podTotals.left = p.Time, used.V, w.observed.Value
	}
}

// countedUse returns a pod's usage of a resource; 0 if unknown. It uses the counter that every
// deciding look reads for all pods.
func countedUse(p *stats.PodStats, k kind) (used uint64) {
	o := p.Threads
	switch {
	case k == kindMemory && p.Memory.UsageBytes.OK:
		o = p.Memory.UsageBytes
	case k == kindMemory:
		o = p.Memory.WorkingSetBytes
	case k == kindSwap:
		o = p.Memory.SwapBytes
	}
	if !o.OK || o.V > implausible {
		return 0
	}
	return o.V
}

// splitTotals divides the pods' usage into that of eligible and of protected pods, for each
// threshold that is met. It does not allocate.
func (ws *watchlist) splitTotals(now time.Time, in Input) {
	for i := range ws.all {
		w := &ws.all[i]
		if !ws.config.Breaker || !w.met || w.podTotals.at.IsZero() || in.MemoryOnly &&
			!w.info.kind.memoryView() {
			continue
		}
		w.split = split{splitAt: now}
		for j := range in.Summary.Pods {
			p := &in.Summary.Pods[j]
			object := in.object(p)
			if empty(p, object) {
				continue
			}
			if c := ws.config.Policy.candidate(p, object); c.Protected != "" {
				w.protected = stats.SaturatingAdd(w.protected, countedUse(p, w.info.kind))
			} else {
				w.eligible = stats.SaturatingAdd(w.eligible, countedUse(p, w.info.kind))
			}
		}
	}
}

// withoutPod returns t without the usage of a victim.
func (t podTotals) withoutPod(p *stats.PodStats, k kind) podTotals {
	t.eligible -= min(t.eligible, countedUse(p, k))
	return t
}

// causedOutside reports whether something other than eligible pods took a victim's returns. It
// compares the pods' usage now with their usage when the eviction began. The growth outside of
// eligible pods must be at least half of the total growth and half of the victim's returns. Unknown
// growth counts as outside, as for disks and pressure. known is false while no reading is newer
// than the victim's death.
func (l *Life) causedOutside(now time.Time, w *watched) (outside, known bool) {
	before, after := l.podTotals, w.podTotals
	if before.at.IsZero() || after.at.IsZero() || now.Sub(after.at) > stats.MaxAge {
		return true, true
	}
	awaited := !before.splitAt.IsZero() && !after.splitAt.After(l.emptied.Time) &&
		now.Sub(l.emptied.Time) <= stats.MaxAge
	if awaited || !after.at.After(l.emptied.Time) {
		return false, false
	}
	fell := int64(before.left) - int64(after.left)
	returned := int64(l.e.Returns)
	inside := int64(after.used) - int64(before.used) + returned
	grew := fell + returned - inside
	if !before.splitAt.IsZero() && after.splitAt.After(l.emptied.Time) {
		grew += before.protectedGrowth(&after.split, inside)
	}
	return grew > 0 && grew >= returned/2 && grew >= (fell+returned)/2, true
}

// protectedGrowth returns the part of the pods' growth, grew, that protected pods caused. The usage
// of both groups includes page cache, but grew does not. Growth that eligible pods may have caused
// is not attributed to protected pods.
func (p *split) protectedGrowth(now *split, grew int64) int64 {
	eligible := int64(now.eligible) - int64(p.eligible)
	protected := int64(now.protected) - int64(p.protected)
	return max(0, min(protected, grew-max(eligible, 0)))
}

// SavedPodTotals is the saved form of podTotals.
type SavedPodTotals struct {
	Time time.Time `json:"time"`
	Used uint64    `json:"pods"` // of the signal's amount
	Left uint64    `json:"left"` // of the signal, at the same moment
	// SplitAt is the time of the division into eligible pods, without the victim, and protected pods;
	// zero: unknown.
	SplitAt   time.Time `json:"parted,omitzero"`
	Eligible  uint64    `json:"may,omitempty"`
	Protected uint64    `json:"mayNot,omitempty"`
}

func (t *podTotals) save() *SavedPodTotals {
	if t.at.IsZero() {
		return nil
	}
	return &SavedPodTotals{Time: t.at.Round(0), Used: t.used, Left: t.left,
		SplitAt: t.splitAt.Round(0), Eligible: t.eligible, Protected: t.protected}
}

func (t *podTotals) resume(s *SavedPodTotals, drop func(string, ...any)) {
	switch {
	case s == nil:
	case max(s.Used, s.Left, s.Eligible, s.Protected) > implausible:
		drop("usage of all pods when an eviction began: implausible number")
	default:
		*t = podTotals{at: s.Time, used: s.Used, left: s.Left,
			split: split{s.SplitAt, s.Eligible, s.Protected}}
	}
}
