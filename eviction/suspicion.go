package eviction

import "time"

// This file decides when a pod is evicted for a shortage that measurements do not explain, and
// which one. The delay protects pods from a shortage that they did not cause. It ends before the
// disk is full, because then all pods fail.

const (
	// suspectDelay is the time in which no pod is evicted for a shortage that pods do not explain.
	// The delay starts again with each such eviction, doubled, up to suspectDelayMax. An eviction that
	// freed at least 1/suspectFreed of what was missing resets it.
	suspectDelay    = time.Minute
	suspectDelayMax = 10 * time.Minute
	suspectFreed    = 10
)

// suspicion is a pod's class in the ranking for a shortage that measurements do not explain.
type suspicion uint8

const (
	notSuspected    suspicion = iota // measurements explain the shortage
	suspectedWriter                  // the pod grew, or wrote, by a quarter of the disk's loss
	staleWriter                      // it wrote that much, but may have overwritten its files
	unknownGrowth
	wroteLittle // its processes wrote less, but the runtime may write its logs
	shownIdle   // complete and new measurements show less growth
)

// doubt is a shortage that pods do not explain.
type doubt struct {
	since  time.Time
	ended  time.Time // end of the shortage; zero: it has not ended
	reason string    // why no pod is evicted; empty: a pod may be evicted
}

// suspectBackoff delays evictions by suspicion, for all disks together: several signals share one
// disk.
type suspectBackoff struct {
	last  time.Time     // the last such eviction; zero: none
	soft  bool          // it was for a soft threshold; not saved
	delay time.Duration // zero: suspectDelay
}

// wait returns the current delay.
func (b *suspectBackoff) wait() time.Duration { return max(b.delay, suspectDelay) }

// deadline returns when a pod may be evicted for a doubt: the delay after its beginning, or
// immediately if writes explain the shortage or the disk is urgent, but not before the delay after
// the last such eviction. A hard threshold does not wait for a pod that a soft one evicted.
func (b *suspectBackoff) deadline(now time.Time, d *doubt, written, urgent, hard bool) time.Time {
	at := d.since
	if !written && !urgent {
		at = at.Add(suspectDelay)
	}
	next := b.last.Add(b.wait())
	if b.last.IsZero() || now.Before(b.last) || hard && b.soft || !next.After(at) {
		return at
	}
	return next
}

// noteSuspected stores that a pod was evicted by suspicion. The delay doubles until the eviction
// has freed enough.
func (e *diskExplainer) noteSuspected(now time.Time, eviction *Eviction) {
	if b := &e.backoff; eviction.suspected {
		b.last, b.soft, b.delay, e.unsaved = now, !eviction.hard, min(2*b.wait(), suspectDelayMax), true
	}
}

// settleSuspected resets the delay if an eviction that is over freed enough.
func (e *diskExplainer) settleSuspected(l *Life, w *watched) {
	if !l.e.suspected || w == nil {
		return
	}
	before := &l.met.Observed
	enough := w.recoveryTarget(before.Capacity)
	missing := enough - min(before.Value, enough)
	freed := max(w.observed.Value, l.level) - l.level
	if !w.met || freed >= missing/suspectFreed {
		e.endBackoff()
	}
}

// endBackoff resets the delay. A victim that survives its kill shows nothing about the others.
func (e *diskExplainer) endBackoff() { e.backoff.delay, e.unsaved = 0, true }

// suspect ranks the eligible pods by suspicion first.
func (l *lists) suspect(g *diskChange) []Ranked {
	for i := range l.eligible {
		k, uid := &l.eligible[i].Keys, l.eligible[i].Pod.PodRef.UID
		if k.suspicion = g.suspicion(uid); k.suspicion <= staleWriter {
			k.Estimate = g.pods[uid].holds
		}
	}
	return l.rank()
}

// acquit ranks the eligible pods without suspicion again.
func (l *lists) acquit() []Ranked {
	for i := range l.eligible {
		l.eligible[i].Keys.suspicion, l.eligible[i].Keys.Estimate = notSuspected, 0
	}
	return l.rank()
}
