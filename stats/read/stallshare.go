package read

import (
	"time"

	"jettison/stats"
)

// stallHistory keeps recent totals of the time stalled on one resource. The difference of two
// totals gives the share of time stalled over a window. The kernel's own averages are up to 2 s
// old.
type stallHistory struct {
	samples [historySize]stallSample
	n       int // number of samples added so far
}

type stallSample struct {
	at         time.Time
	some, full time.Duration
}

// The ring keeps one sample per historyStep at most, so that it reaches back beyond ten
// seconds.
const (
	historyStep = 100 * time.Millisecond
	historySize = 128
)

// add adds a reading and returns the shares over the windows that end with it.
func (h *stallHistory) add(at time.Time, psi *stats.PSIStats) (some, full stats.StallShare) {
	now := stallSample{at, psi.Some.Total, psi.Full.Total}
	if h.n > 0 {
		last := h.samples[(h.n-1)%historySize]
		// a clock that was set back, or a new kernel file
		if at.Before(last.at) || now.some < last.some || now.full < last.full {
			h.n = 0
		}
	}
	some.Over1s, full.Over1s = h.over(now, time.Second)
	some.Over10s, full.Over10s = h.over(now, 10*time.Second)
	if h.n == 0 || at.Sub(h.samples[(h.n-1)%historySize].at) >= historyStep {
		h.samples[h.n%historySize] = now
		h.n++
	}
	if !psi.HasFull {
		full = stats.StallShare{}
	}
	return some, full
}

// over computes the shares over a window, from the youngest sample that is at least as old as the
// window. It ignores samples that are more than twice as old, because they would describe a longer
// window.
func (h *stallHistory) over(now stallSample, window time.Duration) (some, full stats.Opt[float64]) {
	for i := h.n - 1; i >= 0 && i > h.n-1-historySize; i-- {
		s := h.samples[i%historySize]
		span := now.at.Sub(s.at)
		if span < window {
			continue
		}
		if span > 2*window {
			break
		}
		return stats.Some(min(1, float64(now.some-s.some)/float64(span))),
			stats.Some(min(1, float64(now.full-s.full)/float64(span)))
	}
	return some, full
}
