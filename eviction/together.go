package eviction

import (
	"time"

	"jettison/stats"
)

// together is what all pods used of an amount at one moment, and what was left of it then.
type together struct {
	at         time.Time // zero: it was not read
	pods, left uint64
	parts
}

// parts of what pods use: of those that may go, and of those that may not. Of memory that is with
// page cache, for it is read of all.
type parts struct {
	parted      time.Time // zero: not known
	may, mayNot uint64
}

// notes takes a new reading of what all pods use together, with what is left at the same moment.
func (w *watched) notes(p *stats.PodsTotal) {
	used := stats.Opt[uint64]{}
	switch w.info.kind {
	case kindMemory:
		used = p.WorkingSetBytes
	case kindSwap:
		used = p.SwapBytes
	case kindPID:
		used = p.Tasks
	}
	if used.OK && used.V <= implausible && w.observed.OK && !p.Time.Equal(w.together.at) {
		w.together.at, w.together.pods, w.together.left = p.Time, used.V, w.observed.Value
	}
}

// counted is what a pod uses of an amount, as it is read of all pods in every look that decides on
// that.
func counted(p *stats.PodStats, k kind) (used uint64) {
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

// part tells what pods that may go use from what the others do, for each threshold that is met. It
// does not allocate.
func (ws *watchlist) part(now time.Time, in Input) {
	for i := range ws.all {
		w := &ws.all[i]
		if !ws.config.Breaker || !w.met || w.together.at.IsZero() || in.MemoryOnly &&
			!w.info.kind.memoryView() {
			continue
		}
		w.parts = parts{parted: now}
		for j := range in.Summary.Pods {
			p := &in.Summary.Pods[j]
			object := in.object(p)
			if empty(p, object) {
				continue
			}
			if c := ws.config.Policy.candidate(p, object); c.Protected != "" {
				w.mayNot = stats.SaturatingAdd(w.mayNot, counted(p, w.info.kind))
			} else {
				w.may = stats.SaturatingAdd(w.may, counted(p, w.info.kind))
			}
		}
	}
}

// without is the same without a victim.
func (t together) without(p *stats.PodStats, k kind) together {
	t.may -= min(t.may, counted(p, k))
	return t
}

// outside reports whether what took what a victim gave back grew outside of the pods that may go,
// by what pods used when the eviction began and what they use now: at least half of what grew, and
// of what the victim gave back. What is not known counts as outside, as for disks and pressure.
// known is false while no reading is newer than the victim's end.
func (l *Life) outside(now time.Time, w *watched) (outside, known bool) {
	then, is := l.together, w.together
	if then.at.IsZero() || is.at.IsZero() || now.Sub(is.at) > stats.MaxAge {
		return true, true
	}
	awaited := !then.parted.IsZero() && !is.parted.After(l.emptied.Time) &&
		now.Sub(l.emptied.Time) <= stats.MaxAge
	if awaited || !is.at.After(l.emptied.Time) {
		return false, false
	}
	fell := int64(then.left) - int64(is.left)
	returned := int64(l.e.Returns)
	inside := int64(is.pods) - int64(then.pods) + returned
	grew := fell + returned - inside
	if !then.parted.IsZero() && is.parted.After(l.emptied.Time) {
		grew += then.grewOf(&is.parts, inside)
	}
	return grew > 0 && grew >= returned/2 && grew >= (fell+returned)/2, true
}

// grewOf is by how much of what grew in pods those grew that may not go. Page cache is in both
// parts, but not in what grew: what those that may go can have grown by is not put down to the
// others.
func (p *parts) grewOf(is *parts, grew int64) int64 {
	may, mayNot := int64(is.may)-int64(p.may), int64(is.mayNot)-int64(p.mayNot)
	return max(0, min(mayNot, grew-max(may, 0)))
}

// SavedTogether is what is kept of what all pods used when an eviction began.
type SavedTogether struct {
	Time time.Time `json:"time"`
	Pods uint64    `json:"pods"` // what they used of what the signal counts
	Left uint64    `json:"left"` // of the signal, at the same moment
	// Parted is when those that may go (May, without the victim) were told from those that may not;
	// zero: not known.
	Parted time.Time `json:"parted,omitzero"`
	May    uint64    `json:"may,omitempty"`
	MayNot uint64    `json:"mayNot,omitempty"`
}

func (t *together) save() *SavedTogether {
	if t.at.IsZero() {
		return nil
	}
	return &SavedTogether{Time: t.at.Round(0), Pods: t.pods, Left: t.left, Parted: t.parted.Round(0),
		May: t.may, MayNot: t.mayNot}
}

func (t *together) resume(s *SavedTogether, drop func(string, ...any)) {
	switch {
	case s == nil:
	case max(s.Pods, s.Left, s.May, s.MayNot) > implausible:
		drop("what all pods used when an eviction began: a number that cannot be true")
	default:
		*t = together{at: s.Time, pods: s.Pods, left: s.Left, parts: parts{s.Parted, s.May, s.MayNot}}
	}
}
