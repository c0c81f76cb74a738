package eviction

import (
	"math"
	"slices"
	"time"

	"jettison/stats"
)

// watchedBy returns the threshold that an eviction is for; nil for a pod's own limit.
func (ws *watchlist) watchedBy(e *Eviction, t *Threshold) *watched {
	for i := range ws.all {
		if w := &ws.all[i]; w.Signal == e.Signal && w.Hard() == t.Hard() {
			return w
		}
	}
	return nil
}

// observedBy returns the last observation of the threshold that an eviction is for. Other
// thresholds of its signal may have another window.
func (ws *watchlist) observedBy(e *Eviction, t *Threshold) stats.Observation {
	if w := ws.watchedBy(e, t); w != nil {
		return w.observed
	}
	return ws.observedOf(e.Signal)
}

// observedOf returns the last observation of a signal that has a threshold.
func (ws *watchlist) observedOf(signal stats.Signal) (o stats.Observation) {
	for i := range ws.all {
		if ws.all[i].Signal == signal {
			return ws.all[i].observed
		}
	}
	return o
}

// short reports whether a threshold of a signal is met, as last observed.
func (ws *watchlist) short(signal stats.Signal) bool {
	for i := range ws.all {
		if w := &ws.all[i]; w.Signal == signal && (w.met || !w.observed.OK && !w.metSince.IsZero()) {
			return true
		}
	}
	return false
}

// near returns how near memory.available is to a threshold. A threshold whose minimum reclaim is
// not available yet counts as met.
func (ws *watchlist) near(node *stats.NodeStats) (n Nearness) {
	o := node.Memory.Available(ws.config.MemoryAvailable)
	for i := range ws.all {
		w := &ws.all[i]
		if w.Signal != stats.SignalMemoryAvailable || !o.OK {
			continue
		}
		limit := w.Value.Of(o.Capacity)
		switch {
		case o.Short(limit) || w.pastGrace && o.Short(w.recoveryTarget(o.Capacity)):
			return Short
		case o.Near(limit, nearTimes):
			n = NearShort
		case o.Near(limit, enoughTimes):
			n = max(n, Enough)
		}
	}
	return n
}

// headroom returns the amount of a signal above its nearest threshold, by the last observation.
// short reports that a threshold of the signal is met.
func (ws *watchlist) headroom(signal stats.Signal) (h Headroom, short bool) {
	h.Left = math.MaxUint64
	for i := range ws.all {
		w := &ws.all[i]
		if w.Signal != signal {
			continue
		}
		h.Observed = w.observed
		switch {
		case !w.observed.OK:
		case w.met:
			short = true
		default:
			h.Left = min(h.Left, w.observed.Left(w.limit))
		}
	}
	return h, short
}

// disksNear reports whether a disk is near a threshold, met or not; with unmet, near one that is not
// met.
func (ws *watchlist) disksNear(unmet bool) bool {
	for i := range ws.all {
		w := &ws.all[i]
		if w.info.kind.disk() && w.info.fs != containerFs && w.observed.OK && !(unmet && w.met) &&
			w.observed.Near(w.limit, nearTimes) {
			return true
		}
	}
	return false
}

// calmKinds returns the kinds for which all thresholds are observed and not met. All are
// needed, because thresholds may have different windows and shares.
func (ws *watchlist) calmKinds() (calm [kinds]bool) {
	for i := range ws.all {
		calm[ws.all[i].info.kind] = true
	}
	for i := range ws.all {
		if w := &ws.all[i]; !w.observed.OK || w.met {
			calm[w.info.kind] = false
		}
	}
	return calm
}

// states returns the state of each signal that has a threshold, in the order of the configuration.
func (ws *watchlist) states() (out []SignalState) {
	for i := range ws.config.Thresholds {
		t := &ws.config.Thresholds[i]
		at := slices.IndexFunc(out, func(s SignalState) bool { return s.Signal == t.Signal })
		if at < 0 {
			at = len(out)
			out = append(out, SignalState{Signal: t.Signal, Observed: ws.observedOf(t.Signal)})
		}
		out[at].Thresholds = append(out[at].Thresholds, t.Text())
		if o := &out[at].Observed; o.OK {
			out[at].Limits = append(out[at].Limits, t.Value.Of(o.Capacity))
		}
	}
	return out
}

// lost returns the signals that have not been observed for stats.MaxAge. A signal that the node
// does not have is not lost.
func (ws *watchlist) lost(now time.Time) (out []Lost) {
	for i := range ws.all {
		w := &ws.all[i]
		overdue := !w.unobservedSince.IsZero() && now.Sub(w.unobservedSince) >= stats.MaxAge
		known := slices.ContainsFunc(out, func(l Lost) bool { return l.Signal == w.Signal })
		if overdue && !known && w.Signal != stats.SignalAllocatableMemoryAvailable &&
			ws.config.watches(w.Signal) {
			out = append(out, Lost{w.Signal, w.observed.Reason})
		}
	}
	return out
}
