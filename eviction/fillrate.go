package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

const (
	// urgentLeft is the time until a disk is full below which no threshold waits for measurements,
	// garbage collection, or an explanation.
	urgentLeft = 10 * time.Second
	// The fill rate is computed from two observations that are at least rateOver and at most
	// rateWithin apart, and the disk must still be filling, so that a single burst counts little.
	rateOver   = 2 * time.Second
	rateWithin = 10 * time.Second
)

// fillRates holds the observations of each disk signal that show how fast the disk fills.
type fillRates map[stats.Signal]fillRate

// fillRate holds observations: older and newer are at least rateOver apart once both differ, and
// previous is the one before last.
type fillRate struct{ older, newer, previous, last stats.Observation }

// note stores the current observations.
func (f *fillRates) note(all []watched) {
	for i := range all {
		w := &all[i]
		r := (*f)[w.Signal]
		if !w.info.kind.disk() || !w.observed.OK || w.observed.Time.Equal(r.last.Time) {
			continue
		}
		if w.observed.Time.Before(r.last.Time) { // the clock was set back
			r = fillRate{}
		}
		switch {
		case !r.newer.OK:
			r.older, r.newer = w.observed, w.observed
		case w.observed.Time.Sub(r.newer.Time) >= rateOver:
			r.older, r.newer = r.newer, w.observed
		}
		r.previous, r.last = r.last, w.observed
		if *f == nil {
			*f = fillRates{}
		}
		(*f)[w.Signal] = r
	}
}

// urgent reports whether a disk that is short will be full within urgentLeft, or is nearly full for
// freshLimit. Measurements get that time even if nearly nothing is left: after a restart of the
// agent nothing is measured yet, and the disk may have been so for days.
func (f fillRates) urgent(w *watched) bool {
	o, r := &w.observed, f[w.Signal]
	if !w.met || !o.OK || f == nil {
		return false
	}
	if nearlyNothing(w) && o.Time.Sub(w.metSince) >= freshLimit {
		return true
	}
	over := o.Time.Sub(r.older.Time)
	if !r.older.OK || over < rateOver || over > rateWithin || o.Value >= r.older.Value ||
		o.Value >= r.previous.Value {
		return false
	}
	left := float64(o.Value) / float64(r.older.Value-o.Value) * over.Seconds()
	return left <= urgentLeft.Seconds()
}

// anyUrgent reports whether a disk of some reclaims is urgent.
func (e *diskExplainer) anyUrgent(requests []ReclaimRequest, ws *watchlist) bool {
	for i := range ws.all {
		w := &ws.all[i]
		if w.info.kind.disk() && e.rates.urgent(w) &&
			slices.ContainsFunc(requests, func(r ReclaimRequest) bool { return slices.Contains(r.Signals, w.Signal) }) {
			return true
		}
	}
	return false
}

// nearlyNothing reports whether so little of a disk is left that every byte helps: 1/32 of the
// limit.
func nearlyNothing(w *watched) bool { return w.observed.Value < w.limit/(4*dip) }
