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
	return NewLoop(&Squeezer{jobs: make(chan *job, 1)}, Node{}, logthrottle.New(log)), &text
}

// What a squeeze got belongs to one eviction, the first that follows it: of the same signal, or of another one if that has stopped it.
func TestWhichEvictionASqueezeCameBefore(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name   string
		effect reclaim.MemoryEffect
		signal stats.Signal
		after  time.Duration
		want   bool
	}{
		{"the same signal", reclaim.MemoryEffect{Asked: 1}, stats.SignalMemoryAvailable, time.Second, true},
		{"long ago", reclaim.MemoryEffect{Asked: 1}, stats.SignalMemoryAvailable, old + time.Second, false},
		{"another signal", reclaim.MemoryEffect{Asked: 1}, stats.SignalPIDAvailable, time.Second, false},
		{"stopped by another signal", reclaim.MemoryEffect{Asked: 1, Stopped: true}, stats.SignalPIDAvailable, time.Second, true},
		{"nothing asked", reclaim.MemoryEffect{Final: true, Stopped: true}, stats.SignalMemoryAvailable, time.Second, false},
		{"of the one before", reclaim.MemoryEffect{Asked: 1, Began: now.Add(-time.Minute)}, stats.SignalMemoryAvailable, time.Second, false},
	} {
		for _, early := range []bool{false, true} { // the effect is known before the eviction, or after it began
			l, _ := newTestLoop()
			l.tried = now
			c.effect.Signal = stats.SignalMemoryAvailable
			if c.effect.Began.IsZero() {
				c.effect.Began = now
			}
			got := map[string]bool{}
			told := func(f Follower, effect *reclaim.MemoryEffect) { got[f.ID] = got[f.ID] || effect != nil && f.ID != "" }
			if early {
				told(l.known(&c.effect))
			}
			for _, id := range []string{"first", "second"} {
				f := Follower{ID: id, Signal: c.signal}
				effect, _ := l.Followed(now.Add(c.after), f)
				told(f, effect)
			}
			if !early {
				told(l.known(&c.effect))
			}
			if got["first"] != c.want || got["second"] {
				t.Errorf("%s, early %v: %v", c.name, early, got)
			}
		}
	}
}

func followed(l *Loop) bool {
	effect, follows := l.Followed(time.Now(), Follower{ID: "u"})
	return effect != nil || follows
}

// Without a squeezer nothing is asked, and no eviction comes after a squeeze.
func TestNoSqueezer(t *testing.T) {
	var l *Loop
	l.Stop()
	l.Tick(time.Now(), nil, "")
	if l.Effects() != nil || followed(l) || l.Reclaimed(time.Now(), stats.SignalMemoryAvailable) != nil {
		t.Error("figures of a squeeze that there was none of")
	}
}

// shortNode is one whose memory is short enough to be reclaimed.
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

// A squeeze begins where memory is near its threshold, not while another one lasts, and not where the lists of the CPUs hold enough.
func TestWhenASqueezeBegins(t *testing.T) {
	now := time.Now()
	l, _ := newTestLoop()
	l.node = shortNode(1 << 30)
	if l.Tick(now, nil, ""); len(l.squeezer.jobs) != 0 || !l.next.IsZero() {
		t.Error("begun although enough lies on the lists of the CPUs")
	}
	pods := read.Index{}
	l.node = shortNode(150 << 20)
	if l.Tick(now, pods, "own"); len(l.squeezer.jobs) != 1 || l.tried.IsZero() {
		t.Fatal("not begun")
	}
	if r := (<-l.squeezer.jobs).Request; r.Self != "own" || r.Before.V != 150<<20 || r.Signal != stats.SignalMemoryAvailable || r.Rate <= 0 {
		t.Errorf("%+v", r)
	}
	l.squeezer.busy.Store(false)
	if l.Tick(now.Add(again-1), pods, ""); len(l.squeezer.jobs) != 0 {
		t.Error("so soon again, and what became of the last one is not known")
	}
	l.squeezer.busy.Store(true)
	if l.Tick(now.Add(again), pods, ""); len(l.squeezer.jobs) != 0 {
		t.Error("two at a time")
	}
}

// What a squeeze came to is logged once it is known, with the eviction that followed it, and is what was reclaimed before that.
func TestWhatASqueezeCameTo(t *testing.T) {
	l, text := newTestLoop()
	now := time.Now()
	l.tried = now
	available := func(stats.Signal) stats.Opt[uint64] { return stats.Some[uint64](110 << 20) }
	named := func(id string) []any { return []any{"evicted", "default/" + id} }
	e := reclaim.MemoryEffect{Signal: stats.SignalMemoryAvailable, Began: now, Asked: 20 << 20, Before: stats.Some[uint64](100 << 20)}
	if f, effect := l.OnEffect(now, e, available, named); f.ID != "" || effect != nil {
		t.Errorf("told %v", f)
	}
	if got := l.Reclaimed(now, stats.SignalMemoryAvailable); got == nil || *got != 10<<20 {
		t.Errorf("reclaimed %v", got)
	}
	if l.Reclaimed(now, stats.SignalPIDAvailable) != nil || l.Reclaimed(now.Add(old+1), stats.SignalMemoryAvailable) != nil {
		t.Error("reclaimed for something else, or for ever")
	}
	l.Followed(now, Follower{ID: "u", Signal: stats.SignalMemoryAvailable})
	e.Final = true
	if f, effect := l.OnEffect(now, e, available, named); f.ID != "u" || effect == nil {
		t.Errorf("told %v", f)
	}
	if !strings.Contains(text.String(), `msg="reclaimed memory"`) || !strings.Contains(text.String(), "gain=10485760") ||
		!strings.Contains(text.String(), "evicted=default/u") {
		t.Errorf("said: %s", text)
	}
	if l.OnEffect(now, reclaim.MemoryEffect{Final: true, Err: ErrNoReclaim}, available, named); l.Effects() != nil {
		t.Error("a kernel without memory.reclaim is asked again")
	}
	if strings.Count(text.String(), "memory is not reclaimed") != 1 {
		t.Errorf("said: %s", text)
	}
}
