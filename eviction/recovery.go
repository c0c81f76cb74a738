package eviction

import "time"

// conclude finds out what became of an eviction: whether what was short is back by an observation,
// or is not in time, or gets much worse, for another pod eats what the victim returns.
func (l *Life) conclude(now time.Time, ws *watchlist) {
	if l.outcome != OutcomeUnknown || l.gone || !l.Dead() {
		return
	}
	w, known, waited := ws.watchedBy(&l.e, &l.met.Threshold), true,
		now.Sub(l.emptied.Time) >= l.limit()
	if l.e.Disk() { // what lies there is back only with the clean-up, and is measured now and then
		known = l.clean && w != nil && w.observed.Time.After(l.cleaned.Time)
		waited = l.clean && now.Sub(l.cleaned.Time) >= diskSettle || !l.clean &&
			now.Sub(l.emptied.Time) >= RemoveLimit
	}
	back, worse := known, false
	switch {
	case l.e.Local():
		back = l.clean
	case l.e.Planned():
		back, waited = !l.sharedAwaited(now), false
	case w != nil:
		back = known && w.observed.OK && !w.met
		worse = !l.clean && w.observed.OK && w.observed.HalfGone(l.level)
		l.after = w.observed
	}
	switch {
	case back:
		l.outcome = OutcomeBack
	case waited || worse:
		l.outcome = OutcomeNotBack
	}
}

// returns reports whether the memory of a victim is on its way back, so that each millisecond
// counts.
func (l *Life) returns(now time.Time) bool {
	return l.outcome == OutcomeUnknown && !l.gone && (l.e.Urgent() || !l.killed.Time.IsZero()) &&
		(!l.Dead() || now.Sub(l.emptied.Time) < settleLimit)
}
