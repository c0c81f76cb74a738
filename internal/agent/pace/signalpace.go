// Package pace computes when the next cheap look at the node is due: before the headroom above the
// nearest threshold can be exhausted.
//
//	signalpace.go  one signal: its headroom and how fast that recently fell
//	pace.go        Pacer: signals that may be exhausted within a second, and events that speed up looks
//	trend.go       the rate over longer times, for actions that take longer than a look
//	fill.go        how fast the processes of this machine can fill memory
//
// The assumed rate is the fill rate measured at start (at least 3 GiB/s per core), or the recently
// observed rate if that is greater. So a look finds a process that allocates as fast as the machine
// permits in time, and a calm node is read once a second.
package pace

import (
	"math"
	"time"

	"jettison/stats"
)

// Bounds of the interval between two cheap looks.
const (
	MinInterval = 2 * time.Millisecond
	maxInterval = time.Second
)

// slopeHalfLife is the half-life of an observed slope.
const slopeHalfLife = time.Second

// pace computes when the next cheap look for one signal is due.
type pace struct {
	floor    float64 // bytes, or tasks, per second that this machine can use up
	slope    float64 // the recently observed rate
	last     stats.Observation
	lastFall time.Time // when the signal last fell faster than a hundredth of the floor
}

// A signal that did not fall for quietAfter is read at most once per pollQuiet, however near its
// threshold is.
const (
	quietAfter = 5 * time.Second
	pollQuiet  = 10 * time.Millisecond
)

// observe records an observation.
func (p *pace) observe(o stats.Observation) {
	if !o.OK {
		return
	}
	if span := o.Time.Sub(p.last.Time); p.last.OK && span > 0 {
		p.slope *= math.Exp2(-span.Seconds() / slopeHalfLife.Seconds())
		if fell := float64(p.last.Value) - float64(o.Value); fell > 0 {
			p.slope = max(p.slope, fell/span.Seconds())
			if fell/span.Seconds() > p.floor/100 {
				p.lastFall = o.Time
			}
		}
	}
	p.last = o
}

// next returns the time until the next look for a headroom above the nearest threshold.
func (p *pace) next(headroom uint64) time.Duration {
	rate := max(p.floor, p.slope)
	if !(rate > 0) {
		return MinInterval
	}
	seconds := float64(headroom) / rate
	if seconds >= maxInterval.Seconds() {
		return maxInterval
	}
	due := max(MinInterval, time.Duration(seconds*float64(time.Second)))
	if p.last.Time.Sub(p.lastFall) > quietAfter { // a node may stay just above a threshold for long
		due = max(due, pollQuiet)
	}
	return due
}
