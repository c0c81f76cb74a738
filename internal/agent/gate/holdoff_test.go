package gate

import (
	"fmt"
	"iter"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/internal/base/race"
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

// A pod that is marked as evicted is kept out until its kubelet has had the time to tear it down, though nothing is short; no other, and not
// for ever.
func TestAMarkedPodIsKeptOutUntilItIsTornDown(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	h.marked = func(uid string) bool { return uid == "marked" }
	for _, uid := range []string{"marked", "other"} {
		h.Evicted(now, uid, stats.SignalMemoryAvailable, "short")
	}
	out := func(uid string) (held bool) { _, held = h.shared.Held(now, uid); return held }
	for began := now; now.Sub(began) < tearDown; now = now.Add(time.Second) {
		h.Lasting(now, nil)
		if since := now.Sub(began); !out("marked") || out("other") != (since < holdFirst) {
			t.Fatalf("after %v: marked kept out %v, other %v", since, out("marked"), out("other"))
		}
	}
	if now = now.Add(holdOnFor); h.Lasting(now, nil) || out("marked") {
		t.Error("it is kept out for ever")
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
	if race.Enabled {
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

// owned gives pods owners as their objects would: the UIDs begin with the controller's kind.
func owned(h *HoldOffs) {
	h.owner = func(uid string) Owner {
		kind, name, _ := strings.Cut(uid, "-")
		if kind == "DaemonSet" {
			name = "agent-0000" + name
		}
		return Owner{Kind: kind, UID: "of-" + kind, Namespace: "shop", Name: name}
	}
}

// What an owner makes in place of an evicted pod is kept out likewise, longer each time: of a DaemonSet what its object says is its pod,
// of others what has the name. Other pods of the same StatefulSet, and what a ReplicaSet makes, are let in.
func TestAnOwnersNextPodIsKeptOut(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	owned(h)
	pods := func(uids ...string) iter.Seq[Owner] {
		return func(yield func(Owner) bool) {
			for _, uid := range uids {
				yield(h.owner(uid))
			}
		}
	}
	until := func(key string) time.Duration { return h.Until(key).Sub(now) }
	b, c := nri.PodKey("shop", "agent-0000b"), nri.PodKey("shop", "agent-0000c")
	h.Evicted(now, "DaemonSet-a", stats.SignalMemoryAvailable, "short")
	if h.Follow(now, pods("ReplicaSet-a", "StatefulSet-a")) {
		t.Error("others are kept out")
	}
	if !h.Follow(now, pods("DaemonSet-a", "DaemonSet-b")) || until(b) != holdFirst {
		t.Errorf("the next one is let in after %v", until(b))
	}
	if _, held := h.shared.Held(now, "DaemonSet-b"); held {
		t.Error("whoever has the UID is kept out, whatever the runtime says that it is")
	}
	if hold, _ := h.shared.Held(now, b); !strings.Contains(hold.Reason, "shop/agent-0000a of the same DaemonSet") || !strings.HasSuffix(hold.Reason, "short") {
		t.Errorf("reason %q", hold.Reason)
	}
	if h.Follow(now, pods("DaemonSet-b")) {
		t.Error("kept out twice")
	}
	if n := h.Held(now); n != 1 {
		t.Errorf("%d pods are kept out", n)
	}
	now = now.Add(holdFirst)
	if h.Follow(now, pods("DaemonSet-c")) {
		t.Error("kept out when it is over")
	}
	h.Evicted(now, "DaemonSet-b", stats.SignalMemoryAvailable, "short") // once more, under another UID
	if h.Follow(now, pods("DaemonSet-c")); until(c) != 2*holdFirst || until("DaemonSet-b") != 2*holdFirst {
		t.Errorf("the second time %v, %v", until("DaemonSet-b"), until(c))
	}
	h.Evicted(now, "StatefulSet-db", stats.SignalMemoryAvailable, "short")
	if until(nri.PodKey("shop", "db")) != holdFirst || !h.Until(nri.PodKey("shop", "db-1")).IsZero() {
		t.Error("a StatefulSet's pod comes back under its name")
	}
}

// An owner is kept out while the pod dies and while the pressure lasts, over a restart, and shown.
func TestAnOwnersHoldOffLastsAndIsKept(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	owned(h)
	key := nri.PodKey("shop", "db")
	h.Evicted(now, "StatefulSet-db", stats.SignalMemoryAvailable, "short")
	now = now.Add(holdFirst - time.Second)
	if !h.Dying(now, "StatefulSet-db", "short") || h.Until(key).Sub(now) != holdFirst {
		t.Errorf("let in while it dies, in %v", h.Until(key).Sub(now))
	}
	now = h.Until(key).Add(-time.Second)
	met := []eviction.Met{{Threshold: eviction.Threshold{Signal: stats.SignalMemoryAvailable}}}
	if !h.Lasting(now, met) || h.Until(key).Sub(now) != holdOnFor {
		t.Errorf("let in while memory is short, in %v", h.Until(key).Sub(now))
	}
	next := newHoldOffs()
	owned(next)
	saved := h.Save(now)
	next.Resume(now, saved)
	if len(saved) != 2 || next.Until(key) != h.Until(key) || next.Held(now) != 1 {
		t.Errorf("saved %+v, taken back until %v", saved, next.Until(key))
	}
	next.Evicted(now, "StatefulSet-db", stats.SignalMemoryAvailable, "short")
	if got := next.Until(key).Sub(now); got != 2*holdFirst {
		t.Errorf("after a restart %v", got)
	}
	state := next.State(now)
	if len(state) != 2 || state[0].UID != "StatefulSet-db" || state[1].UID != "" || state[1].Owner == nil || state[1].Owner.Pod != "db" ||
		state[1].Times != 2 {
		t.Errorf("shown %+v", state)
	}
}

// However many owners there are, what is remembered of them is bounded.
func TestHoldOffsOfOwnersAreBounded(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	owned(h)
	for i := range 5 * mostHeld {
		h.Evicted(now, fmt.Sprintf("StatefulSet-%d", i), stats.SignalMemoryAvailable, "short")
	}
	if n := len(h.held); n > mostHeld+2 {
		t.Errorf("%d are remembered", n)
	}
	if n := len(h.shared.All()); n > 1024 {
		t.Errorf("%d are kept out", n)
	}
}
