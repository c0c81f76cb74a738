package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/stats"
)

// What the socket serves is api's.
type (
	State          = api.State
	RuntimeState   = api.RuntimeState
	ConditionState = api.ConditionState
	SignalState    = api.SignalState
	MetState       = api.MetState
	PodCount       = api.PodCount
	UnderwayState  = api.UnderwayState
	AsideState     = api.AsideState
	Evicted        = api.Evicted
	HeadroomState  = api.HeadroomState
	LimitState     = api.LimitState
)

// errNoAnswer: the loop is busy or ended.
var errNoAnswer = errors.New("the agent's loop does not answer")

// State asks the loop for its state. It is for other goroutines.
func (a *agent) State(ctx context.Context) (*State, error) {
	reply := make(chan *State, 1)
	select {
	case a.requests <- reply:
		return <-reply, nil
	case <-ctx.Done():
		return nil, errNoAnswer
	}
}

// state is made by the loop.
func (a *agent) state(now time.Time) *State {
	s := &State{
		Time: now, Version: a.o.Version, Runtime: RuntimeState{Endpoint: a.Client.Endpoint(), Lost: a.lost}, Kubelet: a.kubelet, Disk: a.diskMode(), DryRun: a.o.DryRun,
		Pods: PodCount{Runtime: len(a.pods), Objects: len(a.objects), Clients: a.store.Snapshot().Clients}, Evicted: slices.Clone(a.history), Stopped: a.stopped, Errors: map[string]string{}, Headroom: a.headroomAdvice(), Looks: a.looks,
		Conditions: []ConditionState{}, Signals: []SignalState{}, Met: []MetState{}, Underway: []UnderwayState{}, SetAside: []AsideState{},
	}
	for source, text := range a.blind {
		s.Errors[source] = text
	}
	for _, c := range eviction.Conditions {
		is := a.conditions[c]
		out := ConditionState{Type: api.Condition(c), Status: is.status, Reason: c.Reason(is.status)}
		if !is.since.IsZero() {
			out.LastTransitionTime = &is.since
		}
		s.Conditions = append(s.Conditions, out)
	}
	a.signals(s)
	s.AtOwnLimit = a.atOwnLimit(now)
	for _, m := range a.manager.Met() {
		s.Met = append(s.Met, MetState{
			Signal: m.Threshold.Signal, Observed: m.ObservedText(), Threshold: m.LimitText(), Since: m.Since, Message: m.AttemptingToReclaim(),
		})
	}
	for _, u := range a.underway {
		e := &u.eviction
		s.Underway = append(s.Underway, UnderwayState{
			Pod: e.Pod.PodRef, Signal: e.Signal, GracePeriodSeconds: e.GracePeriodSeconds, Message: e.Message, Began: u.began,
			Dead: !u.emptied.IsZero(), Cleaned: !u.cleaned.IsZero(),
		})
	}
	slices.SortFunc(s.Underway, func(x, y UnderwayState) int {
		return cmp.Or(x.Began.Compare(y.Began), cmp.Compare(x.Pod.UID, y.Pod.UID))
	})
	for uid, until := range a.manager.SetAside(now) {
		s.SetAside = append(s.SetAside, AsideState{UID: uid, Until: until})
	}
	slices.SortFunc(s.SetAside, func(x, y AsideState) int { return cmp.Compare(x.UID, y.UID) })
	return s
}

func (a *agent) signals(s *State) {
	at := map[stats.Signal]int{}
	for _, t := range a.o.Config.Thresholds {
		i, ok := at[t.Signal]
		if !ok {
			o := a.manager.Observed(t.Signal)
			out := SignalState{Signal: t.Signal, Observed: o.OK, Available: o.Available, Capacity: o.Capacity, Reason: o.Reason}
			if o.OK && !o.Time.IsZero() {
				out.Time = &o.Time
			}
			i = len(s.Signals)
			at[t.Signal], s.Signals = i, append(s.Signals, out)
		}
		text := t.String()
		if t.Grace > 0 {
			text += " for " + t.Grace.String()
		}
		s.Signals[i].Threshold = append(s.Signals[i].Threshold, text)
	}
}
