package eviction

import (
	"fmt"
	"maps"
	"time"

	"jettison/stats"
)

// breakers holds the breakers of all thresholds.
type breakers struct {
	config      *Config
	byThreshold map[breakerKey]breaker
}

// countOutcome updates the breaker of a threshold with the result of an eviction that is over: it
// closes the breaker if the pressure fell, and counts a futile eviction if something other than
// eligible pods took the returns. It returns false if the result is not observed yet.
func (bs *breakers) countOutcome(now time.Time, l *Life, w *watched) bool {
	if l.e.Local() || !bs.config.Breaker || w == nil {
		return true
	}
	if !w.observed.OK {
		return false
	}
	if !w.met || w.observed.Better(l.level) {
		delete(bs.byThreshold, w.key())
		return true
	}
	causedOutside, known := l.causedOutside(now, w)
	if causedOutside && known {
		b := bs.byThreshold[w.key()]
		b.countFutile(now, &l.e)
		bs.byThreshold[w.key()] = b
	}
	return known
}

// closeRecovered closes the breakers of signals that are no longer short.
func (bs *breakers) closeRecovered(all []watched) {
	if !bs.config.Breaker {
		return
	}
	for i := range all {
		if w := &all[i]; w.observed.OK && w.metSince.IsZero() {
			delete(bs.byThreshold, w.key())
		}
	}
}

// anyOpen reports whether the breaker of a threshold that is short is open.
func (bs *breakers) anyOpen() bool { return bs.anyFutile(breakerLimit) }

// anyFutile reports whether at least least evictions in a row were futile for a threshold that is
// short.
func (bs *breakers) anyFutile(least int) bool {
	for _, b := range bs.byThreshold {
		if bs.config.Breaker && b.futile >= least {
			return true
		}
	}
	return false
}

// noteTrial counts an eviction that an open breaker allowed because its victim is new or has grown.
func (bs *breakers) noteTrial(w *watched) {
	if b := bs.byThreshold[w.key()]; bs.config.Breaker && b.futile >= breakerLimit {
		b.futile, b.usageAtOpen, b.hasBounds, b.trials, b.atOpen = breakerLimit-1, nil, false,
			min(b.trials+1, maxTrials), podTotals{}
		bs.byThreshold[w.key()] = b
	}
}

// holdsBack reports whether the breaker prevents the eviction of a threshold's victim.
//
// It allows one trial if the first pod of the ranking is new or has grown since the breaker opened,
// and does not replace a futile victim. If pods grew at least as much as everything else since
// then, it moves the first pod in the ranking that grew much to the front and allows a trial: that
// pod leaks, and the pods before it do not. So it does with a pod that may have filled the disk
// behind replacements of futile victims.
func (bs *breakers) holdsBack(now time.Time, w *watched, ranked []Ranked) bool {
	b := bs.byThreshold[w.key()]
	if !bs.config.Breaker || b.futile < breakerLimit {
		return false
	}
	remembers := b.usageAtOpen == nil || b.hasBounds
	if remembers {
		b.recordUsage(ranked)
	}
	if remembers || b.atOpen.at.IsZero() {
		b.recordOpen(w)
		bs.byThreshold[w.key()] = b
	}
	if remembers || len(ranked) == 0 || now.Before(b.nextTrial) {
		return true
	}
	if first := &ranked[0].Candidate; b.newOrGrown(w, first) && !b.replacesFutile(w, first) {
		return false
	}
	if i := b.firstSuspect(w, ranked); i > 0 {
		moveToFront(ranked, i, "no replacement of a victim without effect")
		return false
	}
	for i := range ranked[1:] {
		if i == 0 && !b.podsGrew(now, w) && !b.podsGrewOnDisk(w, ranked) {
			return true
		}
		if c := &ranked[1+i].Candidate; b.grew(w, c, &ranked[0].Candidate) {
			moveToFront(ranked, 1+i, "grown since the breaker opened")
			return false
		}
	}
	return true
}

// podToRead returns a pod that must be read in full, so that the breaker can store its usage or
// compare it; nil if no pod needs the read. The read delays no eviction, because the breaker is
// open.
func (bs *breakers) podToRead(now time.Time, w *watched, eligible []Candidate) *stats.PodStats {
	b := bs.byThreshold[w.key()]
	remembers := b.usageAtOpen == nil || b.hasBounds
	if !bs.config.Breaker || b.futile < breakerLimit ||
		!remembers && (now.Before(b.nextTrial) || !b.podsGrew(now, w)) {
		return nil
	}
	for i := range eligible {
		c := &eligible[i]
		_, stored := b.usageAtOpen[c.Pod.PodRef.UID]
		if c.upperBoundOnly() && (remembers && !stored || !remembers && b.newOrGrown(w, c)) {
			return c.Pod
		}
	}
	return nil
}

// openReason returns why the breaker is open, and names the cgroup that grew most.
func (bs *breakers) openReason(w *watched, growing []Growth) string {
	reason := fmt.Sprintf("circuit breaker open: %d evictions did not lower the pressure on %s",
		bs.byThreshold[w.key()].futile, w.Signal)
	var most Growth
	for _, g := range growing {
		if g.Bytes > most.Bytes {
			most = g
		}
	}
	if most.Bytes > 0 {
		reason += fmt.Sprintf(", %s grew by %s instead", most.Cgroup, bytesQuantity(uint64(most.Bytes)))
	}
	return reason
}

// snapshot returns a function that restores the current state of a threshold's breaker.
func (bs *breakers) snapshot(w *watched) func() {
	b, counted := bs.byThreshold[w.key()]
	b.usageAtOpen = maps.Clone(b.usageAtOpen)
	return func() {
		if counted {
			bs.byThreshold[w.key()] = b
		}
	}
}
