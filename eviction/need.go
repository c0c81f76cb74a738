package eviction

import (
	"time"

	"jettison/stats"
)

// killMargin is the part of the time until a hard threshold is crossed that is reserved for the
// kill.
const killMargin = 250 * time.Millisecond

// Proactive reclaim leaves swapTimes the threshold for swap free.
const swapTimes = 2

// Need is the node's state by one signal of memory. It determines whether, and how much, memory to
// reclaim before a pod is evicted for that signal.
type Need struct {
	Available uint64 // bytes
	// the highest hard threshold, in bytes; absent: none, or the signal is not observed
	Hard stats.Opt[uint64]
	Soft stats.Opt[uint64] // the highest soft threshold, in bytes; absent as above
	// Grace is the shortest remaining grace period of the soft thresholds that are met; absent: no
	// soft threshold is met.
	Grace    stats.Opt[time.Duration]
	Margin   time.Duration // time reserved for the kill at a hard threshold
	SwapKeep uint64        // bytes of swap that must stay free
}

// need returns the node's state by a signal of memory. swap is the size of its swap in bytes.
func (ws *watchlist) need(now time.Time, signal stats.Signal, swap uint64) Need {
	o := ws.observedOf(signal)
	n := Need{Margin: killMargin, Available: o.Value}
	for i := range ws.config.Thresholds {
		if t := &ws.config.Thresholds[i]; t.Signal == stats.SignalSwapAvailable {
			n.SwapKeep = max(n.SwapKeep, swapTimes*t.Value.Of(swap))
		}
	}
	for i := range ws.all {
		w := &ws.all[i]
		if w.Signal != signal || !o.OK {
			continue
		}
		to := &n.Hard
		if !w.Hard() {
			to = &n.Soft
		}
		*to = stats.Some(max(to.V, w.Value.Of(o.Capacity)))
		if left := w.Grace - now.Sub(w.metSince); w.met && !w.Hard() &&
			(!n.Grace.OK || left < n.Grace.V) {
			n.Grace = stats.Some(left)
		}
	}
	return n
}

// hardBytes returns the highest hard threshold of memory.available for a memory capacity; 0 without
// one.
func (c *Config) hardBytes(capacity uint64) (bytes uint64) {
	for i := range c.Thresholds {
		if t := &c.Thresholds[i]; t.Signal == stats.SignalMemoryAvailable && t.Hard() {
			bytes = max(bytes, t.Value.Of(capacity))
		}
	}
	return bytes
}
