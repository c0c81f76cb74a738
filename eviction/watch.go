package eviction

import (
	"cmp"
	"slices"
	"time"

	"jettison/stats"
)

// watched is a threshold with its state.
type watched struct {
	Threshold
	info     signalInfo
	metSince time.Time         // first observed met, without a break; zero: not met
	firstMet stats.Observation // observation at that time
	// the grace period was over at the last step: the threshold stays met until the minimum reclaim
	// is available too
	pastGrace    bool
	stepObserved time.Time // time of the observation that the last step used
	podTotals
	unobservedSince time.Time // zero: the signal is observed, or the node does not have it
	lastMet         time.Time // zero: never
	lastObserved    time.Time // zero: never

	// Of the current look.
	observed   stats.Observation
	limit      uint64
	met        bool
	due        bool // met, grace period over, and observed again
	reclaiming bool // a reclaim for this threshold is requested
}

// watchlist holds the thresholds with the last observations of their signals. Other parts read it.
type watchlist struct {
	config *Config
	disks  fileSystems // file systems of the disk signals
	all    []watched
	order  []int // scratch: indices of the thresholds that ask for a victim, most urgent first
}

// setThresholds replaces the thresholds. A threshold for the same signal keeps its state, even with
// another value and grace period.
func (ws *watchlist) setThresholds(thresholds []Threshold) {
	old := ws.all
	ws.all = nil
	for _, t := range thresholds {
		info, ok := signals[t.Signal]
		if !ok {
			continue // Parse returns none
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

// applyLayout stores the layout of the file systems, if it is known, and derives the thresholds of
// containerfs. An unknown layout leaves the last known one, as does an unknown disk.
func (ws *watchlist) applyLayout(n *stats.NodeStats) {
	for fs, now := range [...]*stats.Opt[stats.FsStats]{nodeFs: &n.Fs, imageFs: &n.ImageFs,
		containerFs: &n.ContainerFs} {
		if now != nil && now.OK && now.V.Disk != 0 {
			ws.disks.disks[fs] = now.V.Disk
		}
	}
	if n.Layout.OK && n.Layout != ws.disks.layout {
		ws.disks.layout = n.Layout
		ws.applyConfig()
	}
}

// applyConfig sets the thresholds of the configuration, by the layout if that is known.
func (ws *watchlist) applyConfig() {
	thresholds := ws.config.Thresholds
	if ws.disks.layout.OK {
		thresholds = withContainerFs(thresholds, ws.disks.layout.V)
	}
	ws.setThresholds(thresholds)
}

// evaluate determines which thresholds are met. A threshold whose signal is not observed is neither
// met nor unmet.
func (ws *watchlist) evaluate(now time.Time, s *stats.Summary) {
	for i := range ws.all {
		w := &ws.all[i]
		w.met, w.due = false, false
		w.observed = ws.observe(now, s, w)
		w.recordTotals(&s.Node.Pods)
		if w.observed.Gone {
			w.metSince, w.pastGrace = time.Time{}, false
			w.unobservedSince, w.lastMet = time.Time{}, time.Time{}
		}
		if !w.observed.OK {
			if w.unobservedSince.IsZero() && !w.observed.Gone {
				w.unobservedSince = now
			}
			continue
		}
		w.unobservedSince, w.lastObserved = time.Time{}, now
		w.limit = w.Value.Of(w.observed.Capacity)
		w.met = w.observed.Short(w.limit) || w.pastGrace &&
			w.observed.Short(w.recoveryTarget(w.observed.Capacity))
		switch {
		case !w.met:
			w.metSince, w.pastGrace = time.Time{}, false
		case w.metSince.IsZero() || now.Before(w.metSince): // restart if the clock was set back
			w.metSince, w.firstMet = now, w.observed
		}
	}
}

// recoveryTarget returns the amount that must be available for an eviction to be over: the
// threshold plus the minimum reclaim, which pressure signals do not have.
func (t *Threshold) recoveryTarget(capacity uint64) uint64 {
	limit := t.Value.Of(capacity)
	if t.MinReclaim != nil {
		limit = stats.SaturatingAdd(limit, t.MinReclaim.Of(capacity))
	}
	return limit
}

// IgnoresPodsLimit reports whether the pods' own task limit does not count for a threshold, because
// pods could never leave enough tasks below that limit.
func (t *Threshold) IgnoresPodsLimit(p *stats.NodePIDStats) bool {
	return t.Signal == stats.SignalPIDAvailable && p.PodsMax.OK && p.PodsMax.V <= t.recoveryTarget(p.Max.V)
}

// observe returns the observation of a threshold's signal. An implausible reading counts as none: a
// broken source must not cause an eviction.
func (ws *watchlist) observe(now time.Time, s *stats.Summary, w *watched) stats.Observation {
	if w.info.fs == containerFs && !ws.disks.layout.OK {
		return stats.Observation{Reason: "file system layout is not known yet"}
	}
	if ws.config.Replay {
		now = time.Time{}
	}
	if w.Window > 0 {
		return s.ObservePressure(now, w.Signal, w.Window)
	}
	o := s.Observe(now, w.Signal, ws.config.MemoryAvailable)
	if p := &s.Node.PIDs; w.IgnoresPodsLimit(p) { // the node's tasks decide
		o.Value = o.Capacity - min(p.Current.V, o.Capacity)
	}
	if o.OK && (o.Capacity == 0 || o.Capacity > implausible || o.Value > implausible) ||
		brokenFor(&s.Node, w) {
		return stats.Observation{Reason: "implausible number"}
	}
	return o
}

// reobserve updates the observations in the middle of a step, also of thresholds that are not met.
// A victim's returns are compared with all observations of its signal, so an old observation of a
// soft threshold could delay a hard one.
func (ws *watchlist) reobserve(now time.Time, s *stats.Summary) {
	for i := range ws.all {
		w := &ws.all[i]
		if o := ws.observe(now, s, w); o.OK {
			w.observed, w.limit = o, w.Value.Of(o.Capacity)
		}
	}
}

// observeAfterReclaim updates the observations and finds the thresholds that still ask for a
// victim. The reason explains why a threshold with a reclaim no longer asks for one.
func (ws *watchlist) observeAfterReclaim(now time.Time, s *stats.Summary) (reason string) {
	ws.reobserve(now, s)
	for _, i := range ws.order {
		w := &ws.all[i]
		o := ws.observe(now, s, w)
		// no eviction for a signal that is not observed
		w.due = o.OK && o.Short(w.recoveryTarget(o.Capacity))
		switch {
		case w.reclaiming && !o.OK:
			reason = "unknown how much was reclaimed for " + string(w.Signal)
		case w.reclaiming && !w.due:
			reason = "reclaim was enough for " + string(w.Signal)
		}
	}
	return reason
}

// findDue finds the thresholds that ask for a victim: the grace period is over, and the signal was
// observed again since the previous step (pkg/kubelet/eviction/helpers.go thresholdsMetGracePeriod,
// thresholdsUpdatedStats). A reading without a time counts as a new observation.
func (ws *watchlist) findDue(now time.Time, memoryOnly bool) {
	ws.order = ws.order[:0]
	for i := range ws.all {
		w := &ws.all[i]
		w.reclaiming = false
		if !w.observed.OK || memoryOnly && !w.info.kind.memoryView() {
			continue
		}
		fresh := w.observed.Time.IsZero() || w.observed.Time.After(w.stepObserved)
		w.stepObserved = w.observed.Time
		w.pastGrace = w.met && now.Sub(w.metSince) >= w.Grace
		if w.due = w.pastGrace && fresh; w.due {
			ws.order = append(ws.order, i)
		}
	}
	if len(ws.order) > 1 {
		slices.SortStableFunc(ws.order, func(a, b int) int {
			return urgency(&ws.all[a].Threshold, &ws.all[b].Threshold)
		})
	}
}

// urgency orders thresholds: hard before soft, then memory first.
func urgency(a, b *Threshold) int {
	return cmp.Or(compareBool(a.Hard(), b.Hard()), cmp.Compare(signals[a.Signal].order,
		signals[b.Signal].order))
}

// met returns the thresholds that are met, most urgent first, in a reused buffer; nil if no
// threshold is met.
func (ws *watchlist) met(buffer *[]Met) []Met {
	met := (*buffer)[:0]
	for i := range ws.all {
		if w := &ws.all[i]; w.met {
			met = append(met, Met{Threshold: w.Threshold, Observed: w.observed, Limit: w.limit,
				Since: w.metSince, First: w.firstMet, Due: w.due})
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
