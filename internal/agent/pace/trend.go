package pace

import (
	"math"
	"time"

	"jettison/stats"
)

// trendWindow is the minimum time over which a trend is measured. Near a threshold, looks are only
// a few milliseconds apart. Between two of them, a process that allocates 10 MiB/s in pieces of 1
// MiB would appear to allocate more than 100 MiB/s.
const trendWindow = 500 * time.Millisecond

// A fall of trendPiece within pieceWindow is too large to be such a piece, and counts immediately
// instead of after trendWindow.
const (
	trendPiece  = 16 << 20
	pieceWindow = 50 * time.Millisecond
)

// trend measures the rate at which a signal falls, for actions that take longer than a look. A
// pace's slope only serves to time the next look.
type trend struct {
	windowStart stats.Observation // first observation of the window
	rate        float64           // per second, up to windowStart; earlier rates decay
	windowRate  float64           // per second, in the current window, which counts as trendWindow at least
	seen        time.Time
	piece       stats.Observation // where the last piece ended
	pieceRate   float64           // per second, of that piece; 0: no recent piece
}

func (t *trend) observe(o stats.Observation) {
	if !o.OK {
		return
	}
	span := o.Time.Sub(t.windowStart.Time)
	if !t.windowStart.OK || span < 0 {
		*t = trend{windowStart: o, seen: o.Time, rate: t.rate, piece: o}
		return
	}
	t.rate *= math.Exp2(-o.Time.Sub(t.seen).Seconds() / slopeHalfLife.Seconds())
	t.seen = o.Time
	fell := float64(t.windowStart.Value) - float64(o.Value)
	t.windowRate = max(0, fell) / max(span, trendWindow).Seconds()
	if span >= trendWindow {
		t.windowStart, t.rate, t.windowRate = o, max(t.rate, t.windowRate), 0
	}
	since := o.Time.Sub(t.piece.Time)
	fell = float64(t.piece.Value) - float64(o.Value)
	switch {
	case fell >= trendPiece:
		t.piece, t.pieceRate = o, fell/max(since, time.Millisecond).Seconds()
	case since >= pieceWindow:
		t.piece, t.pieceRate = o, 0
	}
}

// perSecond returns the rate at which the signal falls, per second.
func (t *trend) perSecond() float64 { return max(t.rate, t.windowRate, t.pieceRate) }
