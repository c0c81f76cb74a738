package eviction

import (
	"time"

	"jettison/stats"
)

const (
	// urgentLeft is the time until a disk is full below which no threshold waits for measurements,
	// garbage collection, or an explanation.
	urgentLeft = 10 * time.Second
	// The fill rate is computed from two observations that are at least rateOver and at most
	// rateWithin apart, so that a single burst counts little.
	rateOver   = 2 * time.Second
	rateWithin = 10 * time.Second
)

// fillRates holds the observations of each disk signal that show how fast the disk fills.
type fillRates map[stats.Signal]fillRate

type fillRate struct{ older, last stats.Observation }

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
		if !r.older.OK || r.last.Time.Sub(r.older.Time) >= rateOver {
			r.older = r.last
		}
		r.last = w.observed
		if *f == nil {
			*f = fillRates{}
		}
		(*f)[w.Signal] = r
	}
}

// urgent reports whether a disk that is short is nearly full, or will be full within urgentLeft.
func (f fillRates) urgent(w *watched) bool {
	o, older := &w.observed, f[w.Signal].older
	if !w.met || !o.OK || f == nil {
		return false
	}
	if nearlyNothing(w) {
		return true
	}
	over := o.Time.Sub(older.Time)
	if !older.OK || over <= 0 || over > rateWithin || o.Value >= older.Value {
		return false
	}
	left := float64(o.Value) / float64(older.Value-o.Value) * over.Seconds()
	return left <= urgentLeft.Seconds()
}

// anyUrgent reports whether any disk is urgent.
func (e *diskExplainer) anyUrgent(ws *watchlist) bool {
	for i := range ws.all {
		if w := &ws.all[i]; w.info.kind.disk() && e.rates.urgent(w) {
			return true
		}
	}
	return false
}

// nearlyNothing reports whether so little of a disk is left that every byte helps: 1/32 of the
// limit.
func nearlyNothing(w *watched) bool { return w.observed.Value < w.limit/(4*dip) }
