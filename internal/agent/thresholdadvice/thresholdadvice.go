// Package thresholdadvice says how much memory.available a hard threshold has to leave so that the
// node lives through a process that takes memory as fast as this machine gives it. From the
// crossing to the kill it takes fill * react; until the victim's memory is back others may go on,
// so that the release counts as well:
//
//	needed = fill * (react + release)
//
// All three are measured here: fill at the start (pace.MeasureFill; e2e/fullspeed_test.go holds it
// against a real leak), react and release first by a trial and from then on by the evictions that
// there were, the slowest of the last ones.
package thresholdadvice

import (
	"math"
	"time"

	"jettison/api"
	"jettison/internal/base/logthrottle"
)

// advised is how many evictions are remembered.
const advised = 16

// Headroom is what the agent has measured of itself, and what follows from it. It belongs to the
// loop.
type Headroom struct {
	log             *logthrottle.Logger
	fill            float64 // bytes a second that processes here can take together
	reacts          [advised]time.Duration
	releases        [advised]time.Duration
	nReact, nReturn int
	said            uint64 // needed, as last logged
}

// React takes the time from a crossing to its kill, or the trial of it.
func (h *Headroom) React(took time.Duration) { h.nReact = put(&h.reacts, h.nReact, took) }

// Release takes the time from a kill until the memory was back.
func (h *Headroom) Release(took time.Duration) { h.nReturn = put(&h.releases, h.nReturn, took) }

func put(ring *[advised]time.Duration, n int, took time.Duration) int {
	ring[n%advised] = max(took, 0)
	return n + 1
}

// slowest are the worst of the last ones.
func (h *Headroom) slowest() (react, release time.Duration) {
	for i := range advised {
		react, release = max(react, h.reacts[i]), max(release, h.releases[i])
	}
	return react, release
}

// needed is the smallest safe threshold in bytes; 0: nothing was measured.
func (h *Headroom) needed() uint64 {
	react, release := h.slowest()
	bytes := h.fill * (react + release).Seconds()
	if !(bytes > 0) {
		return 0
	}
	return uint64(min(bytes, math.MaxInt64))
}

// New makes a Headroom of a machine whose processes can take so many bytes a second together.
func New(fill float64, log *logthrottle.Logger) *Headroom { return &Headroom{fill: fill, log: log} }

// State is what is known now, for a hard threshold of so many bytes; 0: none is configured.
func (h *Headroom) State(threshold uint64) api.HeadroomState {
	react, release := h.slowest()
	return api.HeadroomState{
		FillBytesPerSecond: uint64(h.fill), React: react, Release: release, NeededBytes: h.needed(),
		ThresholdBytes: threshold,
	}
}

// Advise logs that the configured threshold is smaller than what is safe here: once, and again when
// it gets much worse.
func (h *Headroom) Advise(threshold uint64) {
	s := h.State(threshold)
	if s.ThresholdBytes == 0 || s.NeededBytes <= s.ThresholdBytes || s.NeededBytes <= h.said+h.said/4 {
		return
	}
	h.said = s.NeededBytes
	h.log.Warn("the hard threshold of memory.available is smaller than what this node needs to "+
		"outlive a process that takes memory "+
		"at full speed", api.EventEviction.Attr(), "threshold", s.ThresholdBytes, "needed", s.NeededBytes,
		"fillBytesPerSecond",
		s.FillBytesPerSecond,
		"crossedToKill", s.React, "killToMemoryBack", s.Release)
}
