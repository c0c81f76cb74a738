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

// The loop publishes a State after a change, at most every publishInterval, and on request if the
// last one is older than maxStateAge. It does not publish each second, which would be most of the
// agent's allocations at rest. A loop that does not answer within stateWait hangs.
const (
	publishInterval = 20 * time.Millisecond
	maxStateAge     = time.Second
	stateWait       = 2 * time.Second
)

// publisher publishes the loop's conditions to the log, and its State to readers.
type publisher struct {
	version, endpoint string
	dryRun            bool

	states        map[eviction.Condition]conditionState // as last logged
	breakerReason string                                // why the breaker is open; empty: closed
	dirty         bool                                  // the State changed since its publication
	published     time.Time

	began time.Time
	// kubelet: a kubelet is on this node, as last published. True until known.
	kubelet atomic.Bool
	beat    atomic.Int64 // the loop's last turn, in nanoseconds since began; 0: it does not run

	requests chan struct{}               // one slot: a newer State is requested
	last     atomic.Pointer[publication] // never nil

	outlook outlook // set by the builder
}

// publication is a published State. It is immutable.
type publication struct {
	state *api.State    // nil: none yet
	now   *metrics.Now  // additional values for metrics; nil: none yet
	next  chan struct{} // closed when a newer one is published
}

// conditionState is a condition of the node as last logged.
type conditionState struct {
	status bool
	since  time.Time // zero: it was never true
}

func newPublisher(o Options, endpoint string) *publisher {
	s := &publisher{
		version: o.Version, endpoint: endpoint, dryRun: o.DryRun,
		states: map[eviction.Condition]conditionState{}, requests: make(chan struct{}, 1),
		began: time.Now(),
	}
	s.kubelet.Store(true)
	s.last.Store(&publication{next: make(chan struct{})})
	return s
}

// currentState returns the current State; nil before the first one, or if the loop hangs. It is
// safe for concurrent use.
func (s *publisher) currentState() any {
	if p := s.ask(); p != nil {
		return p.state
	}
	return nil
}

// latest returns the current publication, or the last one if the loop hangs. Its state is nil if
// nothing was published yet.
func (s *publisher) latest() *publication {
	if _, _, runs := s.lastTurn(); runs {
		if p := s.ask(); p != nil {
			return p
		}
	}
	return s.last.Load()
}

// ask returns the current publication; nil before the first one, or if the loop hangs.
func (s *publisher) ask() *publication {
	p := s.last.Load()
	if p.state != nil && time.Since(p.state.Time) < maxStateAge {
		return p
	}
	select {
	case s.requests <- struct{}{}:
	default: // a request is pending
	}
	if !retry.Await(p.next, stateWait) {
		return nil
	}
	return s.last.Load()
}

// recordTurn records a turn of the loop, recordEnd the end of the loop.
func (s *publisher) recordTurn() { s.beat.Store(int64(time.Since(s.began)) | 1) }

func (s *publisher) recordEnd() { s.beat.Store(0) }

// notRunning is the reason while the loop does not turn.
const notRunning = "the loop is not running: the agent waits for the container runtime's first " +
	"answer, reads the node for the first time, or is stopping"

// lastTurn returns the time since the loop's last turn; if it does not run, ok is false and why the
// reason. It is safe for concurrent use.
func (s *publisher) lastTurn() (ago time.Duration, why string, ok bool) {
	beat := s.beat.Load()
	if beat == 0 {
		return 0, notRunning, false
	}
	return max(time.Since(s.began)-time.Duration(beat), 0), "", true
}

// markChanged makes the next turn of the loop publish a State.
func (s *publisher) markChanged() { s.dirty = true }

// publishNow requests a publication without delay.
func (s *publisher) publishNow() { s.dirty, s.published = true, time.Time{} }

// publish publishes a new State if it changed.
func (s *publisher) publish(l *loop) {
	now := time.Now()
	if !s.dirty || now.Sub(s.published) < publishInterval {
		return
	}
	s.dirty, s.published = false, now
	ready := l.manager.Ready(now)
	p := &publication{
		state: s.make(now, l, &ready), now: l.currentMetrics(now, &ready), next: make(chan struct{}),
	}
	p.now.State = p.state
	s.kubelet.Store(p.state.Kubelet)
	before := s.last.Swap(p)
	close(before.next)
}

func (s *publisher) make(now time.Time, l *loop, ready *eviction.Ready) *api.State {
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
		Load:       apiconvert.Load(l.looks.Node()),
		InProgress: l.evictions.InProgress(), SetAside: []api.AsideState{},
		Evicted: slices.Clone(l.evictions.History()), BreakerOpen: s.breakerReason,
		Errors: maps.Clone(l.looks.Errors()), Looks: l.looks.Count(),
		Headroom:   l.evictions.Headroom(l.hardBytes()),
		AtOwnLimit: l.wakes.AtLimit(now), Unexplained: l.manager.Unexplained(), Gate: l.gate.state(now),
		Config: l.upkeep.reload.State(),
	}
	l.nameHolds(out.Gate.Holds)
	l.objects.FillPodCount(now, &out.Pods)
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
		pod, _ := l.evictions.Pod(uid)
		out.SetAside = append(out.SetAside, api.AsideState{UID: uid, Pod: pod, Until: until})
	}
	slices.SortFunc(out.SetAside, func(x, y api.AsideState) int { return cmp.Compare(x.UID, y.UID) })
	return out
}

// logConditions logs each condition that changed, with the kubelet's reasons.
func (s *publisher) logConditions(now time.Time, log *logthrottle.Logger, held []eviction.Condition,
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
		//log: A condition of the node, such as MemoryPressure, changed to the given status. The keys give
		//  the kubelet's reason and event.
		log.Info("condition changed", append(fields, api.EventCondition.Attr())...)
	}
}

// logBreaker logs when the circuit breaker opens or closes.
func (s *publisher) logBreaker(log *logthrottle.Logger, d *eviction.Decision) {
	switch {
	case d.BreakerOpen && s.breakerReason == "":
		//log: Evictions for a threshold did not help, so the agent stops them for a while. The key reason
		//  gives the evictions and the cgroup that grows instead.
		//do: Find the user of the resource outside of evictable pods, such as a system service or a
		//  protected pod.
		log.Error("circuit breaker opened", api.EventCondition.Attr(), "reason",
			d.Reason)
		s.breakerReason = d.Reason
	case d.BreakerOpen:
		s.breakerReason = d.Reason
	case s.breakerReason != "" && len(d.Evictions) > 0:
		//log: The agent evicts pods again. The next line about an eviction names the threshold.
		log.Info("circuit breaker closed", api.EventCondition.Attr())
		s.breakerReason = ""
	}
}
