package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// relieveAgain is between two passes of garbage collection that bring a disk back without an
// eviction. relieveLimit is how long one may take, after which the look that there is decides.
const (
	relieveAgain = time.Minute
	relieveLimit = 5 * time.Minute
)

// Relief says what comes of a decision that wishes for something to be reclaimed first.
type Relief int

// What comes of it.
const (
	// it was reclaimed, or that takes too long: what there is decides, see Reclaimed
	ReliefNone  Relief = iota
	ReliefBegin        // begin a pass, and wait
	ReliefWait         // for the pass, or for the signals to be observed after it
)

// lastRelief is the last pass that was asked for.
type lastRelief struct {
	asked, done time.Time // zero: never; done before asked: it is under way
	what        []Reclaimable
}

// ask answers for wishes, and notes what a pass is begun for.
func (r *lastRelief) ask(now time.Time, wishes []Wish, ws *watchlist) Relief {
	underWay := !r.asked.IsZero() && r.done.Before(r.asked)
	lately := !r.done.IsZero() && now.Sub(r.done) < relieveAgain && r.covers(wishes)
	switch {
	case underWay && now.Sub(r.asked) < relieveLimit, !underWay && lately &&
		!ws.observedSince(wishes, r.done):
		return ReliefWait
	case underWay, lately:
		return ReliefNone
	}
	r.asked, r.what = now, r.what[:0]
	for _, w := range wishes {
		r.what = append(r.what, w.What)
	}
	return ReliefBegin
}

// covers: all that is wished for was asked for.
func (r *lastRelief) covers(wishes []Wish) bool {
	return !slices.ContainsFunc(wishes, func(w Wish) bool { return !slices.Contains(r.what, w.What) })
}

// observedSince: each signal that something is wished for was observed since then. A look from
// before the end of a pass says nothing of what that freed.
func (ws *watchlist) observedSince(wishes []Wish, since time.Time) bool {
	for _, w := range wishes {
		for _, signal := range w.Signals {
			if o := ws.observedOf(signal); o.OK && !o.Time.After(since) {
				return false
			}
		}
	}
	return true
}

// reclaims is what the kubelet reclaims for a disk signal, by the layout
// (pkg/kubelet/eviction/helpers.go buildSignalToNodeReclaimFuncs):
//
//	layout            nodefs              imagefs             containerfs
//	one               containers, images  the same            the same
//	dedicated imagefs nothing             containers, images  containers, images
//	split             containers          images              containers
func reclaims(l stats.Layout, fs fileSystem) []Reclaimable {
	switch {
	case fs == noFs || l.DedicatedImageFs && !l.SplitContainerFs && fs == nodeFs:
		return nil
	case l.DedicatedImageFs && l.SplitContainerFs && fs == imageFs:
		return []Reclaimable{ReclaimImages}
	case l.DedicatedImageFs && l.SplitContainerFs:
		return []Reclaimable{ReclaimContainers}
	}
	return []Reclaimable{ReclaimContainers, ReclaimImages}
}

// wishes are what can be reclaimed, for every threshold that asks for a victim, whichever comes
// first.
func (ws *watchlist) wishes() (out []Wish) {
	if !ws.disks.layout.OK {
		return nil
	}
	for _, what := range []Reclaimable{ReclaimContainers, ReclaimImages} {
		w := Wish{What: what}
		for _, i := range ws.order {
			t := &ws.all[i]
			if slices.Contains(reclaims(ws.disks.layout.V, t.info.fs), what) {
				t.asked = true
				if !slices.Contains(w.Signals, t.Signal) {
					w.Signals = append(w.Signals, t.Signal)
				}
			}
		}
		if len(w.Signals) > 0 {
			out = append(out, w)
		}
	}
	return out
}
