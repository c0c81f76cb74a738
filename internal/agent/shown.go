package agent

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/evictions"
	"jettison/internal/repeat"
	"jettison/stats"
)

// publishSoonest is the time between two States that are published. At the least one is each second; after stale the loop hangs, and what
// it told last is no answer.
const (
	publishSoonest = 20 * time.Millisecond
	stale          = 10 * time.Second
)

// shown is what others see of the loop: conditions in the log, and the State.
type shown struct {
	version, endpoint string
	dryRun            bool

	states    map[eviction.Condition]conditionState // as last logged
	stopped   string                                // why the breaker holds back; empty: it does not
	dirty     bool                                  // the State has changed since it was published
	published time.Time

	state atomic.Pointer[api.State] // what it points to never changes; nil: there is none yet
}

// conditionState is a condition of the node as it was last logged.
type conditionState struct {
	status bool
	since  time.Time // zero: it was never true
}

func newShown(o Options, endpoint string) *shown {
	return &shown{version: o.Version, endpoint: endpoint, dryRun: o.DryRun, states: map[eviction.Condition]conditionState{}}
}

// forOthers is the State as it was last published; nil: there is none yet, or the loop hangs. It is for any goroutine.
func (s *shown) forOthers() any {
	if state := s.state.Load(); state != nil && time.Since(state.Time) < stale {
		return state
	}
	return nil
}

// changed has the State published at the next turn of the loop.
func (s *shown) changed() { s.dirty = true }

// publish makes a new State, where there is something new in it.
func (s *shown) publish(l *loop) {
	now := time.Now()
	if !s.dirty || now.Sub(s.published) < publishSoonest {
		return
	}
	s.dirty, s.published = false, now
	s.state.Store(s.make(now, l))
}

func (s *shown) make(now time.Time, l *loop) *api.State {
	ready := l.manager.Ready(now)
	out := &api.State{
		Time: now, Version: s.version, Runtime: api.RuntimeState{Endpoint: s.endpoint, Lost: l.pods.Lost()}, Kubelet: l.kubelet.Found(),
		Disk: l.diskMode(), DryRun: s.dryRun, Conditions: []api.ConditionState{}, Signals: []api.SignalState{}, Met: []api.MetState{},
		Pods:     api.PodCount{Runtime: len(l.pods.All()), Objects: len(l.objects.Pods()), Clients: l.objects.Clients()},
		Underway: l.evictions.Underway(), SetAside: []api.AsideState{}, Evicted: slices.Clone(l.evictions.History()), Stopped: s.stopped,
		Errors: maps.Clone(l.looks.Errors()), Looks: l.looks.Count(), Headroom: l.evictions.Headroom(l.hardBytes()),
		AtOwnLimit: l.wakes.AtLimit(now),
	}
	for _, c := range eviction.Conditions {
		is := s.states[c]
		state := api.ConditionState{Type: api.Condition(c), Status: is.status, Reason: c.Reason(is.status)}
		if !is.since.IsZero() {
			state.LastTransitionTime = &is.since
		}
		out.Conditions = append(out.Conditions, state)
	}
	for _, signal := range l.manager.Signals() {
		out.Signals = append(out.Signals, signalState(signal.Signal, signal.Observed, signal.Thresholds))
	}
	for _, m := range ready.Met {
		out.Met = append(out.Met, api.MetState{
			Signal: m.Threshold.Signal, Observed: m.ObservedText(), Threshold: m.LimitText(), Since: m.Since, Message: m.AttemptingToReclaim(),
		})
	}
	for uid, until := range l.manager.SetAside(now) {
		out.SetAside = append(out.SetAside, api.AsideState{UID: uid, Until: until})
	}
	slices.SortFunc(out.SetAside, func(x, y api.AsideState) int { return cmp.Compare(x.UID, y.UID) })
	return out
}

func signalState(signal stats.Signal, o stats.Observation, thresholds []string) api.SignalState {
	out := api.SignalState{
		Signal: signal, Observed: o.OK, Available: o.Value, Capacity: o.Capacity, Reason: o.Reason, Threshold: thresholds,
	}
	if o.OK && !o.Time.IsZero() {
		out.Time = &o.Time
	}
	return out
}

// conditions logs each condition that has become true or is not any more, with the kubelet's reasons.
func (s *shown) conditions(now time.Time, log *repeat.Logger, held []eviction.Condition, met []eviction.Met) {
	for _, c := range eviction.Conditions {
		status := slices.Contains(held, c)
		if status == s.states[c].status {
			continue
		}
		s.states[c] = conditionState{status, now}
		s.dirty = true
		fields := []any{"condition", c, "status", status, "reason", c.Reason(status), "event", c.Event(status)}
		for _, m := range met {
			if m.Condition() == c {
				fields = append(fields, evictions.SignalFields(m)...)
				break
			}
		}
		log.Info("condition", fields...)
	}
}

// breaker logs once that evictions were stopped, and once that they are not any more.
func (s *shown) breaker(log *repeat.Logger, d *eviction.Decision) {
	switch {
	case d.Stopped && s.stopped == "":
		log.Error("evictions are stopped: they did not help", "reason", d.Reason)
		s.stopped = d.Reason
	case d.Stopped:
		s.stopped = d.Reason
	case s.stopped != "" && len(d.Evictions) > 0:
		log.Info("evictions go on")
		s.stopped = ""
	}
}
