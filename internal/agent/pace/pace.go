// Package pace says when the next cheap look at the node is due: before what is left above the
// nearest threshold can be gone, however fast it is eaten.
//
//	pace.go  one signal: its headroom and how fast that was seen to fall
//	due.go   Pacer: all that may be gone within a second, and what makes looks faster
//	trend.go how fast it falls for longer than that, for what takes longer than a look
//	fill.go  how fast the processes of this machine can take memory
//
// The rate is the one at which this machine was measured to fill memory at the start (3 GiB/s a
// core at least), or the one seen lately if that is greater. So a process that takes memory as fast
// as the machine gives it is seen in time, and a calm node is looked at once a second.
package pace

import (
	"math"
	"time"

	"jettison/stats"
)

// Bounds of the time between two cheap looks.
const (
	Soonest = 2 * time.Millisecond
	latest  = time.Second
)

// slopeHalf is how long a slope that was seen counts for half.
const slopeHalf = time.Second

// pace says when the next cheap look is due: before what is left above the nearest threshold can be
// gone, however fast it is eaten.
type pace struct {
	floor float64 // bytes, or tasks, a second that this machine can take, however fast it was seen to
	slope float64 // that it was seen to take, lately
	last  stats.Observation
	fell  time.Time // when it was last seen to fall at more than a hundredth of the floor
}

// A signal that has not fallen for quietAfter is looked at no more often than each pollQuiet,
// however near its threshold is.
const (
	quietAfter = 5 * time.Second
	pollQuiet  = 10 * time.Millisecond
)

// see takes an observation into account.
func (p *pace) see(o stats.Observation) {
	if !o.OK {
		return
	}
	if span := o.Time.Sub(p.last.Time); p.last.OK && span > 0 {
		p.slope *= math.Exp2(-span.Seconds() / slopeHalf.Seconds())
		if fell := float64(p.last.Value) - float64(o.Value); fell > 0 {
			p.slope = max(p.slope, fell/span.Seconds())
			if fell/span.Seconds() > p.floor/100 {
				p.fell = o.Time
			}
		}
	}
	p.last = o
}

// next is the time until the next look, with so much left above the nearest threshold.
func (p *pace) next(headroom uint64) time.Duration {
	rate := max(p.floor, p.slope)
	if !(rate > 0) {
		return Soonest
	}
	seconds := float64(headroom) / rate
	if seconds >= latest.Seconds() {
		return latest
	}
	due := max(Soonest, time.Duration(seconds*float64(time.Second)))
	if p.last.Time.Sub(p.fell) > quietAfter { // just above a threshold for long: a node may live there
		due = max(due, pollQuiet)
	}
	return due
}
