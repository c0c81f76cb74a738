package eviction

import (
	"cmp"
	"slices"
	"time"

	"jettison/stats"
)

// watched is a threshold and its state.
type watched struct {
	Threshold
	info  signalInfo
	since time.Time         // first observed met, without a break; zero: it is not met
	first stats.Observation // what was observed then
	// its grace period was over at the last step, so that it is met until the minimum reclaim is there
	// too
	held bool
	seen time.Time // observation time of the last step
	together
	unseen time.Time // since when it has not been observed; zero: it is, or the node does not have it
	raised time.Time // when it was last met; zero: never
	read   time.Time // when it was last observed; zero: never

	// Of the current look.
	observed stats.Observation
	limit    uint64
	met      bool
	due      bool // met, its grace period is over, and it was observed anew
	asked    bool // something is being reclaimed for it
}

// watchlist holds the thresholds and what was last observed of their signals. Other parts read it.
type watchlist struct {
	config *Config
	disks  fileSystems // what disk signals speak of
	all    []watched
	order  []int // scratch: indices of those that ask for a victim, most urgent first
}

// take takes thresholds; those that were watched already keep their state, whatever their values
// and grace periods were.
func (ws *watchlist) take(thresholds []Threshold) {
	old := ws.all
	ws.all = nil
	for _, t := range thresholds {
		info, ok := signals[t.Signal]
		if !ok {
			continue // Parse makes none
		}
		w := watched{Threshold: t, info: info}
		for i := range old {
			if old[i].Threshold.same(&t) {
				threshold, info := w.Threshold, w.info
				w = old[i]
				w.Threshold, w.info = threshold, info
			}
		}
		ws.all = append(ws.all, w)
	}
	ws.order = make([]int, 0, len(ws.all))
}

// arrange takes the layout of the file systems, where it is known, and derives containerfs'
// thresholds from it. One that is not known now is as it was.
func (ws *watchlist) arrange(n *stats.NodeStats) {
	if n.Layout.OK && n.Layout != ws.disks.layout {
		ws.disks.layout = n.Layout
		ws.reconfigured()
	}
}

// reconfigured takes the thresholds of the configuration, by the layout if that is known.
func (ws *watchlist) reconfigured() {
	thresholds := ws.config.Thresholds
	if ws.disks.layout.OK {
		thresholds = withContainerFs(thresholds, ws.disks.layout.V)
	}
	ws.take(thresholds)
}

// judge finds out which thresholds are met. A signal that is not observed is neither met nor unmet.
func (ws *watchlist) judge(now time.Time, s *stats.Summary) {
	for i := range ws.all {
		w := &ws.all[i]
		w.met, w.due = false, false
		w.observed = ws.observe(now, s, w)
		w.notes(&s.Node.Pods)
		if w.observed.Gone {
			w.since, w.held, w.unseen, w.raised = time.Time{}, false, time.Time{}, time.Time{}
		}
		if !w.observed.OK {
			if w.unseen.IsZero() && !w.observed.Gone {
				w.unseen = now
			}
			continue
		}
		w.unseen, w.read = time.Time{}, now
		w.limit = w.Value.Of(w.observed.Capacity)
		w.met = w.observed.Short(w.limit) || w.held && w.observed.Short(w.enough(w.observed.Capacity))
		switch {
		case !w.met:
			w.since, w.held = time.Time{}, false
		case w.since.IsZero() || now.Before(w.since): // a clock that was set back must not make it wait
			w.since, w.first = now, w.observed
		}
	}
}

// enough is what must be available for an eviction to be over: the threshold and the minimum
// reclaim, which a signal that rises has not.
func (w *watched) enough(capacity uint64) uint64 {
	limit := w.Value.Of(capacity)
	if w.MinReclaim != nil {
		limit = stats.SaturatingAdd(limit, w.MinReclaim.Of(capacity))
	}
	return limit
}

// observe is the state of a threshold's signal. A reading that cannot be true is none: a broken
// source must not cost a pod its life.
func (ws *watchlist) observe(now time.Time, s *stats.Summary, w *watched) stats.Observation {
	if w.info.fs == containerFs && !ws.disks.layout.OK {
		return stats.Observation{Reason: "the layout of the file systems is not known yet"}
	}
	if ws.config.Replay {
		now = time.Time{}
	}
	if w.Window > 0 {
		return s.ObservePressure(now, w.Signal, w.Window)
	}
	o := s.Observe(now, w.Signal, ws.config.MemoryAvailable)
	if o.OK && (o.Capacity == 0 || o.Capacity > implausible || o.Value > implausible) ||
		cannotBe(&s.Node, w) {
		return stats.Observation{Reason: "a number that cannot be true"}
	}
	return o
}

// lookAgain notes what is observed in the middle of a step, of thresholds that ask for nothing too:
// what a victim has returned is judged by all of its signal, and a soft one must not have a hard
// one wait by what was seen before.
func (ws *watchlist) lookAgain(now time.Time, s *stats.Summary) {
	for i := range ws.all {
		w := &ws.all[i]
		if o := ws.observe(now, s, w); o.OK {
			w.observed, w.limit = o, w.Value.Of(o.Capacity)
		}
	}
}

// lookAfterReclaim observes the signals once more, and finds the thresholds that still ask for a
// victim. The reason says why one does not for which something was reclaimed.
func (ws *watchlist) lookAfterReclaim(now time.Time, s *stats.Summary) (reason string) {
	ws.lookAgain(now, s)
	for _, i := range ws.order {
		w := &ws.all[i]
		o := ws.observe(now, s, w)
		w.due = o.OK && o.Short(w.enough(o.Capacity)) // not observed is no reason to kill
		switch {
		case w.asked && !o.OK:
			reason = "it is not known what was reclaimed for " + string(w.Signal)
		case w.asked && !w.due:
			reason = "what was reclaimed is enough for " + string(w.Signal)
		}
	}
	return reason
}

// ripen finds the thresholds that ask for a victim: their grace periods are over, and there is news
// of their signals since the step before (pkg/kubelet/eviction/helpers.go thresholdsMetGracePeriod,
// thresholdsUpdatedStats). A reading without a time is news.
func (ws *watchlist) ripen(now time.Time, memoryOnly bool) {
	ws.order = ws.order[:0]
	for i := range ws.all {
		w := &ws.all[i]
		w.asked = false
		if !w.observed.OK || memoryOnly && !w.info.kind.memoryView() {
			continue
		}
		news := w.observed.Time.IsZero() || w.observed.Time.After(w.seen)
		w.seen = w.observed.Time
		w.held = w.met && now.Sub(w.since) >= w.Grace
		if w.due = w.held && news; w.due {
			ws.order = append(ws.order, i)
		}
	}
	if len(ws.order) > 1 {
		slices.SortStableFunc(ws.order, func(a, b int) int {
			return urgency(&ws.all[a].Threshold, &ws.all[b].Threshold)
		})
	}
}

// urgency orders thresholds: hard before soft, always; then memory first.
func urgency(a, b *Threshold) int {
	return cmp.Or(compareBool(a.Hard(), b.Hard()), cmp.Compare(signals[a.Signal].order,
		signals[b.Signal].order))
}

// met are the thresholds that are met, most urgent first, in a buffer that is used again; nil: none
// is.
func (ws *watchlist) met(buffer *[]Met) []Met {
	met := (*buffer)[:0]
	for i := range ws.all {
		if w := &ws.all[i]; w.met {
			met = append(met, Met{Threshold: w.Threshold, Observed: w.observed, Limit: w.limit,
				Since: w.since, First: w.first, Due: w.due})
		}
	}
	if *buffer = met; len(met) == 0 {
		return nil
	}
	if len(met) > 1 {
		slices.SortStableFunc(met, func(a, b Met) int { return urgency(&a.Threshold, &b.Threshold) })
	}
	return met
}
