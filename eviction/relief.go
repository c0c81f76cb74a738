package eviction

import (
	"slices"
	"time"
)

// relieveAgain is between two passes of garbage collection that bring a disk back without an eviction. relieveLimit is how long one may
// take, after which the look that there is decides.
const (
	relieveAgain = time.Minute
	relieveLimit = 5 * time.Minute
)

// Relief says what comes of a decision that wishes for something to be reclaimed first.
type Relief int

// What comes of it.
const (
	ReliefNone  Relief = iota // it was reclaimed, or that takes too long: what there is decides, see Reclaimed
	ReliefBegin               // begin a pass, and wait
	ReliefWait                // for the pass, or for the signals to be observed after it
)

// lastRelief is the last pass that was asked for.
type lastRelief struct {
	asked, done time.Time // zero: never; done before asked: it is under way
	what        []Reclaimable
}

// Relief answers for a Decision with wishes and without an eviction. With ReliefBegin the caller begins a pass for them, and tells of its
// end with Relieved.
func (m *Manager) Relief(now time.Time, d *Decision) Relief {
	r := &m.relief
	underWay := !r.asked.IsZero() && r.done.Before(r.asked)
	lately := !r.done.IsZero() && now.Sub(r.done) < relieveAgain && r.covers(d.Reclaim)
	switch {
	case underWay && now.Sub(r.asked) < relieveLimit, !underWay && lately && !m.observedSince(d.Reclaim, r.done):
		return ReliefWait
	case underWay, lately:
		return ReliefNone
	}
	r.asked, r.what = now, r.what[:0]
	for _, w := range d.Reclaim {
		r.what = append(r.what, w.What)
	}
	return ReliefBegin
}

// Relieved takes that a pass for a disk has ended.
func (m *Manager) Relieved(now time.Time) { m.relief.done = now }

// covers: all that is wished for was asked for.
func (r *lastRelief) covers(wishes []Wish) bool {
	return !slices.ContainsFunc(wishes, func(w Wish) bool { return !slices.Contains(r.what, w.What) })
}

// observedSince: each signal that something is wished for was observed since then. A look from before the end of a pass says nothing of
// what that freed.
func (m *Manager) observedSince(wishes []Wish, since time.Time) bool {
	for _, w := range wishes {
		for _, signal := range w.Signals {
			if o := m.Observed(signal); o.OK && !o.Time.After(since) {
				return false
			}
		}
	}
	return true
}
