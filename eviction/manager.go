package eviction

import (
	"time"

	"jettison/stats"
)

// Config of a Manager.
type Config struct {
	// Thresholds as returned by Settings.Parse. The thresholds of containerfs are derived from the
	// others once the layout is known.
	Thresholds      []Threshold
	MemoryAvailable stats.MemoryAvailable
	Policy          Policy
	// MaxPodGracePeriodSeconds bounds the grace period of evictions for soft thresholds. If the pod's
	// own grace period is shorter, it applies.
	MaxPodGracePeriodSeconds int64
	// PressureTransitionPeriod is the time that a condition stays true after it was last observed.
	PressureTransitionPeriod time.Duration
	// LocalStorage enforces pods' own limits on local storage (localStorageCapacityIsolation).
	LocalStorage bool
	// Breaker stops evictions after three that did not lower the pressure.
	Breaker bool
	// Explain delays evictions for a disk while pods do not explain its loss (explain.go).
	Explain bool
	// Replay accepts readings of any age, because they were recorded (see stats.Summary.Observe).
	Replay bool
}

// gracePeriod returns the grace period of an eviction in seconds. For a soft threshold it is the
// pod's own, up to the configured maximum.
func (c *Config) gracePeriod(w *watched, object *Pod) int64 {
	if w.Hard() {
		return hardGrace
	}
	seconds := c.MaxPodGracePeriodSeconds
	if object != nil && object.terminationGrace.OK {
		seconds = min(seconds, object.terminationGrace.V)
	}
	return max(seconds, hardGrace)
}

// hardGrace is the grace period of an eviction for a hard threshold
// (pkg/kubelet/eviction/eviction_manager.go immediateEvictionGracePeriodSeconds), and the minimum
// of all grace periods.
const hardGrace = 1

// Manager decides on evictions. It remembers since when thresholds are met, which pods are being
// evicted, and which survived a kill. It must be used by one goroutine only. The zero value is not
// usable; see NewManager.
type Manager struct {
	config *Config // shared with the parts

	// The parts. No part knows the Manager or another part. Input arrives as arguments.
	watch      watchlist
	conditions conditions
	evictions  evictions
	breakers   breakers
	causes     causes
	explain    diskExplainer
	relief     lastRelief
	looks      looks

	lastCheap stats.Summary // the node as last observed, with the memory of the last step
	scratch   scratch       // memory that a Decision points into
	readyMet  []Met         // slice that Ready returned
	firstHalf Decision      // the step's decision, for StepAfterReclaim
	softHold  hold          // of soft thresholds, by a hard one that waits for its reclaim
}

// NewManager returns a manager without any state.
func NewManager(c Config) *Manager {
	c.Policy.texts = map[protection]string{}
	m := &Manager{
		config: &c, watch: watchlist{config: &c}, evictions: newEvictions(&c),
		breakers: breakers{config: &c, byThreshold: map[breakerKey]breaker{}},
	}
	m.watch.setThresholds(c.Thresholds)
	m.causes.enable(m.watch.all)
	return m
}

// Reconfigure applies another configuration from the next step on. The state stays: since when
// thresholds are met (a threshold keeps its identity with another value and grace period),
// conditions, evictions in progress, pods set aside, and the breakers. Applying the current
// configuration changes nothing. c.Replay must not differ from the current value.
func (m *Manager) Reconfigure(c Config) {
	texts := m.config.Policy.texts
	*m.config = c
	clear(texts) // the texts name namespaces of the previous policy
	m.config.Policy.texts = texts
	m.watch.applyConfig()
	m.causes.enable(m.watch.all)
	m.firstHalf = Decision{} // it was for the previous thresholds
}
