package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// Watches reports whether a threshold is set for a signal.
func (m *Manager) Watches(signal stats.Signal) bool { return m.config.watches(signal) }

func (c *Config) watches(signal stats.Signal) bool {
	return slices.ContainsFunc(c.Thresholds, func(t Threshold) bool { return t.Signal == signal })
}

// Memory returns the observation that memory thresholds use.
func (m *Manager) Memory(node *stats.NodeStats) stats.Observation {
	return node.Memory.Available(m.config.MemoryAvailable)
}

// Observed returns the last observation of a signal that has a threshold.
func (m *Manager) Observed(signal stats.Signal) stats.Observation {
	return m.watch.observedOf(signal)
}

// SignalState is the last observation of a signal, with its thresholds in words.
type SignalState struct {
	Signal     stats.Signal
	Observed   stats.Observation
	Thresholds []string
	Limits     []uint64 // of each threshold, in the signal's unit; nil: unknown capacity
}

// Signals returns the signals that have a threshold, in the order of the configuration.
func (m *Manager) Signals() []SignalState { return m.watch.states() }

// Lost is a signal with a threshold that is no longer observed, so that the threshold has no
// effect.
type Lost struct {
	Signal stats.Signal
	Reason string
}

// Lost returns the signals that have not been observed for so long that they count as lost: a file
// system hangs, or a runtime does not report the location of its images. A signal that the node
// does not have is not lost. Nor is the signal of the cgroup above all pods, because that cgroup
// appears with the first pod.
func (m *Manager) Lost(now time.Time) []Lost { return m.watch.lost(now) }

// Need returns the node's state by a signal of memory, as last observed.
func (m *Manager) Need(now time.Time, signal stats.Signal) Need {
	return m.watch.need(now, signal, m.lastCheap.Node.Swap.TotalBytes.V)
}

// HardBytes returns the highest hard threshold of memory.available, in bytes, for a node with that
// memory capacity; 0 without such a threshold.
func (m *Manager) HardBytes(capacity uint64) uint64 { return m.config.hardBytes(capacity) }

// LooksShort reports whether memory.available is below a threshold by a reading of the node. The
// caller then reads the amounts that a cheap look omits before it calls Observe.
func (m *Manager) LooksShort(node *stats.NodeStats) bool { return m.watch.near(node) == Short }

// Unexplained returns why no pod is evicted for the disks whose shortage pods do not explain; empty
// if there is no such disk.
func (m *Manager) Unexplained() string { return m.explain.reasons(&m.watch) }

// Life returns the eviction of a pod that is not over; nil if none exists.
func (m *Manager) Life(uid string) *Life { return m.evictions.life(uid) }

// Lives returns the evictions that are not over, or whose outcome the caller has not acknowledged,
// in the order in which they began or were hastened.
func (m *Manager) Lives() []*Life { return m.evictions.inProgress() }

// SetAside returns the pods that survived a kill, by UID, with the time until which they are ranked
// last.
func (m *Manager) SetAside(now time.Time) map[string]time.Time {
	return m.evictions.history.setAside(now)
}
