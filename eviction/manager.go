package eviction

import (
	"math"
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
	// Replay: readings were recorded, so that none is too old (see stats.Summary.Observe).
	Replay bool
}

// Input is one look, and what goes with it.
type Input struct {
	Summary *stats.Summary // must not be nil; only read during the step
	// Pods are the objects that are known, by UID; without one, what the Summary knows of a pod counts.
	Pods map[string]*Pod
	// Growing are cgroups at the top of the hierarchy and by how much they grew lately, for the breaker to name one. Optional.
	Growing []Growth
	// MemoryOnly: nothing was measured of pods but memory and tasks. Thresholds for anything else ask for nobody in this step, and
	// are none the wiser for it.
	MemoryOnly bool
	// Measuring: what pods take of the disks was measured before they were short. Thresholds for disks ask for nobody yet; what can be
	// reclaimed is.
	Measuring bool
	// ObserveDisks: a kubelet takes care of the disks. Their signals only set conditions: nothing is reclaimed and nobody evicted
	// for them, nor for a pod's own limits on local storage.
	ObserveDisks bool
	// Terse: the Decision has no words, and its eviction points into the Summary, until Words completes it. Such a step allocates
	// nothing: there may be no memory to be had between a threshold that is crossed and the kill.
	Terse bool
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
	scratch scratch             // what a Decision points into
	seen    []Met               // what Observe returned

	before Decision // the step's, as Reclaimed needs it
}

// watched is a threshold and its state.
type watched struct {
	Threshold
	info  signalInfo
	since time.Time         // first observed met, without a break; zero: it is not met
	first stats.Observation // what was observed then
	held  bool              // its grace period was over at the last step, so that it is met until the minimum reclaim is there too
	seen  time.Time         // observation time of the last step

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
	m.config.Policy.texts = map[protection]string{}
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
				w.since, w.first, w.held, w.seen = old[i].since, old[i].first, old[i].held, old[i].seen
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

// Near reports whether less memory is available than so many times a threshold of memory.available.
func (m *Manager) Near(node *stats.NodeStats, times uint64) bool {
	o := m.Memory(node)
	for i := range m.watched {
		w := &m.watched[i]
		if w.Signal != stats.SignalMemoryAvailable || !o.OK {
			continue
		}
		if o.Near(w.Value.Of(o.Capacity), times) || w.held && o.Short(w.enough(o.Capacity)) {
			return true
		}
	}
	return false
}

// Observe is the cheap half of Step: it judges what is known of the node, remembers since when thresholds are met and which
// conditions hold, and returns the thresholds that are met, until it is called again. A signal that was not observed is neither met nor
// unmet: what was known of it stays. It does not allocate.
func (m *Manager) Observe(now time.Time, node *stats.NodeStats) []Met {
	m.cheap.Node = *node
	m.arrange(node)
	m.judge(now, &m.cheap)
	m.settle(now, &m.cheap)
	m.hold(now)
	return m.met(&m.seen)
}

// Conditions of the node that are true, sorted, as of the last Observe or Step. The slice must not be changed.
func (m *Manager) Conditions() []Condition { return m.conditions }

// Asks tells which looks a step would be worth now, by what was last observed: memory, that some threshold asks for a victim whom
// Input.MemoryOnly will find; full, that one asks for whom it will not. What has to wait for evictions under way asks for nothing.
// observeDisks is what Input.ObserveDisks would be.
func (m *Manager) Asks(now time.Time, observeDisks bool) (memory, full bool) {
	var hard, soft bool
	for i := range m.watched {
		w := &m.watched[i]
		if !w.observed.OK || !w.met || observeDisks && w.info.kind.disk() || now.Sub(w.since) < w.Grace || m.blocked(now, w) != "" {
			continue
		}
		switch {
		case !w.info.kind.memoryView():
			full = true
		case w.Hard():
			hard = true
		default:
			soft = true
		}
	}
	return hard || soft && !full, full // a hard threshold for a disk comes before a soft one for memory
}

// Headroom is how much is left of a signal above the nearest threshold that is not met, by what was last observed; without one, or
// while it is not observed, as much as there may be. short: some threshold of it is met.
func (m *Manager) Headroom(signal stats.Signal) (left uint64, short bool) {
	left = math.MaxUint64
	for i := range m.watched {
		w := &m.watched[i]
		switch {
		case w.Signal != signal || !w.observed.OK:
		case w.met:
			short = true
		default:
			left = min(left, w.observed.Left(w.limit))
		}
	}
	return left, short
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

// Met are the thresholds that were met when they were last observed, most urgent first.
func (m *Manager) Met() []Met { return m.met(new([]Met)) }

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

// Stops reports whether the breaker holds back evictions for something that is short: then Input.Growing is worth its price.
func (m *Manager) Stops() bool {
	for _, n := range m.futile {
		if m.config.Breaker && n >= breakerLimit {
			return true
		}
	}
	return false
}

// Follows reports whether steps are needed even while nothing is met: pods' counters tell who causes a pressure only against what
// they were before.
func (m *Manager) Follows() bool { return m.uses != nil }

// Step decides on one look: which conditions hold, what to reclaim first, and who is to be evicted. At most one pod is evicted for
// a threshold, and none while what another one returns is on its way: the next look tells whether it was enough. What becomes of
// a decision is told with Begin, Done and Cleaned.
func (m *Manager) Step(now time.Time, in Input) Decision {
	m.arrange(&in.Summary.Node)
	m.judge(now, in.Summary)
	m.ripen(now, in.MemoryOnly)
	m.settle(now, in.Summary)
	m.remeasure(in)
	if !in.MemoryOnly {
		m.follow(now, in.Summary)
	}
	d := Decision{Time: now, Conditions: m.hold(now), Met: m.met(&m.scratch.met)}
	m.before = Decision{}
	if d.Evictions = m.offenders(now, in); len(d.Evictions) > 0 { // as the kubelet: look again before anything else
		d.Reason = "pods exceed their own limits on local storage"
		return d
	}
	if d.Met == nil {
		return d
	}
	if !in.ObserveDisks && !in.MemoryOnly {
		m.wish(&d)
	}
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
		w.due = o.OK && o.Short(w.enough(o.Capacity))
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
