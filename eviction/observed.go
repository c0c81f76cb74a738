package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// Watches reports whether some threshold is for a signal.
func (m *Manager) Watches(signal stats.Signal) bool { return m.config.watches(signal) }

func (c *Config) watches(signal stats.Signal) bool {
	return slices.ContainsFunc(c.Thresholds, func(t Threshold) bool { return t.Signal == signal })
}

// Memory is the observation that memory thresholds are judged by.
func (m *Manager) Memory(node *stats.NodeStats) stats.Observation {
	return node.Memory.Available(m.config.MemoryAvailable)
}

// Observed is what was last observed of a signal that some threshold is for.
func (m *Manager) Observed(signal stats.Signal) stats.Observation {
	return m.watch.observedOf(
		signal)
}

// SignalState is what was last observed of a signal, and the thresholds for it in words.
type SignalState struct {
	Signal     stats.Signal
	Observed   stats.Observation
	Thresholds []string
	Limits     []uint64 // of each, in the signal's unit; nil: the capacity is not known
}

// Signals are those that some threshold is for, in the order of the configuration.
func (m *Manager) Signals() []SignalState { return m.watch.states() }

// Lost is a signal that some threshold is for and that is not observed any more, so that the
// threshold does nothing.
type Lost struct {
	Signal stats.Signal
	Reason string
}

// Lost are the signals that have not been observed for so long that they count as lost: a file
// system that hangs, a runtime that does not tell where its images are. What the node does not have
// is not lost, and the cgroup above all pods comes with the first one.
func (m *Manager) Lost(now time.Time) []Lost { return m.watch.lost(now) }

// Need is how the node stands by a signal of memory, by what was last observed.
func (m *Manager) Need(now time.Time, signal stats.Signal) Need {
	return m.watch.need(now, signal, m.cheap.Node.Swap.TotalBytes.V)
}

// HardBytes is the highest hard threshold of memory.available on a node with so much memory; 0:
// there is none.
func (m *Manager) HardBytes(capacity uint64) uint64 { return m.config.hardBytes(capacity) }

// LooksShort reports whether memory.available is below a threshold by what was read of a node: then
// what a cheap look does not count is worth being read before it is observed.
func (m *Manager) LooksShort(node *stats.NodeStats) bool { return m.watch.near(node) == Short }

// Unexplained says of the disks that are short and for which no pod goes, since pods do not explain
// it, why; empty: there is none.
func (m *Manager) Unexplained() string { return m.explain.reasons(&m.watch) }

// Life is the eviction of a pod that is not over; nil: there is none.
func (m *Manager) Life(uid string) *Life { return m.evictions.life(uid) }

// Lives are the evictions that are not over, or whose outcome is still to be told, in the order in
// which they were begun or hastened.
func (m *Manager) Lives() []*Life { return m.evictions.open() }

// SetAside are the pods that were killed and did not die, by UID, and until when they are ranked
// last.
func (m *Manager) SetAside(now time.Time) map[string]time.Time {
	return m.evictions.history.setAside(now)
}
