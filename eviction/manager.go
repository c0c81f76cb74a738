package eviction

import (
	"time"

	"jettison/stats"
)

// Config of a Manager.
type Config struct {
	// Thresholds as Settings.Parse made them. Those of containerfs are derived from the others once
	// the layout is known.
	Thresholds      []Threshold
	MemoryAvailable stats.MemoryAvailable
	Policy          Policy
	// MaxPodGracePeriodSeconds bounds the grace period of evictions for soft thresholds; the pod's own
	// counts where it is shorter.
	MaxPodGracePeriodSeconds int64
	// PressureTransitionPeriod is how long a condition stays true after it was last observed.
	PressureTransitionPeriod time.Duration
	// LocalStorage enforces pods' own limits on local storage (localStorageCapacityIsolation).
	LocalStorage bool
	// Breaker stops evictions after three that did not lower the pressure.
	Breaker bool
	// Explain: no pod goes at once for a disk where what pods hold does not explain what it lost
	// (explain.go).
	Explain bool
	// Replay: readings were recorded, so that none is too old (see stats.Summary.Observe).
	Replay bool
}

// gracePeriod of an eviction in seconds: for a soft threshold the pod's own, up to the configured
// maximum.
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

// hardGrace is the grace period of an eviction that cannot wait
// (pkg/kubelet/eviction/eviction_manager.go immediateEvictionGracePeriodSeconds), and the least
// there is.
const hardGrace = 1

// Manager decides. It remembers since when thresholds are met, who is being evicted, and who would
// not die. It is for one goroutine. The zero value is not usable; see NewManager.
type Manager struct {
	config *Config // which parts read, too

	// The parts. None knows the Manager or another part: what it needs of one is an argument.
	watch      watchlist
	conditions conditions
	evictions  evictions
	breakers   breakers
	causes     causes
	explain    explaining
	relief     lastRelief
	looks      looks

	cheap   stats.Summary // the node as last observed; its memory as of the last step
	scratch scratch       // what a Decision points into
	seen    []Met         // what Ready returned
	before  Decision      // the step's, as Reclaimed needs it
}

// NewManager makes a manager that has seen nothing yet.
func NewManager(c Config) *Manager {
	c.Policy.texts = map[protection]string{}
	m := &Manager{
		config: &c, watch: watchlist{config: &c}, evictions: newEvictions(&c),
		breakers: breakers{config: &c, by: map[breakerKey]breaker{}},
	}
	m.watch.take(c.Thresholds)
	m.causes.usePressure(m.watch.all)
	return m
}

// Reconfigure has the manager decide by another configuration from the next step on. What it
// remembers stays: since when thresholds are met, for a threshold is the same one whatever its
// value and its grace period become; conditions; evictions that are not over; who is set aside, and
// what the breaker has counted. By the configuration that it has already it decides as if nothing
// had happened. Of c, Replay must be what it was.
func (m *Manager) Reconfigure(c Config) {
	texts := m.config.Policy.texts
	*m.config = c
	clear(texts) // they name namespaces of the policy before
	m.config.Policy.texts = texts
	m.watch.reconfigured()
	m.causes.usePressure(m.watch.all)
	m.before = Decision{} // it was for thresholds as they were
}
