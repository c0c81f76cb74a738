package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// reliefInterval is the shortest time between two passes of garbage collection before an eviction
// for a disk. reliefLimit bounds a pass; after that time the next look decides.
const (
	reliefInterval = time.Minute
	reliefLimit    = 5 * time.Minute
)

// Relief is the caller's next action for a decision that asks for a reclaim first.
type Relief int

const (
	// the pass has ended, or takes too long: call StepAfterReclaim with the next look
	ReliefNone  Relief = iota
	ReliefBegin        // begin a pass and wait for its end
	ReliefWait         // wait for the end of the pass, or for an observation after it
	// begin a pass, and decide on the present look as for ReliefNone: the disk is nearly full
	ReliefBeginNow
)

// lastRelief is the last pass that was requested.
type lastRelief struct {
	requestedAt, doneAt time.Time // zero: never; doneAt before requestedAt: in progress
	requested           []Reclaimable
}

// request returns the next action for a decision with reclaim requests, and stores the pass that it
// requests.
func (r *lastRelief) request(now time.Time, wishes []ReclaimRequest, ws *watchlist) Relief {
	inProgress := !r.requestedAt.IsZero() && r.doneAt.Before(r.requestedAt)
	recently := !r.doneAt.IsZero() && now.Sub(r.doneAt) < reliefInterval && r.covers(wishes)
	switch {
	case inProgress && now.Sub(r.requestedAt) < reliefLimit, !inProgress && recently &&
		!ws.observedSince(wishes, r.doneAt):
		return ReliefWait
	case inProgress, recently:
		return ReliefNone
	}
	r.requestedAt, r.requested = now, r.requested[:0]
	for _, w := range wishes {
		r.requested = append(r.requested, w.What)
	}
	return ReliefBegin
}

// covers reports whether the last pass included all of the requests.
func (r *lastRelief) covers(wishes []ReclaimRequest) bool {
	return !slices.ContainsFunc(wishes,
		func(w ReclaimRequest) bool { return !slices.Contains(r.requested, w.What) })
}

// observedSince reports whether each signal of the requests was observed after a time. A look made
// before the end of a pass does not show the freed space.
func (ws *watchlist) observedSince(wishes []ReclaimRequest, since time.Time) bool {
	for _, w := range wishes {
		for _, signal := range w.Signals {
			if o := ws.observedOf(signal); o.OK && !o.Time.After(since) {
				return false
			}
		}
	}
	return true
}

// reclaims returns the kinds that the kubelet reclaims for a disk signal, by the layout
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

// wishes returns the possible reclaims for all thresholds that ask for a victim, and marks these
// thresholds.
func (ws *watchlist) wishes() (out []ReclaimRequest) {
	if !ws.disks.layout.OK {
		return nil
	}
	for _, what := range []Reclaimable{ReclaimContainers, ReclaimImages} {
		w := ReclaimRequest{What: what}
		for _, i := range ws.order {
			t := &ws.all[i]
			if slices.Contains(reclaims(ws.disks.layout.V, t.info.fs), what) {
				t.reclaiming = true
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
