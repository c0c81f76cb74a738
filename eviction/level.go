package eviction

import "jettison/stats"

// level is an amount, and what it was while a signal was calm last. A look in which it is not known
// changes nothing.
type level struct {
	now, calm uint64
	known     bool // both are, as of the last look
	based     bool // calm is
}

// canBe: it is known, and may be true.
func canBe(v stats.Opt[uint64]) bool { return v.OK && v.V < implausible }

// step takes a look. What has come since the signal was calm was nothing then; what was there and
// was not known is taken to have been as it is now.
func (l *level) step(v stats.Opt[uint64], calm, isNew bool) {
	if l.known = canBe(v); !l.known {
		l.based = l.based && !calm
		return
	}
	l.now = v.V
	switch {
	case calm || !l.based && !isNew:
		l.calm = v.V
	case !l.based:
		l.calm = 0
	}
	l.based = true
}

// gained is what it is more; negative: less. What is not known has gained nothing.
func (l *level) gained() float64 {
	if !l.known {
		return 0
	}
	return float64(l.now) - float64(l.calm)
}
