package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// Watches reports whether some threshold is for a signal.
func (m *Manager) Watches(signal stats.Signal) bool {
	return slices.ContainsFunc(m.config.Thresholds, func(t Threshold) bool { return t.Signal == signal })
}

// Memory is the observation that memory thresholds are judged by.
func (m *Manager) Memory(node *stats.NodeStats) stats.Observation {
	return node.Memory.Available(m.config.MemoryAvailable)
}

// Observed is what was last observed of a signal that some threshold is for.
func (m *Manager) Observed(signal stats.Signal) (o stats.Observation) {
	for i := range m.watched {
		if m.watched[i].Signal == signal {
			return m.watched[i].observed
		}
	}
	return o
}

// watchedBy is the threshold that an eviction is for; nil: there is none, as for a pod's own limit.
func (m *Manager) watchedBy(e *Eviction, t *Threshold) *watched {
	for i := range m.watched {
		if w := &m.watched[i]; w.Signal == e.Signal && w.Hard() == t.Hard() {
			return w
		}
	}
	return nil
}

// observedBy is what was last observed by the threshold that an eviction is for. Others for its signal may have another window.
func (m *Manager) observedBy(e *Eviction, t *Threshold) stats.Observation {
	if w := m.watchedBy(e, t); w != nil {
		return w.observed
	}
	return m.Observed(e.Signal)
}

// SignalState is what was last observed of a signal, and the thresholds for it in words.
type SignalState struct {
	Signal     stats.Signal
	Observed   stats.Observation
	Thresholds []string
	Limits     []uint64 // of each, in the signal's unit; nil: the capacity is not known
}

// Signals are those that some threshold is for, in the order of the configuration.
func (m *Manager) Signals() (out []SignalState) {
	for i := range m.config.Thresholds {
		t := &m.config.Thresholds[i]
		at := slices.IndexFunc(out, func(s SignalState) bool { return s.Signal == t.Signal })
		if at < 0 {
			at = len(out)
			out = append(out, SignalState{Signal: t.Signal, Observed: m.Observed(t.Signal)})
		}
		out[at].Thresholds = append(out[at].Thresholds, t.Text())
		if o := &out[at].Observed; o.OK {
			out[at].Limits = append(out[at].Limits, t.Value.Of(o.Capacity))
		}
	}
	return out
}

// Lost is a signal that some threshold is for and that is not observed any more, so that the threshold does nothing.
type Lost struct {
	Signal stats.Signal
	Reason string
}

// Lost are the signals that have not been observed for so long that they count as lost: a file system that hangs, a runtime that does not
// tell where its images are. What the node does not have is not lost, and the cgroup above all pods comes with the first one.
func (m *Manager) Lost(now time.Time) (out []Lost) {
	for i := range m.watched {
		w := &m.watched[i]
		long := !w.unseen.IsZero() && now.Sub(w.unseen) >= stats.MaxAge
		known := slices.ContainsFunc(out, func(l Lost) bool { return l.Signal == w.Signal })
		if long && !known && w.Signal != stats.SignalAllocatableMemoryAvailable && m.Watches(w.Signal) {
			out = append(out, Lost{w.Signal, w.observed.Reason})
		}
	}
	return out
}

// SetAside are the pods that were killed and did not die, by UID, and until when they are ranked last.
func (m *Manager) SetAside(now time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for uid, a := range m.aside {
		if now.Before(a.until) {
			out[uid] = a.until
		}
	}
	return out
}
