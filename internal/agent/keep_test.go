package agent

import (
	"testing"
	"time"

	"jettison/eviction"
	"jettison/internal/kill"
	"jettison/internal/records"
	"jettison/stats"
)

// What an eviction returned is an amount of what was short. A share of stalled time has none: that it went from 30% to 90% is not 600000
// bytes that came back.
func TestWhatCameBackOfAPressureSignalIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		config   string
		released bool
	}{
		{"evictionHard: {memory.available: 100Mi}\n", true},
		{"evictionHard: {memory.pressure.full: 20%/1s}\n", false},
		{"evictionHard: {io.pressure.full: 20%/1s}\n", false},
		{"evictionHard: {cpu.pressure.some: 20%/1s}\n", false},
	} {
		n := newTestNode(t)
		n.a = newAgent(Options{Log: n.a.log, Config: configOf(t, c.config)}, n.a.Sources)
		n.a.o.Config.StateDir = t.TempDir()
		n.a.startKeeping(time.Now())
		observe := func(mib int, share float64) stats.Observation {
			n.available(mib)
			over := stats.StallShare{Over1s: stats.Some(share)}
			p := stats.Pressure{Time: time.Now(), Some: over, Full: over}
			n.a.node.Pressure = stats.NodePressure{CPU: p, Memory: p, IO: p}
			n.a.measure(time.Now())
			return n.a.manager.Observed(n.a.o.Config.Thresholds[0].Signal)
		}
		threshold := n.a.o.Config.Thresholds[0]
		met := eviction.Met{Threshold: threshold, Observed: observe(90, 0.3)}
		now := time.Now()
		u := &underway{
			Life: n.a.manager.Begin(eviction.Stamp{Time: now}, eviction.Eviction{Signal: threshold.Signal}, met), victim: &kill.Victim{},
			record: records.Record{ID: "r", Decided: records.ReadingOf(threshold, met.Observed, stampAt(now))},
		}
		n.a.manager.Emptied(eviction.Stamp{Time: now}, u.Life)
		after := observe(500, 0.9)
		n.a.manager.Observe(now.Add(3*time.Second), &n.a.node, eviction.Situation{})
		n.a.recordOutcome(u, records.NotBack, nil)
		r := &u.record
		if r.After == nil || r.After.Available == nil || *r.After.Available != after.Value || after.Value <= met.Observed.Value {
			t.Fatalf("%s: %+v, after %+v", threshold, met.Observed, r.After)
		}
		if (r.Released != nil) != c.released || c.released && *r.Released != 410<<20 {
			t.Errorf("%s: released %v", threshold, r.Released)
		}
		if err := n.a.keeper.Close(time.Minute); err != nil {
			t.Error(err)
		}
	}
}
