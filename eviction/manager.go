package eviction

import (
	"time"

	"jettison/stats"
)

// Config of a Manager.
type Config struct {
	// Thresholds as Settings.Parse made them. Those of containerfs are derived from the others once the layout is known.
	Thresholds      []Threshold
	MemoryAvailable stats.MemoryAvailable
	Policy          Policy
	// MaxPodGracePeriodSeconds bounds the grace period of evictions for soft thresholds; the pod's own counts where it is shorter.
	MaxPodGracePeriodSeconds int64
	// PressureTransitionPeriod is how long a condition stays true after it was last observed.
	PressureTransitionPeriod time.Duration
	// LocalStorage enforces pods' own limits on local storage (localStorageCapacityIsolation).
	LocalStorage bool
	// Breaker stops evictions after three that did not lower the pressure.
	Breaker bool
	// MaxAge is the age at which a reading of memory, swap or tasks is no observation any more; 0: none is too old. Those of
	// file systems have the limit of their source, and one without a time has no age.
	MaxAge time.Duration
}

// Input is one look, and what goes with it.
type Input struct {
	Summary *stats.Summary // must not be nil; only read during the step
	// Pods are the objects that are known, by UID; without one, what the Summary knows of a pod counts.
	Pods map[string]*Pod
	// Growing are cgroups at the top of the hierarchy and by how much they grew lately, for the breaker to name one. Optional.
	Growing []Growth
}

// Growth of a cgroup.
type Growth struct {
	Cgroup string // path below the root
	Bytes  int64  // memory that it uses more than before
}

// Manager decides. It remembers since when thresholds are met, who is being evicted, and who would not die. It is for one
// goroutine. The zero value is not usable; see NewManager.
type Manager struct {
	config  Config
	layout  stats.Opt[stats.Layout] // as last known
	watched []watched

	conditionAt [5]time.Time // last observed, by the index in Conditions; zero: never
	conditions  []Condition  // as last reported
	reported    uint8        // the same, as bits

	pending []*pending
	aside   map[string]setAside // by pod UID
	evicted map[string]evicted  // by pod UID
	futile  [kinds]int          // evictions in a row that did not lower the pressure
	uses    map[string]*podUse  // by pod UID; nil: no pressure threshold is set
	order   []int               // scratch: indices of watched that ask for a victim, most urgent first
	cheap   stats.Summary       // scratch of Observe

	before Decision // the step's, as Reclaimed needs it
}

// watched is a threshold and its state.
type watched struct {
	Threshold
	info  signalInfo
	since time.Time // first observed met, without a break; zero: it is not met
	held  bool      // its grace period was over at the last step, so that it is met until the minimum reclaim is there too
	seen  time.Time // observation time of the last step

	// Of the current look.
	observed stats.Observation
	limit    uint64
	met      bool
	due      bool // met, its grace period is over, and it was observed anew
	asked    bool // something is being reclaimed for it
}

// NewManager makes a manager that has seen nothing yet.
func NewManager(c Config) *Manager {
	m := &Manager{config: c, aside: map[string]setAside{}, evicted: map[string]evicted{}}
	m.watch(c.Thresholds)
	for i := range m.watched {
		if m.watched[i].info.kind.pressure() {
			m.uses = map[string]*podUse{}
		}
	}
	return m
}

// watch takes thresholds; those that were watched already keep their state.
func (m *Manager) watch(thresholds []Threshold) {
	old := m.watched
	m.watched = nil
	for _, t := range thresholds {
		info, ok := signals[t.Signal]
		if !ok {
			continue // Parse makes none
		}
		w := watched{Threshold: t, info: info}
		for i := range old {
			if old[i].Signal == t.Signal && old[i].Grace == t.Grace {
				w.since, w.held, w.seen = old[i].since, old[i].held, old[i].seen
			}
		}
		m.watched = append(m.watched, w)
	}
	m.order = make([]int, 0, len(m.watched))
}

// Memory is the observation that memory thresholds are judged by.
func (m *Manager) Memory(node *stats.NodeStats) stats.Observation {
	return node.Memory.Available(m.config.MemoryAvailable)
}

// Near reports whether less memory is available than so many times a threshold.
func (m *Manager) Near(node *stats.NodeStats, times uint64) bool {
	o := m.Memory(node)
	for i := range m.watched {
		if w := &m.watched[i]; w.Signal == stats.SignalMemoryAvailable && o.OK && o.Available/times < w.Value.Of(o.Capacity) {
			return true
		}
	}
	return false
}

// Observe is the cheap half of Step: it judges what is known of the node, remembers since when thresholds are met and returns those
// that are. A signal that was not observed is neither met nor unmet: what was known of it stays.
func (m *Manager) Observe(now time.Time, node *stats.NodeStats) []Met {
	m.cheap.Node = *node
	m.judge(now, &m.cheap)
	return m.met()
}

// Step decides on one look: which conditions hold, what to reclaim first, and who is to be evicted. At most one pod is evicted for
// a threshold, and none while what another one returns is on its way: the next look tells whether it was enough. What becomes of
// a decision is told with Begin, Done and Cleaned.
func (m *Manager) Step(now time.Time, in Input) Decision {
	m.arrange(&in.Summary.Node)
	m.judge(now, in.Summary)
	m.ripen(now)
	m.settle(now, in.Summary)
	m.follow(now, in.Summary)
	d := Decision{Time: now, Conditions: m.hold(now), Met: m.met()}
	m.before = Decision{}
	if d.Evictions = m.offenders(now, in); len(d.Evictions) > 0 { // as the kubelet: look again before anything else
		d.Reason = "pods exceed their own limits on local storage"
		return d
	}
	if d.Met == nil {
		return d
	}
	m.wish(&d)
	m.decide(now, in, &d, false)
	if len(d.Reclaim) > 0 {
		m.before = d
	}
	return d
}

// Reclaimed is the second half of a step whose Decision had wishes: it decides on a look taken after they were carried out,
// each by the signal that it was for. Conditions and what is met are as before the reclaim, and so are the figures in messages,
// as the kubelet has them; pods are ranked by the new look.
func (m *Manager) Reclaimed(now time.Time, in Input) Decision {
	d, hadVictim := m.before, len(m.before.Evictions) > 0
	m.before = Decision{}
	d.Reclaim, d.Evictions, d.Ranking, d.Protected, d.Signal, d.Reason = nil, nil, nil, nil, Met{}, ""
	if len(d.Met) == 0 {
		d.Time = now
		return d
	}
	if hadVictim {
		d.Reason = "one victim a step"
		return d
	}
	for _, i := range m.order {
		w := &m.watched[i]
		o := m.observe(now, in.Summary, w)
		// Not observed is no reason to kill. What asks for a victim stays as it was observed before, for the message.
		w.due = o.OK && (w.info.kind.pressure() && o.Available > w.limit || !w.info.kind.pressure() && o.Available < m.enough(w, o.Capacity))
		switch {
		case w.asked && !o.OK:
			d.Reason = "it is not known what was reclaimed for " + string(w.Signal)
		case w.asked && !w.due:
			d.Reason = "what was reclaimed is enough for " + string(w.Signal)
		}
	}
	m.decide(now, in, &d, true)
	return d
}
