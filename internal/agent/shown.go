package agent

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/evictions"
	"jettison/internal/base/logthrottle"
	"jettison/internal/base/retry"
	"jettison/internal/node/apiconvert"
	"jettison/internal/node/metrics"
)

// A State is published when something happened, at most every publishSoonest, and when one is asked
// for and the last is older than fresh. Not each second: at rest that would be most of what the
// agent allocates. A loop that does not answer within stateWait hangs.
const (
	publishSoonest = 20 * time.Millisecond
	fresh          = time.Second
	stateWait      = 2 * time.Second
)

// shown is what others see of the loop: conditions in the log, and the State.
type shown struct {
	version, endpoint string
	dryRun            bool

	states    map[eviction.Condition]conditionState // as last logged
	stopped   string                                // why the breaker holds back; empty: it does not
	dirty     bool                                  // the State has changed since it was published
	published time.Time

	began time.Time
	// kubelet: one is on this node, as last published. Until that is known there is one.
	kubelet atomic.Bool
	beat    atomic.Int64 // when the loop turned last, in nanoseconds since began; 0: it does not run

	asked chan struct{}               // one slot: a newer State is wanted
	last  atomic.Pointer[publication] // never nil

	outlook outlook
}

// publication is a State that was published. It never changes.
type publication struct {
	state *api.State    // nil: none was yet
	now   *metrics.Now  // what metrics say beside it; nil: none was yet
	next  chan struct{} // closed when there is a newer one
}

// conditionState is a condition of the node as it was last logged.
type conditionState struct {
	status bool
	since  time.Time // zero: it was never true
}

func newShown(o Options, endpoint string) *shown {
	s := &shown{
		version: o.Version, endpoint: endpoint, dryRun: o.DryRun,
		states: map[eviction.Condition]conditionState{}, asked: make(chan struct{}, 1),
		began:   time.Now(),
		outlook: newOutlook(),
	}
	s.kubelet.Store(true)
	s.last.Store(&publication{next: make(chan struct{})})
	return s
}

// forOthers is the State as of now, or nearly; nil: there is none yet, or the loop hangs. It is for
// any goroutine.
func (s *shown) forOthers() any {
	if p := s.ask(); p != nil {
		return p.state
	}
	return nil
}

// latest is what was published last, as of now if the loop does not hang. Its state is nil where
// nothing was yet.
func (s *shown) latest() *publication {
	if _, _, runs := s.turned(); runs {
		if p := s.ask(); p != nil {
			return p
		}
	}
	return s.last.Load()
}

// ask is a publication as of now, or nearly; nil: there is none yet, or the loop hangs.
func (s *shown) ask() *publication {
	p := s.last.Load()
	if p.state != nil && time.Since(p.state.Time) < fresh {
		return p
	}
	select {
	case s.asked <- struct{}{}:
	default: // it is wanted already
	}
	if !retry.Await(p.next, stateWait) {
		return nil
	}
	return s.last.Load()
}

// turn tells that the loop turns, ended that it does not any more.
func (s *shown) turn() { s.beat.Store(int64(time.Since(s.began)) | 1) }

func (s *shown) ended() { s.beat.Store(0) }

// notRunning is why the loop does not turn.
const notRunning = "the loop does not run: the agent waits for the container runtime's first answer, " +
	"looks at the node for the first time, or ends"

// turned is how long ago the loop turned last; false: it does not run, and why. It is for any
// goroutine.
func (s *shown) turned() (ago time.Duration, why string, ok bool) {
	beat := s.beat.Load()
	if beat == 0 {
		return 0, notRunning, false
	}
	return max(time.Since(s.began)-time.Duration(beat), 0), "", true
}

// changed has the State published at the next turn of the loop.
func (s *shown) changed() { s.dirty = true }

// wanted has one published at once.
func (s *shown) wanted() { s.dirty, s.published = true, time.Time{} }

// publish makes a new State, where there is something new in it.
func (s *shown) publish(l *loop) {
	now := time.Now()
	if !s.dirty || now.Sub(s.published) < publishSoonest {
		return
	}
	s.dirty, s.published = false, now
	ready := l.manager.Ready(now)
	p := &publication{
		state: s.make(now, l, &ready), now: l.metered(now, &ready), next: make(chan struct{}),
	}
	p.now.State = p.state
	s.kubelet.Store(p.state.Kubelet)
	before := s.last.Swap(p)
	close(before.next)
}

func (s *shown) make(now time.Time, l *loop, ready *eviction.Ready) *api.State {
	out := &api.State{
		Time: now, Version: s.version, Runtime: api.RuntimeState{Endpoint: s.endpoint,
			Lost: l.pods.Unreachable()}, Kubelet: l.kubelet.Found(),
		Disk: l.diskMode(), DryRun: s.dryRun, Conditions: []api.ConditionState{},
		Signals: []api.SignalState{}, Met: []api.MetState{},
		Pods: api.PodCount{
			Runtime: len(l.pods.All()), Objects: len(l.objects.Pods()), Clients: l.objects.Clients(),
			Refused:        l.pods.Oversized(),
			RefusedObjects: l.objects.Refused(), UnknownPriority: l.upkeep.unknown.Count(),
		},
		Load:     apiconvert.Load(l.looks.Node()),
		Underway: l.evictions.InProgress(), SetAside: []api.AsideState{},
		Evicted: slices.Clone(l.evictions.History()), Stopped: s.stopped,
		Errors: maps.Clone(l.looks.Errors()), Looks: l.looks.Count(),
		Headroom:   l.evictions.Headroom(l.hardBytes()),
		AtOwnLimit: l.wakes.AtLimit(now), Unexplained: l.manager.Unexplained(), Gate: l.gate.state(now),
		Config: l.upkeep.reload.State(),
	}
	l.objects.Heard(now, &out.Pods)
	for _, c := range eviction.Conditions {
		is := s.states[c]
		state := api.ConditionState{Type: api.Condition(c), Status: is.status,
			Reason: c.Reason(is.status)}
		if !is.since.IsZero() {
			state.LastTransitionTime = &is.since
		}
		out.Conditions = append(out.Conditions, state)
	}
	for _, signal := range l.manager.Signals() {
		out.Signals = append(out.Signals, apiconvert.Signal(&signal))
	}
	for _, m := range ready.Met {
		out.Met = append(out.Met, api.MetState{
			Signal: m.Threshold.Signal, Observed: m.ObservedText(), Threshold: m.LimitText(), Since: m.Since,
			Message: m.AttemptingToReclaim(),
		})
	}
	for uid, until := range l.manager.SetAside(now) {
		out.SetAside = append(out.SetAside, api.AsideState{UID: uid, Until: until})
	}
	slices.SortFunc(out.SetAside, func(x, y api.AsideState) int { return cmp.Compare(x.UID, y.UID) })
	return out
}

// conditions logs each condition that has become true or is not any more, with the kubelet's
// reasons.
func (s *shown) conditions(now time.Time, log *logthrottle.Logger, held []eviction.Condition,
	met []eviction.Met) {
	for _, c := range eviction.Conditions {
		status := slices.Contains(held, c)
		if status == s.states[c].status {
			continue
		}
		s.states[c] = conditionState{status, now}
		s.dirty = true
		fields := []any{"condition", c, "status", status, "reason", c.Reason(status), "event",
			c.Event(status)}
		for _, m := range met {
			if m.Condition() == c {
				fields = append(fields, evictions.SignalFields(m)...)
				break
			}
		}
		log.Info("condition", append(fields, api.EventCondition.Attr())...)
	}
}

// breaker logs once that evictions were stopped, and once that they are not any more.
func (s *shown) breaker(log *logthrottle.Logger, d *eviction.Decision) {
	switch {
	case d.Stopped && s.stopped == "":
		log.Error("evictions are stopped: they did not help", api.EventCondition.Attr(), "reason",
			d.Reason)
		s.stopped = d.Reason
	case d.Stopped:
		s.stopped = d.Reason
	case s.stopped != "" && len(d.Evictions) > 0:
		log.Info("evictions go on", api.EventCondition.Attr())
		s.stopped = ""
	}
}
