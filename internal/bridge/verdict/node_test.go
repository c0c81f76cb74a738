package verdict

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/stats"
)

// Conditions are written when they change and as a heartbeat. They stay True for the period after
// an eviction, and become Unknown when the agent does not respond.
func TestNodeConditions(t *testing.T) {
	o := NodeOptions{Period: 5 * time.Minute}
	quiet := &api.State{Kubelet: true}
	written := func(status v1.ConditionStatus, reason string, beat time.Time) (out []v1.NodeCondition) {
		for _, kind := range conditions {
			c := v1.NodeCondition{Type: ConditionPrefix + kind, Status: v1.ConditionFalse, Reason: reasonNoPressure}
			if kind == v1.NodeMemoryPressure {
				c.Status, c.Reason = status, reason
			}
			c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(beat), metav1.NewTime(now.Add(-time.Hour))
			out = append(out, c)
		}
		return out
	}
	evicted := func(signal stats.Signal, ago time.Duration) *api.State {
		return &api.State{Kubelet: true, Evicted: []api.Evicted{{Signal: signal, Time: now.Add(-ago)}}}
	}
	for name, c := range map[string]struct {
		state *api.State
		heard time.Time
		was   []v1.NodeCondition
		want  string // JettisonMemoryPressure; empty: nothing is written
	}{
		"the first time":           {quiet, now, nil, "False AgentFindsNoPressure"},
		"nothing new":              {quiet, now, written(v1.ConditionFalse, reasonNoPressure, now.Add(-HeartbeatInterval+1)), ""},
		"a heartbeat":              {quiet, now, written(v1.ConditionFalse, reasonNoPressure, now.Add(-HeartbeatInterval)), "False AgentFindsNoPressure"},
		"no kubelet":               {&api.State{}, now, nil, ""},
		"nothing heard yet":        {nil, now, nil, ""},
		"nothing said at all":      {nil, now.Add(-AgentTimeout - 1), written(v1.ConditionTrue, reasonPressure, now.Add(-time.Hour)), "Unknown AgentSilent"},
		"nor before":               {nil, now.Add(-AgentTimeout - 1), nil, ""},
		"evicted":                  {evicted("memory.available", o.Period-1), now, written(v1.ConditionFalse, reasonNoPressure, now), "True AgentHasEvicted"},
		"evicted by pressure":      {evicted("memory.pressure.full", 0), now, written(v1.ConditionFalse, reasonNoPressure, now), "True AgentHasEvicted"},
		"evicted long ago":         {evicted("memory.available", o.Period), now, written(v1.ConditionTrue, reasonEvicted, now), "False AgentFindsNoPressure"},
		"a clock set back":         {quiet, now, written(v1.ConditionFalse, reasonNoPressure, now.Add(time.Hour)), "False AgentFindsNoPressure"},
		"and evicted before that":  {evicted("memory.available", -time.Hour), now, written(v1.ConditionTrue, reasonEvicted, now), "False AgentFindsNoPressure"},
		"evicted for another":      {evicted("nodefs.available", 0), now, nil, "False AgentFindsNoPressure"},
		"silent":                   {quiet, now.Add(-AgentTimeout - 1), written(v1.ConditionFalse, reasonNoPressure, now), "Unknown AgentSilent"},
		"silent for a moment only": {quiet, now.Add(-AgentTimeout), written(v1.ConditionFalse, reasonNoPressure, now), ""},
		"pressure": {&api.State{Kubelet: true, Conditions: []api.ConditionState{{Type: "MemoryPressure", Status: true}}}, now,
			written(v1.ConditionFalse, reasonNoPressure, now), "True AgentFindsPressure"},
	} {
		got := NodeConditions(now, c.state, c.heard, c.was, o)
		is := ""
		if m := conditionOf(got, "JettisonMemoryPressure"); m != nil {
			is = string(m.Status) + " " + m.Reason
			if before := conditionOf(c.was, m.Type); before != nil && (before.Status == m.Status) != m.LastTransitionTime.Equal(&before.LastTransitionTime) {
				t.Errorf("%s: last transition at %v, want it unchanged", name, m.LastTransitionTime)
			}
		}
		if is != c.want || len(got) != 0 && len(got) != 3 {
			t.Errorf("%s: condition %q of %d, want %q", name, is, len(got), c.want)
		}
	}
}

// A load is written after a change of ten points, at most each minute, and otherwise every five
// minutes.
func TestLoadDue(t *testing.T) {
	state := func(available uint64, stalled float64) *api.NodeLoad {
		whole, used := uint64(1000), 1000-available
		l, ok := LoadOf(&api.State{
			Signals: []api.SignalState{{Signal: stats.SignalMemoryAvailable, Observed: true, Available: available, Limits: []uint64{100, 200}}},
			Load: &api.LoadState{
				Time: now, Memory: api.MemoryLoad{CapacityBytes: &whole, WorkingSetBytes: &used},
				Pressure: api.PressureSet{Memory: &api.PressureState{Full: &api.StallState{Avg60: stalled}}},
			},
		})
		if !ok {
			t.Fatal("LoadOf found no load in the state")
		}
		return &l
	}
	was := state(500, 0)
	if *was.WorkingSetPercent != 50 || *was.HeadroomPercent != 30 || *was.WorkingSetBytes != 500 || was.Pressure["memoryFull"] != 0 {
		t.Errorf("annotation %s, want the load's figures", was.Annotation())
	}
	for name, c := range map[string]struct {
		load  *api.NodeLoad
		was   *api.NodeLoad
		since time.Duration
		want  bool
	}{
		"the first":           {was, nil, 0, true},
		"moved, too soon":     {state(100, 0), was, LoadMinInterval - 1, false},
		"moved":               {state(400, 0), was, LoadMinInterval, true},
		"moved less":          {state(401, 0), was, LoadMinInterval, false},
		"stalled":             {state(500, 10), was, LoadMinInterval, true},
		"stalled less":        {state(500, 9.9), was, LoadMinInterval, false},
		"nothing, and due":    {was, was, LoadMaxInterval, true},
		"nothing, and before": {was, was, LoadMaxInterval - 1, false},
	} {
		if got := LoadDue(now, c.load, c.was, now.Add(-c.since)); got != c.want {
			t.Errorf("%s: load due = %v, want %v", name, got, c.want)
		}
	}
	if _, ok := LoadOf(&api.State{}); ok {
		t.Error("LoadOf returned a load of a state without one")
	}
}

// The load names the agent's version, its last eviction, and of all thresholds the one with the
// least headroom. A signal that is not observed has no threshold that is near.
func TestLoadHasTheNearestThreshold(t *testing.T) {
	memory := api.SignalState{Signal: stats.SignalMemoryAvailable, Observed: true, Available: 300, Capacity: 1000,
		Threshold: []string{"memory.available<100", "memory.available<200 for 30s"}, Limits: []uint64{100, 200}}
	disk := api.SignalState{Signal: stats.SignalNodeFsAvailable, Observed: true, Available: 90, Capacity: 1000,
		Threshold: []string{"nodefs.available<10%"}, Limits: []uint64{100}}
	stalled := api.SignalState{Signal: stats.SignalMemoryPressureFull, Observed: true, Available: 395_000, Capacity: 1_000_000,
		Threshold: []string{"memory.pressure.full>40%"}, Limits: []uint64{400_000}}
	unread := api.SignalState{Signal: stats.SignalPIDAvailable, Threshold: []string{"pid.available<100"}, Limits: []uint64{100}}
	for name, c := range map[string]struct {
		signals []api.SignalState
		want    *api.NearestThreshold
	}{
		"no signals":         {nil, nil},
		"not observed":       {[]api.SignalState{unread}, nil},
		"the soft one":       {[]api.SignalState{unread, memory}, &api.NearestThreshold{Signal: "memory.available", Threshold: "memory.available<200 for 30s", HeadroomPercent: 10}},
		"a pressure signal":  {[]api.SignalState{memory, stalled}, &api.NearestThreshold{Signal: "memory.pressure.full", Threshold: "memory.pressure.full>40%", HeadroomPercent: 0.5}},
		"a met one":          {[]api.SignalState{stalled, disk, memory}, &api.NearestThreshold{Signal: "nodefs.available", Threshold: "nodefs.available<10%", HeadroomPercent: -1}},
		"no share of memory": {[]api.SignalState{{Signal: "memory.available", Observed: true, Threshold: []string{"a"}, Limits: []uint64{1}}}, nil},
	} {
		l, _ := LoadOf(&api.State{Load: &api.LoadState{Time: now}, Signals: c.signals, Version: "v1", DryRun: true,
			Evicted: []api.Evicted{{Time: now.Add(-time.Hour), Signal: "pid.available"}, {Time: now, Signal: "memory.available"}}})
		if got := l.Nearest; (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: nearest threshold %+v, want %+v", name, got, c.want)
		}
		if l.AgentVersion != "v1" || !l.DryRun || l.LastEviction == nil || *l.LastEviction != (api.LastEviction{Time: now, Signal: "memory.available"}) {
			t.Errorf("%s: load %s, want the agent's version, dry run and last eviction", name, l.Annotation())
		}
	}
}
