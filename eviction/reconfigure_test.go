package eviction

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"jettison/stats"
)

// Reading an unchanged configuration again changes nothing: not since when a threshold is met, not
// the evictions in progress, not the breakers, not the pods set aside.
func TestReloadOfSameConfigChangesNothing(t *testing.T) {
	evictions := 0
	for seed := range uint64(min(*timelines, 300)) {
		tl := generate(seed)
		want, got := run(tl, nil), runReloading(tl, nil, rand.New(rand.NewPCG(seed, 1)))
		evictions += want.rules.count
		if slices.Equal(want.log, got.log) {
			continue
		}
		i := 0
		for i < min(len(want.log), len(got.log)) && want.log[i] == got.log[i] {
			i++
		}
		t.Fatalf("seed %d, line %d: log after a reload = %[4]q, want %[3]q", seed, i, slices.Concat(want.log, []string{"nothing"})[i], slices.Concat(got.log, []string{"nothing"})[i])
	}
	if evictions == 0 {
		t.Error("no timeline has an eviction, want some")
	}
}

// softConfig returns a configuration with one soft threshold, as a manager has it.
func softConfig(t *testing.T, value, grace string) Config {
	t.Helper()
	s := Settings{
		EvictionHard: map[string]string{"memory.available": "1Mi"}, EvictionSoft: map[string]string{"memory.available": value},
		EvictionSoftGracePeriod: map[string]string{"memory.available": grace}, OwnSignals: true,
	}
	thresholds, _, errs := s.Parse()
	if errs != nil {
		t.Fatalf("Parse of the settings failed: %v", errs)
	}
	return Config{Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableKernel, PressureTransitionPeriod: time.Minute}
}

// A met threshold keeps the time since which it is met, whatever its value and its grace period
// become: a grace period that is nearly over does not start again. A signal without a threshold is
// no longer met, and its condition ends after the transition period.
func TestReloadKeepsTimeSinceMet(t *testing.T) {
	at := time.Unix(1700000000, 0)
	observe := func(m *Manager, now time.Time) Ready {
		n := &stats.NodeStats{}
		n.Memory = stats.NodeMemoryStats{Time: now, CapacityBytes: stats.Some(uint64(1 << 30)), KernelAvailableBytes: stats.Some(uint64(100 << 20))}
		return m.Observe(now, n, Situation{})
	}
	for _, c := range []struct{ value, grace string }{{"200Mi", "60s"}, {"300Mi", "60s"}, {"200Mi", "30s"}, {"20%", "90s"}} {
		m := NewManager(softConfig(t, "200Mi", "60s"))
		observe(m, at)
		m.Reconfigure(softConfig(t, c.value, c.grace))
		r := observe(m, at.Add(29*time.Second))
		if len(r.Met) != 1 || !r.Met[0].Since.Equal(at) {
			t.Fatalf("%+v: met = %+v, want one since %v", c, r.Met, at)
		}
		grace, _ := time.ParseDuration(c.grace)
		for _, after := range []time.Duration{grace - time.Second, grace} {
			r = observe(m, at.Add(after))
			if asks := r.Look == LookMemory; asks != (after == grace) {
				t.Errorf("%+v: look at pods after %v = %v, want it after %v", c, after, asks, grace)
			}
		}
	}
	m := NewManager(softConfig(t, "200Mi", "60s"))
	observe(m, at)
	none := softConfig(t, "200Mi", "60s")
	none.Thresholds = nil
	m.Reconfigure(none)
	if r := observe(m, at.Add(time.Second)); len(r.Met) > 0 || fmt.Sprint(r.Conditions) != "[MemoryPressure]" {
		t.Errorf("without the threshold: met %v, conditions %v, want MemoryPressure only", r.Met, r.Conditions)
	}
	if r := observe(m, at.Add(2*time.Minute)); len(r.Conditions) > 0 {
		t.Errorf("conditions after the transition period = %v, want none", r.Conditions)
	}
}

// Whatever a configuration becomes at any moment, nothing fails, and everything that was begun
// ends.
func TestReloadAtAnyTime(t *testing.T) {
	for seed := range uint64(min(*timelines, 100)) {
		tl, other := generate(seed), generate(seed+1000)
		dice := rand.New(rand.NewPCG(seed, 2))
		s := run(tl, nil)
		if s.m == nil {
			continue
		}
		for range 20 {
			c := s.config
			if dice.IntN(2) == 0 {
				c.Thresholds, _, _ = in(other.Settings...).Parse()
			}
			c.Breaker, c.LocalStorage = dice.IntN(2) == 0, dice.IntN(2) == 0
			s.m.Reconfigure(c)
			s.measure()
			for _, look := range []Look{LookMemory, LookFull} {
				now := s.now()
				d := s.m.Step(now, Input{Summary: s.summary(now, look == LookMemory, look == LookFull), MemoryOnly: look == LookMemory})
				if len(d.Reclaim) > 0 {
					s.m.Reconfigure(c)
					s.m.StepAfterReclaim(now, Input{Summary: s.summary(now, false, true)})
				}
			}
			s.m.Ready(s.now())
			s.m.Acknowledge()
			s.advance(s.t + time.Second)
		}
	}
}
