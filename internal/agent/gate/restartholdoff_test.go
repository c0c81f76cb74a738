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

func newHoldOffs() *HoldOffs { return &HoldOffs{histories: map[string]history{}} }

// The hold-off doubles with each eviction up to a maximum, and starts again after forgetAfter.
func TestHoldOffDoubles(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	evict := func(want time.Duration) {
		t.Helper()
		h.Evicted(now, "u", stats.SignalMemoryAvailable, "short")
		if got := h.Until("u").Sub(now); got != want {
			t.Errorf("hold-off = %v, want %v", got, want)
		}
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		evict(want * time.Second)
	}
	for range 100 { // the exponent is bounded, too
		evict(maxHold)
	}
	now = now.Add(forgetAfter + 1)
	evict(firstHold)
}

// A victim's hold-off starts before the stop, and is extended while the pod dies and while its
// signal is short.
func TestHoldOffIsExtended(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	h.StartHoldOff(now, "u")
	if _, held := h.shared.Held(now, "u"); !held {
		t.Error("no hold-off after StartHoldOff")
	}
	h.Evicted(now, "u", stats.SignalMemoryAvailable, "short")
	if h.ExtendDying(now, "u", "short") {
		t.Error("a hold-off far from its end was extended")
	}
	now = now.Add(firstHold - time.Second)
	if !h.ExtendDying(now, "u", "short") || h.Until("u").Sub(now) != firstHold {
		t.Errorf("hold-off of a dying pod ends in %v, want %v", h.Until("u").Sub(now), firstHold)
	}
	now = h.Until("u").Add(-time.Second)
	other := []eviction.Met{{Threshold: eviction.Threshold{Signal: stats.SignalPIDAvailable}}}
	own := append(other, eviction.Met{Threshold: eviction.Threshold{Signal: stats.SignalMemoryAvailable}})
	if h.ExtendLasting(now, other) {
		t.Error("a hold-off was extended for another signal")
	}
	if !h.ExtendLasting(now, own) || h.Until("u").Sub(now) != extension {
		t.Errorf("hold-off while memory is short ends in %v, want %v", h.Until("u").Sub(now), extension)
	}
	if h.ExtendLasting(now, own) {
		t.Error("a hold-off was extended twice at the same time")
	}
	if now = h.Until("u"); h.ExtendLasting(now, own) {
		t.Error("a hold-off that has ended was extended")
	}
}

// The hold-off of a pod that is marked as evicted lasts for tearDownPeriod, so that the kubelet can
// tear the pod down, although nothing is short. Other pods' hold-offs end earlier.
func TestMarkedPodIsHeldOffUntilTornDown(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	h.marked = func(uid string) bool { return uid == "marked" }
	for _, uid := range []string{"marked", "other"} {
		h.Evicted(now, uid, stats.SignalMemoryAvailable, "short")
	}
	out := func(uid string) (held bool) { _, held = h.shared.Held(now, uid); return held }
	for began := now; now.Sub(began) < tearDownPeriod; now = now.Add(time.Second) {
		h.ExtendLasting(now, nil)
		if since := now.Sub(began); !out("marked") || out("other") != (since < firstHold) {
			t.Fatalf("after %v: marked pod held off %v, other pod %v", since, out("marked"), out("other"))
		}
	}
	if now = now.Add(extension); h.ExtendLasting(now, nil) || out("marked") {
		t.Error("the hold-off of a marked pod does not end")
	}
}

// The next process restores saved hold-offs and continues them.
func TestHoldOffsAreRestored(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	h.Evicted(now, "twice", stats.SignalMemoryAvailable, "short")
	h.Evicted(now, "twice", stats.SignalMemoryAvailable, "short")
	h.Evicted(now, "once", stats.SignalPIDAvailable, "tasks")
	saved := h.Save(now.Add(firstHold))
	if len(saved) != 1 || saved[0].UID != "twice" || saved[0].Times != 2 || saved[0].Signal != stats.SignalMemoryAvailable {
		t.Fatalf("saved hold-offs = %+v, want one of twice", saved)
	}
	saved[0].Signal = "" // as an older agent stored it
	next := newHoldOffs()
	next.Resume(now, saved)
	next.SetSignal("twice", stats.SignalMemoryAvailable)
	if _, held := next.shared.Held(now, "twice"); !held {
		t.Error("the restored hold-off does not apply")
	}
	if again := next.Save(now); len(again) != 1 || again[0].Times != 2 || again[0].Signal != stats.SignalMemoryAvailable {
		t.Errorf("hold-offs saved after the restore = %+v", again)
	}
	next.Evicted(now, "twice", stats.SignalMemoryAvailable, "short")
	if got := next.Until("twice").Sub(now); got != 40*time.Second {
		t.Errorf("next hold-off after a restart = %v, want 40s", got)
	}
}

// Nothing is allocated between the choice of a victim and its death.
func TestStartHoldOffDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	h, now, least := newHoldOffs(), time.Now(), uint64(math.MaxUint64)
	for range 5 { // other goroutines of this process may allocate meanwhile
		h.Evicted(now, "u", stats.SignalMemoryAvailable, "short") // as after each kill
		before := mallocs()
		h.StartHoldOff(now, "v")
		least = min(least, mallocs()-before)
	}
	if least > 0 {
		t.Errorf("StartHoldOff made %d allocations, want 0", least)
	}
}

// mallocs returns the number of allocations of this process.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// owned gives pods owners: a UID begins with its controller's kind.
func owned(h *HoldOffs) {
	h.owner = func(uid string) Owner {
		kind, name, _ := strings.Cut(uid, "-")
		if kind == "DaemonSet" {
			name = "agent-0000" + name
		}
		return Owner{Kind: kind, UID: "of-" + kind, Namespace: "shop", Name: name}
	}
}

// A pod that an owner creates in place of an evicted one is held off, longer each time: for a
// DaemonSet the pod that belongs to it by its object, for other controllers the pod with the name.
// Other pods of a StatefulSet and pods of a ReplicaSet may start.
func TestReplacementIsHeldOff(t *testing.T) {
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
	if h.HoldReplacements(now, pods("ReplicaSet-a", "StatefulSet-a")) {
		t.Error("pods of other owners are held off")
	}
	if !h.HoldReplacements(now, pods("DaemonSet-a", "DaemonSet-b")) || until(b) != firstHold {
		t.Errorf("hold-off of the DaemonSet's next pod = %v, want %v", until(b), firstHold)
	}
	if _, held := h.shared.Held(now, "DaemonSet-b"); held {
		t.Error("a pod is held off by the UID of an object, which a client can claim")
	}
	if hold, _ := h.shared.Held(now, b); !strings.Contains(hold.Reason, "shop/agent-0000a of the same DaemonSet") || !strings.HasSuffix(hold.Reason, "short") {
		t.Errorf("reason of the hold-off = %q", hold.Reason)
	}
	if h.HoldReplacements(now, pods("DaemonSet-b")) {
		t.Error("the same pod is held off twice")
	}
	if n := h.Count(now); n != 1 {
		t.Errorf("%d pods are held off, want 1", n)
	}
	now = now.Add(firstHold)
	if h.HoldReplacements(now, pods("DaemonSet-c")) {
		t.Error("a pod is held off after the end of the owner's hold-off")
	}
	h.Evicted(now, "DaemonSet-b", stats.SignalMemoryAvailable, "short") // once more, under another UID
	if h.HoldReplacements(now, pods("DaemonSet-c")); until(c) != 2*firstHold || until("DaemonSet-b") != 2*firstHold {
		t.Errorf("second hold-off = %v and %v, want %v", until("DaemonSet-b"), until(c), 2*firstHold)
	}
	h.Evicted(now, "StatefulSet-db", stats.SignalMemoryAvailable, "short")
	if until(nri.PodKey("shop", "db")) != firstHold || !h.Until(nri.PodKey("shop", "db-1")).IsZero() {
		t.Error("a StatefulSet's pod is not held off by its name alone")
	}
}

// An owner's hold-off is extended while the pod dies and the pressure lasts, restored after a
// restart, and shown.
func TestOwnerHoldOffIsExtendedAndRestored(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	owned(h)
	key := nri.PodKey("shop", "db")
	h.Evicted(now, "StatefulSet-db", stats.SignalMemoryAvailable, "short")
	now = now.Add(firstHold - time.Second)
	if !h.ExtendDying(now, "StatefulSet-db", "short") || h.Until(key).Sub(now) != firstHold {
		t.Errorf("hold-off while the pod dies ends in %v, want %v", h.Until(key).Sub(now), firstHold)
	}
	now = h.Until(key).Add(-time.Second)
	met := []eviction.Met{{Threshold: eviction.Threshold{Signal: stats.SignalMemoryAvailable}}}
	if !h.ExtendLasting(now, met) || h.Until(key).Sub(now) != extension {
		t.Errorf("hold-off while memory is short ends in %v, want %v", h.Until(key).Sub(now), extension)
	}
	next := newHoldOffs()
	owned(next)
	saved := h.Save(now)
	next.Resume(now, saved)
	if len(saved) != 2 || next.Until(key) != h.Until(key) || next.Count(now) != 1 {
		t.Errorf("saved hold-offs %+v, restored until %v", saved, next.Until(key))
	}
	next.Evicted(now, "StatefulSet-db", stats.SignalMemoryAvailable, "short")
	if got := next.Until(key).Sub(now); got != 2*firstHold {
		t.Errorf("next hold-off after a restart = %v, want %v", got, 2*firstHold)
	}
	state := next.State(now)
	if len(state) != 2 || state[0].UID != "StatefulSet-db" || state[1].UID != "" || state[1].Owner == nil || state[1].Owner.Pod != "db" ||
		state[1].Times != 2 {
		t.Errorf("state of the hold-offs = %+v", state)
	}
}

// The memory for owners is bounded, however many there are.
func TestHoldOffsOfOwnersAreBounded(t *testing.T) {
	h, now := newHoldOffs(), time.Now()
	owned(h)
	for i := range 5 * maxRemembered {
		h.Evicted(now, fmt.Sprintf("StatefulSet-%d", i), stats.SignalMemoryAvailable, "short")
	}
	if n := len(h.histories); n > maxRemembered+2 {
		t.Errorf("%d histories are kept, want at most %d", n, maxRemembered+2)
	}
	if n := len(h.shared.All()); n > 1024 {
		t.Errorf("%d hold-offs are kept, want at most 1024", n)
	}
}
