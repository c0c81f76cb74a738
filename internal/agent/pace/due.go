package pace

import (
	"math"
	"time"

	"jettison/eviction"
)

// forkFloor is how many tasks a second one core can make at least.
const forkFloor = 10_000

// Times between two cheap looks while tasks stall. How soon the next is due for evictions is
// eviction.Ready's.
const (
	pollPressed = 20 * time.Millisecond  // memory may be short
	pollStalled = 200 * time.Millisecond // there is plenty, so that they stall at limits of their own
)

// StallWindow is the window of the pressure triggers: for so long after one fired, looks are made
// fast.
const StallWindow = time.Second

// Pacer says when the next cheap look is due. It belongs to the loop.
type Pacer struct {
	paces   [len(eviction.Quick)]pace // of the signals that may be used up within less than a second
	trends  [len(eviction.Quick)]trend
	pressed time.Time // when a pressure trigger fired last
	fill    float64
}

// leastFill is the least that a core is taken to fill in bytes a second: a disturbed or throttled
// measurement, or a virtual machine whose host has to find the memory first, must not make looks
// come late.
const leastFill = 3 << 30

// New makes a Pacer for a machine whose processes take so many bytes a second together, see
// MeasureFill.
func New(fill float64, cores int) *Pacer {
	p := &Pacer{fill: fill}
	floor := max(fill, leastFill*float64(cores))
	p.paces[0].floor, p.paces[1].floor, p.paces[2].floor = floor, floor, forkFloor*float64(cores)
	return p
}

// Fill is how many bytes a second the processes of this machine were measured to take together.
func (p *Pacer) Fill() float64 { return p.fill }

// Trend is at how much a second the i-th of eviction.Quick was lately seen to fall over half a
// second at least, in its unit.
func (p *Pacer) Trend(i int) float64 { return p.trends[i].perSecond() }

// See takes what the manager has observed last.
func (p *Pacer) See(r *eviction.Ready) {
	for i := range p.paces {
		p.paces[i].see(r.Headroom[i].Observed)
		p.trends[i].see(r.Headroom[i].Observed)
	}
}

// Pressed tells that a pressure trigger fired: something is short that the headroom does not show.
func (p *Pacer) Pressed(now time.Time) { p.pressed = now }

// Due is how long the next cheap look may wait.
func (p *Pacer) Due(now time.Time, r *eviction.Ready) time.Duration {
	due := r.Within
	for i := range p.paces {
		due = min(due, p.paces[i].next(r.Headroom[i].Left))
	}
	return min(due, p.stalled(now, r.Near >= eviction.Enough))
}

// stalled is how long the next look may wait because tasks stall.
func (p *Pacer) stalled(now time.Time, near bool) time.Duration {
	switch {
	case now.Sub(p.pressed) >= StallWindow:
		return math.MaxInt64
	case near:
		return pollPressed
	}
	return pollStalled
}

// Rest is how long a wake has to wait for its look: looks are never closer than that, however many
// wakes there are.
func Rest(now, lastLook time.Time) time.Duration { return Soonest - now.Sub(lastLook) }
