package gate

import (
	"math"
	"runtime"
	"testing"
	"time"

	"jettison/eviction"
	"jettison/stats"
)

func newHoldOffs() *HoldOffs { return &HoldOffs{held: map[string]heldOff{}} }

// A pod that comes back is kept out longer each time, up to a bound, and as at first when it was long ago.
func TestAHoldOffDoubles(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	evict := func(want time.Duration) {
		t.Helper()
		h.Evicted(now, "u", stats.SignalMemoryAvailable, "short")
		if got := h.Until("u").Sub(now); got != want {
			t.Errorf("kept out for %v, want %v", got, want)
		}
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		evict(want * time.Second)
	}
	for range 100 { // the exponent is bounded, too
		evict(holdMax)
	}
	now = now.Add(forget + 1)
	evict(holdFirst)
}

// A victim is kept out from before it is stopped, while it dies, and while what it was evicted for is short.
func TestAHoldOffLasts(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	h.AtOnce(now, "u")
	if _, held := h.shared.Held(now, "u"); !held {
		t.Error("not kept out at once")
	}
	h.Evicted(now, "u", stats.SignalMemoryAvailable, "short")
	if h.Dying(now, "u", "short") {
		t.Error("prolonged although it is far from its end")
	}
	now = now.Add(holdFirst - time.Second)
	if !h.Dying(now, "u", "short") || h.Until("u").Sub(now) != holdFirst {
		t.Errorf("let in while it dies, in %v", h.Until("u").Sub(now))
	}
	now = h.Until("u").Add(-time.Second)
	other := []eviction.Met{{Threshold: eviction.Threshold{Signal: stats.SignalPIDAvailable}}}
	own := append(other, eviction.Met{Threshold: eviction.Threshold{Signal: stats.SignalMemoryAvailable}})
	if h.Lasting(now, other) {
		t.Error("it lasts for something else")
	}
	if !h.Lasting(now, own) || h.Until("u").Sub(now) != holdOnFor {
		t.Errorf("let in while memory is short, in %v", h.Until("u").Sub(now))
	}
	if h.Lasting(now, own) {
		t.Error("prolonged twice at the same time")
	}
	if now = h.Until("u"); h.Lasting(now, own) {
		t.Error("one that is over comes to life again")
	}
}

// What is saved is taken back by the next process, and goes on where it was.
func TestHoldOffsAreKept(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	h.Evicted(now, "twice", stats.SignalMemoryAvailable, "short")
	h.Evicted(now, "twice", stats.SignalMemoryAvailable, "short")
	h.Evicted(now, "once", stats.SignalPIDAvailable, "tasks")
	saved := h.Save(now.Add(holdFirst))
	if len(saved) != 1 || saved[0].UID != "twice" || saved[0].Times != 2 || saved[0].Signal != stats.SignalMemoryAvailable {
		t.Fatalf("saved %+v", saved)
	}
	saved[0].Signal = "" // of an older agent
	next := newHoldOffs()
	next.Resume(now, saved)
	next.For("twice", stats.SignalMemoryAvailable)
	if _, held := next.shared.Held(now, "twice"); !held {
		t.Error("not kept out any more")
	}
	if again := next.Save(now); len(again) != 1 || again[0].Times != 2 || again[0].Signal != stats.SignalMemoryAvailable {
		t.Errorf("%+v", again)
	}
	next.Evicted(now, "twice", stats.SignalMemoryAvailable, "short")
	if got := next.Until("twice").Sub(now); got != 40*time.Second {
		t.Errorf("after a restart: %v", got)
	}
}

// Nothing is allocated between the choice of a victim and its death.
func TestAtOnceDoesNotAllocate(t *testing.T) {
	if race {
		t.Skip("the race detector allocates")
	}
	h, now, least := newHoldOffs(), time.Now(), uint64(math.MaxUint64)
	for range 5 { // others in this process may allocate meanwhile
		h.Evicted(now, "u", stats.SignalMemoryAvailable, "short") // as after each kill
		before := mallocs()
		h.AtOnce(now, "v")
		least = min(least, mallocs()-before)
	}
	if least > 0 {
		t.Errorf("%d allocations", least)
	}
}

// mallocs is how many there were in this process.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
