package squeeze

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/logthrottle"
	"jettison/reclaim"
	"jettison/stats"
	"jettison/stats/read"
)

func newTestLoop() (*Loop, *strings.Builder) {
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return NewLoop(&Worker{jobs: make(chan *job, 1)}, Node{}, logthrottle.New(log)), &text
}

// The effect of a reclaim belongs to the first eviction that follows: of the same signal, or of
// another one that stopped the reclaim.
func TestFollowerOfAReclaim(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		effect reclaim.MemoryEffect
		signal stats.Signal
		after  time.Duration
		want   bool
	}{
		{"the same signal", reclaim.MemoryEffect{Asked: 1}, stats.SignalMemoryAvailable, time.Second, true},
		{"long ago", reclaim.MemoryEffect{Asked: 1}, stats.SignalMemoryAvailable, maxFollowAge + time.Second, false},
		{"another signal", reclaim.MemoryEffect{Asked: 1}, stats.SignalPIDAvailable, time.Second, false},
		{"stopped by another signal", reclaim.MemoryEffect{Asked: 1, Stopped: true}, stats.SignalPIDAvailable, time.Second, true},
		{"nothing requested", reclaim.MemoryEffect{Final: true, Stopped: true}, stats.SignalMemoryAvailable, time.Second, false},
		{"the previous reclaim", reclaim.MemoryEffect{Asked: 1, Began: now.Add(-time.Minute)}, stats.SignalMemoryAvailable, time.Second, false},
	} {
		for _, early := range []bool{false, true} { // the effect is known after the eviction began, or before
			l, _ := newTestLoop()
			l.begun = now
			c.effect.Signal = stats.SignalMemoryAvailable
			if c.effect.Began.IsZero() {
				c.effect.Began = now
			}
			got := map[string]bool{}
			record := func(f Follower, effect *reclaim.MemoryEffect) { got[f.ID] = got[f.ID] || effect != nil && f.ID != "" }
			if early {
				record(l.update(&c.effect))
			}
			for _, id := range []string{"first", "second"} {
				f := Follower{ID: id, Signal: c.signal}
				effect, _ := l.AssignFollower(now.Add(c.after), f)
				record(f, effect)
			}
			if !early {
				record(l.update(&c.effect))
			}
			if got["first"] != c.want || got["second"] {
				t.Errorf("%s, effect known early %v: evictions with the effect = %v", c.name, early, got)
			}
		}
	}
}

func followed(l *Loop) bool {
	effect, follows := l.AssignFollower(time.Now(), Follower{ID: "u"})
	return effect != nil || follows
}

// Without a Worker nothing is reclaimed, and no eviction follows a reclaim.
func TestNilLoop(t *testing.T) {
	var l *Loop
	l.Stop()
	l.Tick(time.Now(), nil, "")
	if l.Effects() != nil || followed(l) || l.Reclaimed(time.Now(), stats.SignalMemoryAvailable) != nil {
		t.Error("a nil Loop has effects, a follower or reclaimed bytes")
	}
}

// shortNode returns a node with memory short enough for a reclaim.
func shortNode(available uint64) Node {
	return Node{
		Need: func(_ time.Time, i int) reclaim.MemoryNeed {
			if i > 0 {
				return reclaim.MemoryNeed{}
			}
			return reclaim.MemoryNeed{Available: 150 << 20, Hard: stats.Some[uint64](100 << 20), Fill: 10 << 20, Margin: 250 * time.Millisecond}
		},
		Available: func(stats.Signal) stats.Opt[uint64] { return stats.Some(available) },
		Swap:      func() (stats.Opt[uint64], uint64) { return stats.Some[uint64](1 << 30), 0 },
	}
}

// A reclaim begins when memory is near its threshold, not during another one, and not if the
// per-CPU lists hold enough.
func TestReclaimBegins(t *testing.T) {
	now := time.Now()
	l, _ := newTestLoop()
	l.node = shortNode(1 << 30)
	if l.Tick(now, nil, ""); len(l.worker.jobs) != 0 || !l.next.IsZero() {
		t.Error("a reclaim began although the per-CPU lists hold enough")
	}
	pods := read.Index{}
	l.node = shortNode(150 << 20)
	if l.Tick(now, pods, "own"); len(l.worker.jobs) != 1 || l.begun.IsZero() {
		t.Fatal("no reclaim began near the threshold")
	}
	if r := (<-l.worker.jobs).Request; r.Self != "own" || r.Before.V != 150<<20 || r.Signal != stats.SignalMemoryAvailable || r.Rate <= 0 {
		t.Errorf("request of the reclaim = %+v", r)
	}
	l.worker.busy.Store(false)
	if l.Tick(now.Add(retryInterval-1), pods, ""); len(l.worker.jobs) != 0 {
		t.Error("a reclaim began within retryInterval, before the last effect is known")
	}
	l.worker.busy.Store(true)
	if l.Tick(now.Add(retryInterval), pods, ""); len(l.worker.jobs) != 0 {
		t.Error("a second reclaim began during the first")
	}
}

// The effect of a reclaim is logged when it is known, with the eviction that followed, and counts
// as reclaimed before that eviction.
func TestEffectOfAReclaim(t *testing.T) {
	l, text := newTestLoop()
	now := time.Now()
	l.begun = now
	available := func(stats.Signal) stats.Opt[uint64] { return stats.Some[uint64](110 << 20) }
	named := func(id string) []any { return []any{"evicted", "default/" + id} }
	e := reclaim.MemoryEffect{Signal: stats.SignalMemoryAvailable, Began: now, Asked: 20 << 20, Before: stats.Some[uint64](100 << 20)}
	if f, effect := l.OnEffect(now, e, available, named); f.ID != "" || effect != nil {
		t.Errorf("first effect has the follower %v, want none", f)
	}
	if got := l.Reclaimed(now, stats.SignalMemoryAvailable); got == nil || *got != 10<<20 {
		t.Errorf("reclaimed bytes = %v, want 10 MiB", got)
	}
	if l.Reclaimed(now, stats.SignalPIDAvailable) != nil || l.Reclaimed(now.Add(maxFollowAge+1), stats.SignalMemoryAvailable) != nil {
		t.Error("bytes count for another signal, or after maxFollowAge")
	}
	l.AssignFollower(now, Follower{ID: "u", Signal: stats.SignalMemoryAvailable})
	e.Final = true
	if f, effect := l.OnEffect(now, e, available, named); f.ID != "u" || effect == nil {
		t.Errorf("final effect has the follower %v, want u", f)
	}
	if !strings.Contains(text.String(), `msg="reclaimed memory"`) || !strings.Contains(text.String(), "gain=10485760") ||
		!strings.Contains(text.String(), "evicted=default/u") {
		t.Errorf("log of the effect: %s", text)
	}
	if l.OnEffect(now, reclaim.MemoryEffect{Final: true, Err: ErrNoReclaim}, available, named); l.Effects() != nil {
		t.Error("a kernel without memory.reclaim is used again")
	}
	if strings.Count(text.String(), "proactive reclaim unavailable") != 1 {
		t.Errorf("a kernel without memory.reclaim is not logged once: %s", text)
	}
}
