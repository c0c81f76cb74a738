package pace

import (
	"math"
	"time"

	"jettison/stats"
)

// trendWindow is over how long a trend is measured at least. Looks near a threshold come every few
// milliseconds, and a process that takes 10 MiB a second in pieces of one, as an allocator does,
// takes a hundred a second from one of them to the next.
const trendWindow = 500 * time.Millisecond

// What falls by trendPiece within pieceWindow is no piece of who takes little: there is no half a
// second to wait.
const (
	trendPiece  = 16 << 20
	pieceWindow = 50 * time.Millisecond
)

// trend is how fast a signal falls for long enough to do something about it: a slope is what it may
// do until the next look.
type trend struct {
	begin stats.Observation // of the window
	rate  float64           // a second, until begin, and what counts still of before
	now   float64           // a second, in the window so far, as if no more fell in it
	seen  time.Time
	piece stats.Observation // where the last piece ended
	fast  float64           // a second, of that; 0: none has fallen lately
}

func (t *trend) see(o stats.Observation) {
	if !o.OK {
		return
	}
	span := o.Time.Sub(t.begin.Time)
	if !t.begin.OK || span < 0 {
		*t = trend{begin: o, seen: o.Time, rate: t.rate, piece: o}
		return
	}
	t.rate *= math.Exp2(-o.Time.Sub(t.seen).Seconds() / slopeHalf.Seconds())
	t.seen = o.Time
	fell := float64(t.begin.Value) - float64(o.Value)
	t.now = max(0, fell) / max(span, trendWindow).Seconds()
	if span >= trendWindow {
		t.begin, t.rate, t.now = o, max(t.rate, t.now), 0
	}
	since := o.Time.Sub(t.piece.Time)
	fell = float64(t.piece.Value) - float64(o.Value)
	switch {
	case fell >= trendPiece:
		t.piece, t.fast = o, fell/max(since, time.Millisecond).Seconds()
	case since >= pieceWindow:
		t.piece, t.fast = o, 0
	}
}

// perSecond is at how much a second it falls.
func (t *trend) perSecond() float64 { return max(t.rate, t.now, t.fast) }
