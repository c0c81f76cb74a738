package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

func managerWith(thresholds ...Threshold) *Manager { return NewManager(Config{Thresholds: thresholds}) }

// However long the removal of a victim's files took, the runtime has a minute after it to show what
// it freed.
func TestOutcomeAfterSlowCleanUp(t *testing.T) {
	pct := ThresholdValue{Percentage: 0.1}
	for _, removal := range []time.Duration{30 * time.Second, 115 * time.Second, 150 * time.Second} {
		m := managerWith(Threshold{Signal: stats.SignalNodeFsAvailable, Value: pct})
		now := time.Unix(1e9, 0)
		obs := func(now time.Time, avail uint64) Ready {
			n := stats.NodeStats{Fs: stats.Some(stats.FsStats{Time: now, AvailableBytes: stats.Some(avail), CapacityBytes: stats.Some[uint64](1000 << 20)})}
			n.Layout = stats.Some(stats.Layout{})
			return m.Observe(now, &n, Situation{})
		}
		obs(now, 50<<20)
		met := m.watch.met(new([]Met))[0]
		e := Eviction{Signal: stats.SignalNodeFsAvailable, hard: true, kind: signals[stats.SignalNodeFsAvailable].kind, Returns: 500 << 20}
		e.Pod.PodRef.UID = "a"
		l := m.Begin(Stamp{Time: now}, e, met)
		m.Emptied(Stamp{Time: now}, l)
		for s := time.Duration(0); s <= 240*time.Second; s += time.Second {
			at := now.Add(s)
			if s == removal {
				m.Cleaned(Stamp{Time: at}, l)
			}
			avail := uint64(50 << 20)
			if s >= removal+10*time.Second { // containerd frees it 10 s after
				avail = 600 << 20
			}
			obs(at, avail)
			if l.Outcome() != OutcomeUnknown {
				if l.Outcome() != OutcomeBack {
					t.Errorf("removal %v: outcome = %v, want back: the disk recovers 10 s after the clean-up", removal, l.Outcome())
				}
				break
			}
		}
	}
}

// An outcome that becomes known in a Step and is saved before it is reported, because the agent
// ends then, is reported by the next process.
func TestUnacknowledgedOutcomeSurvivesRestart(t *testing.T) {
	m := managerWith(Threshold{Signal: stats.SignalMemoryAvailable, Value: ThresholdValue{Percentage: 0.1}})
	now := time.Unix(1e9, 0)
	node := func(now time.Time, mib uint64) stats.NodeStats {
		return stats.NodeStats{Memory: stats.NodeMemoryStats{Time: now, CapacityBytes: stats.Some[uint64](1000 << 20), WorkingSetBytes: stats.Some((1000 - mib) << 20), KernelAvailableBytes: stats.Some(mib << 20)}}
	}
	n := node(now, 50)
	m.Observe(now, &n, Situation{})
	met := m.watch.met(new([]Met))[0]
	e := Eviction{Signal: stats.SignalMemoryAvailable, hard: true, GracePeriodSeconds: 1}
	e.Pod.PodRef.UID, e.Pod.SandboxIDs = "a", []string{"s"}
	l := m.Begin(Stamp{Time: now}, e, met)
	m.Killed(Stamp{Time: now}, l)
	m.Emptied(Stamp{Time: now}, l)
	n = node(now, 50)
	m.Observe(now.Add(time.Millisecond), &n, Situation{})
	m.Acknowledge()
	at := now.Add(2 * time.Millisecond)
	m.Step(at, Input{Summary: &stats.Summary{Node: node(at, 500)}})
	s := throughFile(t, m.Save()) // end of the same look
	restored := managerWith(m.config.Thresholds...)
	restored.Resume(at, s)
	n = node(at, 500)
	r := restored.Observe(at.Add(time.Second), &n, Situation{})
	if len(r.Outcomes) == 0 {
		t.Error("outcome not reported after a restart: its record stays running")
	}
}
