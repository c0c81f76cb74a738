package status

import (
	"context"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/apiconvert"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
)

// nodeWatch is the time over which a look by the command measures rates.
const nodeWatch = 100 * time.Millisecond

// readNode reads the node without an agent. It fills in only the fields of State that need no
// agent.
func (o options) readNode(ctx context.Context) (*api.State, error) {
	o.look.Watch = nodeWatch
	s, err := sources.Open(o.look.Options)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	look := observe.Once(ctx, s, o.look)
	m := eviction.NewManager(o.look.Config.Eviction())
	ready := m.Observe(look.Time, &look.Summary.Node, eviction.Situation{ObserveDisks: true})
	out := &api.State{
		Time: look.Time, Runtime: api.RuntimeState{Endpoint: look.Runtime.Endpoint,
			Lost: look.Runtime.Err != nil},
		Conditions: []api.ConditionState{}, Signals: []api.SignalState{}, Met: []api.MetState{},
		Errors: map[string]string{},
		Pods:   api.PodCount{Runtime: len(look.Runtime.Pods)}, InProgress: []api.EvictionInProgress{},
		SetAside: []api.AsideState{},
		Evicted:  []api.Evicted{}, AtOwnLimit: []api.LimitState{},
	}
	for _, signal := range m.Signals() {
		out.Signals = append(out.Signals, apiconvert.Signal(&signal))
	}
	for _, met := range ready.Met {
		out.Met = append(out.Met, api.MetState{
			Signal: met.Threshold.Signal, Observed: met.ObservedText(), Threshold: met.LimitText(),
			Since:   met.Since,
			Message: met.AttemptingToReclaim(),
		})
	}
	for source, err := range map[string]error{"cgroups of pods": look.Err,
		"the host's root directory": look.HostErr} {
		if err != nil {
			out.Errors[source] = err.Error()
		}
	}
	return out, nil
}
