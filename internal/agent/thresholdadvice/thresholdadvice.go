// Package thresholdadvice computes how much memory.available a hard threshold must leave so that
// the node survives a process that allocates at the machine's full speed. From the crossing to the
// kill such a process takes fill * react; until the victim's memory is free, other processes may
// continue, so the release counts as well:
//
//	needed = fill * (react + release)
//
// All three are measured on the node: fill at start (pace.MeasureFill; e2e/fullspeed_test.go
// compares it with a real leak), react and release first by a trial and then by the evictions: the
// slowest of the last ones.
package thresholdadvice

import (
	"math"
	"time"

	"jettison/api"
	"jettison/internal/base/logthrottle"
)

// historySize is the number of remembered evictions.
const historySize = 16

// Headroom holds the agent's measurements and computes the advice. It belongs to the loop.
type Headroom struct {
	log             *logthrottle.Logger
	fill            float64 // bytes a second that all processes together can fill
	reacts          [historySize]time.Duration
	releases        [historySize]time.Duration
	nReact, nReturn int
	loggedNeeded    uint64 // needed bytes, as last logged
}

// RecordReaction records the time from a crossing to its kill, or of the trial of it.
func (h *Headroom) RecordReaction(took time.Duration) { h.nReact = put(&h.reacts, h.nReact, took) }

// RecordRelease records the time from a kill until the memory was free.
func (h *Headroom) RecordRelease(took time.Duration) {
	h.nReturn = put(&h.releases, h.nReturn, took)
}

func put(ring *[historySize]time.Duration, n int, took time.Duration) int {
	ring[n%historySize] = max(took, 0)
	return n + 1
}

// slowest returns the maximum of the last measurements.
func (h *Headroom) slowest() (react, release time.Duration) {
	for i := range historySize {
		react, release = max(react, h.reacts[i]), max(release, h.releases[i])
	}
	return react, release
}

// needed returns the smallest safe threshold in bytes; 0 without measurements.
func (h *Headroom) needed() uint64 {
	react, release := h.slowest()
	bytes := h.fill * (react + release).Seconds()
	if !(bytes > 0) {
		return 0
	}
	return uint64(min(bytes, math.MaxInt64))
}

// New creates a Headroom for a machine where all processes together fill the given bytes a second.
func New(fill float64, log *logthrottle.Logger) *Headroom { return &Headroom{fill: fill, log: log} }

// State returns the current advice for a hard threshold in bytes; 0: none is configured.
func (h *Headroom) State(threshold uint64) api.HeadroomState {
	react, release := h.slowest()
	return api.HeadroomState{
		FillBytesPerSecond: uint64(h.fill), React: react, Release: release, NeededBytes: h.needed(),
		ThresholdBytes: threshold,
	}
}

// Advise logs that the configured threshold is smaller than the safe one: once, and again when the
// need grows by more than a quarter.
func (h *Headroom) Advise(threshold uint64) {
	s := h.State(threshold)
	if s.ThresholdBytes == 0 || s.NeededBytes <= s.ThresholdBytes ||
		s.NeededBytes <= h.loggedNeeded+h.loggedNeeded/4 {
		return
	}
	h.loggedNeeded = s.NeededBytes
	//log: A process that allocates at full speed can exhaust memory before the agent has killed a pod.
	//  The key needed is the safe threshold in bytes.
	//do: Raise the hard threshold of memory.available to at least needed.
	h.log.Warn("memory.available hard threshold smaller than needed", api.EventEviction.Attr(),
		"threshold", s.ThresholdBytes, "needed", s.NeededBytes,
		"fillBytesPerSecond",
		s.FillBytesPerSecond,
		"crossedToKill", s.React, "killToMemoryBack", s.Release)
}
