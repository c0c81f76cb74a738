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
	// Explain: no pod goes at once for a disk where what pods hold does not explain what it lost (explain.go).
	Explain bool
	// Replay: readings were recorded, so that none is too old (see stats.Summary.Observe).
	Replay bool
}

// Input is one look, and what goes with it.
type Input struct {
	Summary *stats.Summary // must not be nil; only read during the step
	// Pods are the objects that are known, by UID; without one, what the Summary knows of a pod counts.
	Pods map[string]*Pod
	// Foreign: the Summary is a kubelet's, or was written by hand. Which pods there are beside those in it, and which volumes lie on the
	// node's disk, is what objects say. What the agent itself looks at, kernel and runtime have, and it measures local volumes only.
	Foreign bool
	// Growing are cgroups at the top of the hierarchy and by how much they grew lately, for the breaker to name one. Optional.
	Growing []Growth
	// MemoryOnly: nothing was measured of pods but memory and tasks. Thresholds for anything else ask for no victim in this step,
	// and are none the wiser for it.
	MemoryOnly bool
	// Measuring: what pods take of the disks was measured before they were short. Thresholds for disks ask for no victim yet; what can be
	// reclaimed is.
	Measuring bool
	// ObserveDisks: a kubelet takes care of the disks. Their signals only set conditions: nothing is reclaimed and no pod evicted
	// for them, nor for a pod's own limits on local storage.
	ObserveDisks bool
	// Terse: the Decision has no words, and its eviction points into the Summary, until Words completes it. Such a step allocates
	// nothing: there may be no memory to be had between a threshold that is crossed and the kill.
	Terse bool
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

	lives       []*Life             // evictions that are not forgotten, in the order in which they were begun or hastened
	aside       map[string]setAside // by pod UID
	evicted     map[string]evicted  // by pod UID
	breakers    map[breakerKey]breaker
	diskCleaned time.Time // when the last victim's files were removed
	relief      lastRelief
	explain     explaining
	pool        sharedPool // what evictions that are not settled have in shared memory

	situation Situation
	foreign   bool                    // Input.Foreign of the last step
	lastLook  Look                    // of the last step
	lastFull  time.Time               // when a full one was made last
	fruitless [LookFull + 1]time.Time // when each was made last, if no eviction was begun after it

	uses            map[useKey]*podUse // nil: no pressure threshold is set
	pressed         pressed
	order           []int         // scratch: indices of watched that ask for a victim, most urgent first
	cheap           stats.Summary // the node as last observed; its memory as of the last step
	scratch         scratch       // what a Decision points into
	seen            []Met         // what Ready returned, as the next two
	known, finished []*Life

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
	together
	unseen time.Time // since when it has not been observed; zero: it is, or the node does not have it
	raised time.Time // when it was last met; zero: never
	read   time.Time // when it was last observed; zero: never

	// Of the current look.
	observed stats.Observation
	limit    uint64
	met      bool
	due      bool // met, its grace period is over, and it was observed anew
	asked    bool // something is being reclaimed for it
}

// atOnce is how many evictions Ready has room for from the start, so that it does not allocate between a crossing and its kill.
const atOnce = 16

// NewManager makes a manager that has seen nothing yet.
func NewManager(c Config) *Manager {
	m := &Manager{config: c, aside: map[string]setAside{}, evicted: map[string]evicted{}, breakers: map[breakerKey]breaker{}}
	m.known, m.finished = make([]*Life, 0, atOnce), make([]*Life, 0, atOnce)
	m.config.Policy.texts = map[protection]string{}
	m.watch(c.Thresholds)
	m.usePressure()
	return m
}

// usePressure has it noted what each pod suffers, where a threshold is for pressure.
func (m *Manager) usePressure() {
	for i := range m.watched {
		if m.watched[i].info.kind.pressure() && m.uses == nil {
			m.uses = map[useKey]*podUse{}
		}
	}
}

// watch takes thresholds; those that were watched already keep their state, whatever their values and grace periods were.
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
			if old[i].Threshold.same(&t) {
				threshold, info := w.Threshold, w.info
				w = old[i]
				w.Threshold, w.info = threshold, info
			}
		}
		m.watched = append(m.watched, w)
	}
	m.order = make([]int, 0, len(m.watched))
}

// Step decides on one look: which conditions hold, what to reclaim first, and who is to be evicted. At most one pod is evicted for
// a threshold, and none while what another one returns is on its way: the next look tells whether it was enough. What becomes of
// a decision is told with Begin and the events of its Life.
func (m *Manager) Step(now time.Time, in Input) Decision {
	look := LookFull
	if in.MemoryOnly {
		look = LookMemory
	}
	m.looked(now, look)
	m.foreign = in.Foreign
	m.cheap.Node.Memory, m.cheap.Node.Pods = in.Summary.Node.Memory, in.Summary.Node.Pods
	m.arrange(&in.Summary.Node)
	m.judge(now, in.Summary)
	m.ripen(now, in.MemoryOnly)
	m.part(now, in)
	m.settle(now, in.Summary)
	m.remeasure(in)
	m.lookAtQuiet(now, in)
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
// each by the signal that it was for. Conditions and what is met are as before the reclaim; pods are ranked by the new look, and messages
// have its figures. (The kubelet ranks by the look before the reclaim and writes that one's figures.)
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
	m.lookAgain(now, in.Summary)
	for _, i := range m.order {
		w := &m.watched[i]
		o := m.observe(now, in.Summary, w)
		w.due = o.OK && o.Short(w.enough(o.Capacity)) // not observed is no reason to kill
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

// lookAgain notes what is observed in the middle of a step, of thresholds that ask for nothing too: what a victim has returned is judged by
// all of its signal, and a soft one must not have a hard one wait by what was seen before.
func (m *Manager) lookAgain(now time.Time, s *stats.Summary) {
	for i := range m.watched {
		w := &m.watched[i]
		if o := m.observe(now, s, w); o.OK {
			w.observed, w.limit = o, w.Value.Of(o.Capacity)
		}
	}
}
