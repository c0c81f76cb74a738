package pace

import (
	"math"
	"time"

	"jettison/eviction"
)

// forkFloor is the lower bound of the number of tasks that one core can create in a second.
const forkFloor = 10_000

// Intervals between two cheap looks while tasks stall. eviction.Ready gives the interval for
// evictions.
const (
	pollPressed = 20 * time.Millisecond  // memory may be short
	pollStalled = 200 * time.Millisecond // memory is plentiful: tasks stall at their own limits
)

// StallWindow is the window of the pressure triggers, and the time for which looks stay fast after
// one fired.
const StallWindow = time.Second

// Pacer computes when the next cheap look is due. It belongs to the loop.
type Pacer struct {
	paces   [len(eviction.Quick)]pace // of the signals that may be exhausted in less than a second
	trends  [len(eviction.Quick)]trend
	pressed time.Time // when a pressure trigger last fired
	fill    float64
}

// minFillPerCore is the lower bound of a core's fill rate in bytes a second. Without it looks could
// come late, because the measurement was disturbed or throttled, or because the host of a virtual
// machine first had to find the memory.
const minFillPerCore = 3 << 30

// New creates a Pacer for a machine on which all processes together fill the given bytes per
// second; see MeasureFill.
func New(fill float64, cores int) *Pacer {
	p := &Pacer{fill: fill}
	floor := max(fill, minFillPerCore*float64(cores))
	p.paces[0].floor, p.paces[1].floor, p.paces[2].floor = floor, floor, forkFloor*float64(cores)
	return p
}

// Fill returns the fill rate given to New, in bytes a second.
func (p *Pacer) Fill() float64 { return p.fill }

// Trend returns the recent rate at which the i-th signal of eviction.Quick fell, in its unit per
// second. The rate covers at least half a second, or the last large fall.
func (p *Pacer) Trend(i int) float64 { return p.trends[i].perSecond() }

// Observe records the manager's latest observations.
func (p *Pacer) Observe(r *eviction.Ready) {
	for i := range p.paces {
		p.paces[i].observe(r.Headroom[i].Observed)
		p.trends[i].observe(r.Headroom[i].Observed)
	}
}

// OnPressure records that a pressure trigger fired: a shortage that the headroom does not show.
func (p *Pacer) OnPressure(now time.Time) { p.pressed = now }

// Due returns the time until the next cheap look.
func (p *Pacer) Due(now time.Time, r *eviction.Ready) time.Duration {
	due := r.Within
	for i := range p.paces {
		due = min(due, p.paces[i].next(r.Headroom[i].Left))
	}
	return min(due, p.stalled(now, r.Near >= eviction.Enough))
}

// stalled returns the time until the next look while tasks stall.
func (p *Pacer) stalled(now time.Time, near bool) time.Duration {
	switch {
	case now.Sub(p.pressed) >= StallWindow:
		return math.MaxInt64
	case near:
		return pollPressed
	}
	return pollStalled
}

// WaitAfter returns how long a wake must wait for its look. It keeps looks at least MinInterval
// apart, however many wakes occur.
func WaitAfter(now, lastLook time.Time) time.Duration { return MinInterval - now.Sub(lastLook) }
