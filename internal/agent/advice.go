package agent

import (
	"math"
	"time"
)

// Headroom advice: how much memory.available a hard threshold has to leave so that the node lives through a process that takes memory as
// fast as this machine gives it. From the crossing to the kill it takes fill * react; until the victim's memory is back others may go on,
// so that the release counts as well:
//
//	needed = fill * (react + release)
//
// All three are measured here: fill at the start (measureFill), react and release first by a rehearsal and
// from then on by the evictions that there were, the slowest of the last ones.

// advised is how many evictions are remembered.
const advised = 16

// advice is what the agent has measured of itself.
type advice struct {
	fill            float64 // bytes a second
	reacts          [advised]time.Duration
	releases        [advised]time.Duration
	nReact, nReturn int
	said            uint64 // needed, as last logged
}

// react takes the time from a crossing to its kill, or the rehearsal of it.
func (v *advice) react(took time.Duration) { v.nReact = put(&v.reacts, v.nReact, took) }

// release takes the time from a kill until the memory was back.
func (v *advice) release(took time.Duration) { v.nReturn = put(&v.releases, v.nReturn, took) }

func put(ring *[advised]time.Duration, n int, took time.Duration) int {
	ring[n%advised] = max(took, 0)
	return n + 1
}

// slowest are the worst of the last ones.
func (v *advice) slowest() (react, release time.Duration) {
	for i := range advised {
		react, release = max(react, v.reacts[i]), max(release, v.releases[i])
	}
	return react, release
}

// needed is the smallest safe threshold in bytes; 0: nothing was measured.
func (v *advice) needed() uint64 {
	react, release := v.slowest()
	bytes := v.fill * (react + release).Seconds()
	if !(bytes > 0) {
		return 0
	}
	return uint64(min(bytes, math.MaxInt64))
}

// HeadroomState is the advice on hard thresholds for memory.available.
type HeadroomState struct {
	FillBytesPerSecond uint64        `json:"fillBytesPerSecond"` // that processes here can take together
	React              time.Duration `json:"reactNanoseconds"`   // from a crossing to the kill, at worst
	Release            time.Duration `json:"releaseNanoseconds"` // from a kill until the memory is back, at worst
	NeededBytes        uint64        `json:"neededBytes"`        // the smallest safe threshold
	ThresholdBytes     uint64        `json:"thresholdBytes"`     // the hard one that is configured; 0: none
}

// headroomAdvice is what is known now.
func (a *agent) headroomAdvice() HeadroomState {
	a.advice.fill = max(a.advice.fill, a.paces[0].floor)
	react, release := a.advice.slowest()
	s := HeadroomState{FillBytesPerSecond: uint64(a.advice.fill), React: react, Release: release, NeededBytes: a.advice.needed()}
	capacity := a.node.Memory.CapacityBytes
	if capacity.OK {
		s.ThresholdBytes = a.manager.HardBytes(capacity.V)
	}
	return s
}

// advise logs that the configured threshold is smaller than what is safe here: once, and again when it gets much worse.
func (a *agent) advise() {
	s := a.headroomAdvice()
	if s.ThresholdBytes == 0 || s.NeededBytes <= s.ThresholdBytes || s.NeededBytes <= a.advice.said+a.advice.said/4 {
		return
	}
	a.advice.said = s.NeededBytes
	a.log.Warn("the hard threshold of memory.available is smaller than what this node needs to outlive a process that takes memory at full speed",
		"threshold", s.ThresholdBytes, "needed", s.NeededBytes, "fillBytesPerSecond", s.FillBytesPerSecond, "crossedToKill", s.React, "killToMemoryBack", s.Release)
}
