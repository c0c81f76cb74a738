package agent

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"jettison/eviction"
	"jettison/stats"
)

// State is what the agent knows and does, for others to read. It shares nothing with the loop.
type State struct {
	Time       time.Time        `json:"time"`
	Version    string           `json:"version"`
	Runtime    RuntimeState     `json:"runtime"`
	Kubelet    bool             `json:"kubelet"` // one was found on this node
	Disk       string           `json:"disk"`    // act or observe
	DryRun     bool             `json:"dryRun"`
	Conditions []ConditionState `json:"conditions"`
	Signals    []SignalState    `json:"signals"`
	Met        []MetState       `json:"thresholdsMet"`
	Pods       PodCount         `json:"pods"`
	Underway   []UnderwayState  `json:"underway"`
	SetAside   []AsideState     `json:"setAside"`
	Evicted    []Evicted        `json:"evicted"` // the last ones, oldest first
	// Stopped says why evictions are held back; empty: they are not.
	Stopped string            `json:"stopped,omitempty"`
	Errors  map[string]string `json:"errors"` // by source
	Looks   uint64            `json:"looks"`  // cheap ones that were made since the start
	// Headroom is what a hard threshold of memory.available should leave.
	Headroom HeadroomState `json:"headroom"`
	// AtOwnLimit are the pods that have hit a memory limit of their own within the last seconds.
	AtOwnLimit []LimitState `json:"atOwnLimit"`
}

// LimitState is a pod that is at a memory limit of its own.
type LimitState struct {
	Pod   stats.PodReference `json:"pod"`
	Since time.Time          `json:"since"`
}

// RuntimeState is how the container runtime answers.
type RuntimeState struct {
	Endpoint string `json:"endpoint"`
	Lost     bool   `json:"lost"`
}

// ConditionState is a condition of the node.
type ConditionState struct {
	Type               eviction.Condition `json:"type"`
	Status             bool               `json:"status"`
	Reason             string             `json:"reason"`
	LastTransitionTime *time.Time         `json:"lastTransitionTime,omitempty"` // absent: none since the agent started
}

// SignalState is what was last observed of a signal that some threshold is for.
type SignalState struct {
	Signal    stats.Signal `json:"signal"`
	Observed  bool         `json:"observed"`
	Available uint64       `json:"available"` // 0 and meaningless unless observed
	Capacity  uint64       `json:"capacity"`
	Time      *time.Time   `json:"time,omitempty"`
	Reason    string       `json:"reason,omitempty"` // why it is not observed
	Threshold []string     `json:"thresholds"`
}

// MetState is a threshold that is met.
type MetState struct {
	Signal    stats.Signal `json:"signal"`
	Observed  string       `json:"observed"`
	Threshold string       `json:"threshold"`
	Since     time.Time    `json:"since"`
	Message   string       `json:"message"` // of the node event EvictionThresholdMet
}

// PodCount is how many pods are known.
type PodCount struct {
	Runtime int `json:"runtime"` // that the runtime listed
	Objects int `json:"objects"` // that a client or a manifest told of
	Clients int `json:"clients"` // of those, that only clients told of
}

// UnderwayState is an eviction that is not over.
type UnderwayState struct {
	Pod                stats.PodReference `json:"pod"`
	Signal             stats.Signal       `json:"signal"`
	GracePeriodSeconds int64              `json:"gracePeriodSeconds"`
	Message            string             `json:"message"`
	Began              time.Time          `json:"began"`
	Dead               bool               `json:"dead"`
	Cleaned            bool               `json:"cleaned"`
}

// AsideState is a pod that was killed and did not die.
type AsideState struct {
	UID   string    `json:"uid"`
	Until time.Time `json:"until"`
}

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
		Time: now, Version: a.o.Version, Runtime: RuntimeState{a.Client.Endpoint(), a.lost}, Kubelet: a.kubelet, Disk: a.diskMode(), DryRun: a.o.DryRun,
		Pods: PodCount{len(a.pods), len(a.objects), a.store.Snapshot().Clients}, Evicted: slices.Clone(a.history), Stopped: a.stopped, Errors: map[string]string{}, Headroom: a.headroomAdvice(), Looks: a.looks,
		Conditions: []ConditionState{}, Signals: []SignalState{}, Met: []MetState{}, Underway: []UnderwayState{}, SetAside: []AsideState{},
	}
	for source, text := range a.blind {
		s.Errors[source] = text
	}
	for _, c := range eviction.Conditions {
		is := a.conditions[c]
		out := ConditionState{Type: c, Status: is.status, Reason: c.Reason(is.status)}
		if !is.since.IsZero() {
			out.LastTransitionTime = &is.since
		}
		s.Conditions = append(s.Conditions, out)
	}
	a.signals(s)
	s.AtOwnLimit = a.atOwnLimit(now)
	for _, m := range a.manager.Ready(now).Met {
		s.Met = append(s.Met, MetState{m.Threshold.Signal, m.ObservedText(), m.LimitText(), m.Since, m.AttemptingToReclaim()})
	}
	for _, u := range a.underway {
		e := u.Eviction()
		s.Underway = append(s.Underway, UnderwayState{e.Pod.PodRef, e.Signal, e.GracePeriodSeconds, e.Message, u.Began().Time, !u.Emptied().Time.IsZero(), !u.Cleaned().Time.IsZero()})
	}
	slices.SortFunc(s.Underway, func(x, y UnderwayState) int {
		return cmp.Or(x.Began.Compare(y.Began), cmp.Compare(x.Pod.UID, y.Pod.UID))
	})
	for uid, until := range a.manager.SetAside(now) {
		s.SetAside = append(s.SetAside, AsideState{uid, until})
	}
	slices.SortFunc(s.SetAside, func(x, y AsideState) int { return cmp.Compare(x.UID, y.UID) })
	return s
}

func (a *agent) signals(s *State) {
	for _, o := range a.manager.Signals() {
		out := SignalState{
			Signal: o.Signal, Observed: o.Observed.OK, Available: o.Observed.Value, Capacity: o.Observed.Capacity, Reason: o.Observed.Reason, Threshold: o.Thresholds,
		}
		if o.Observed.OK && !o.Observed.Time.IsZero() {
			out.Time = &o.Observed.Time
		}
		s.Signals = append(s.Signals, out)
	}
}
