package eviction

import "jettison/stats"

// level is an amount, with its value when a signal was last calm. A look without the amount keeps
// the values, but while the signal is calm the calm value becomes unknown.
type level struct {
	now, calm uint64
	known     bool // now and calm are known as of the last look
	hasCalm   bool // calm is known
}

// plausible reports whether a value is known and may be true.
func plausible(v stats.Opt[uint64]) bool { return v.OK && v.V < implausible }

// update adds a look. A pod that started after the signal was last calm had nothing at that time.
// An amount that was unknown at that time is assumed to have been the current one.
func (l *level) update(v stats.Opt[uint64], calm, isNew bool) {
	if l.known = plausible(v); !l.known {
		l.hasCalm = l.hasCalm && !calm
		return
	}
	l.now = v.V
	switch {
	case calm || !l.hasCalm && !isNew:
		l.calm = v.V
	case !l.hasCalm:
		l.calm = 0
	}
	l.hasCalm = true
}

// gained returns the growth since the signal was calm, which may be negative. An unknown amount has
// gained nothing.
func (l *level) gained() float64 {
	if !l.known {
		return 0
	}
	return float64(l.now) - float64(l.calm)
}
