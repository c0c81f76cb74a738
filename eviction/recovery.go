package eviction

import "time"

// conclude sets the outcome of an eviction: the signal recovered, did not recover in time, or got
// much worse because another pod uses up the victim's returns.
func (l *Life) conclude(now time.Time, ws *watchlist) {
	if l.outcome != OutcomeUnknown || l.abandoned || !l.Dead() {
		return
	}
	w, known, timedOut := ws.watchedBy(&l.e, &l.met.Threshold), true,
		now.Sub(l.emptied.Time) >= l.returnLimit()
	if l.e.Disk() { // a disk gains only with the clean-up, and is measured rarely
		known = l.cleanedUp && w != nil && w.observed.Time.After(l.cleaned.Time)
		timedOut = l.cleanedUp && now.Sub(l.cleaned.Time) >= diskSettle || !l.cleanedUp &&
			now.Sub(l.emptied.Time) >= RemoveLimit
	}
	recovered, worse := known, false
	switch {
	case l.e.Local():
		recovered = l.cleanedUp
	case l.e.Planned():
		recovered, timedOut = !l.shmemPending(now), false
	case w != nil:
		recovered = known && w.observed.OK && !w.met
		worse = !l.cleanedUp && w.observed.OK && w.observed.HalfGone(l.level)
		l.observedAfter = w.observed
	}
	switch {
	case recovered:
		l.outcome = OutcomeBack
	case timedOut || worse:
		l.outcome = OutcomeNotBack
	}
}

// returningMemory reports whether a victim's memory is being returned, so that the node must be
// observed every few milliseconds.
func (l *Life) returningMemory(now time.Time) bool {
	return l.outcome == OutcomeUnknown && !l.abandoned && (l.e.Urgent() || !l.killed.Time.IsZero()) &&
		(!l.Dead() || now.Sub(l.emptied.Time) < settleLimit)
}
