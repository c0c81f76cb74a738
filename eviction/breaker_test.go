package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// used sets what all pods together use of memory, in MiB, as of now.
func (w *ward) used(memory uint64) {
	w.node.Pods = stats.PodsTotal{Time: w.now, WorkingSetBytes: stats.Some(memory << 20)}
}

// leak kills one pod after the other while memory falls: leaks MiB a second, so much of it in the pods. Each pod of a list is the next one's
// worse. It returns who went, until nobody does for five seconds.
func (w *ward) leak(left, pods uint64, a second) (gone []string) {
	for quiet := 0; quiet < 5 && left > 0; {
		left, pods = left-min(left, a.fall), pods+a.pods
		w.left(stats.SignalMemoryAvailable, left)
		w.now = w.now.Add(time.Second)
		w.used(pods)
		quiet++
		if l := w.look(0); l != nil {
			quiet, gone = 0, append(gone, l.e.Pod.PodRef.UID)
			left, pods = left+l.e.Returns>>20, pods-l.e.Returns>>20
			w.dead(l)
			w.m.Cleaned(Stamp{Time: w.now}, l)
			w.pods = slices.DeleteFunc(w.pods, func(p stats.PodStats) bool { return p.PodRef.UID == l.e.Pod.PodRef.UID })
			w.left(stats.SignalMemoryAvailable, left)
			w.used(pods)
		}
	}
	return gone
}

// second is what happens in one.
type second struct{ fall, pods uint64 }

func breakerWard(t *testing.T, lines ...string) *ward {
	w := newWard(t, lines...)
	w.m.config.Breaker = true
	for i := range 8 {
		w.pod(fmt.Sprint(i), 20, 0, 1)
	}
	return w
}

// The very first word of it names who grows: it is the one that is logged.
func TestTheBreakerNamesWhoGrows(t *testing.T) {
	w := breakerWard(t, "hard memory.available 1000Mi")
	w.late = true
	w.leak(1100, 500, second{60, 0})
	first := slices.IndexFunc(w.whys, func(why string) bool { return strings.Contains(why, "circuit breaker open") })
	if first < 0 {
		t.Fatalf("the breaker did not stop: %q", w.whys)
	}
	if why := w.whys[first]; !strings.Contains(why, "system.slice grew by") {
		t.Errorf("%q does not name who grows", why)
	}
}

// Pods that leak together look like a leak outside of them, but what all of them use grows: the breaker is none of it.
func TestTheBreakerIsForWhatGrowsOutsideThePods(t *testing.T) {
	for _, c := range []struct {
		name string
		of   second
		want int
	}{
		{"in the pods", second{60, 60}, 8},
		{"in the pods, mostly", second{60, 45}, 8},
		{"outside", second{60, 0}, breakerLimit},
		{"outside, mostly", second{60, 10}, breakerLimit},
	} {
		w := breakerWard(t, "hard memory.available 1000Mi")
		w.used(2000)
		w.look(time.Second)
		if gone := w.leak(900, 2000, c.of); len(gone) != c.want {
			t.Errorf("%s: %v went, want %d: %s", c.name, gone, c.want, w.why)
		}
	}
}

// What a soft threshold did in vain is not held against a hard one.
func TestTheBreakerCountsPerThreshold(t *testing.T) {
	w := breakerWard(t, "hard memory.available 500Mi", "soft memory.available 2000Mi", "grace memory.available 1s")
	w.look(time.Second)
	if gone := w.leak(1500, 2000, second{60, 0}); len(gone) != breakerLimit {
		t.Errorf("%v went, want 3 for the soft threshold: %s", gone, w.why)
	}
	if gone := w.leak(490, 2000, second{60, 0}); len(gone) != breakerLimit {
		t.Errorf("%v went, want 3 more for the hard threshold: %s", gone, w.why)
	}
}

// Once it has stopped, it acts again where the first in the ranking is new, or has grown: once, and not for those that were there.
func TestTheBreakerIsArmedAgain(t *testing.T) {
	stopped := func() *ward {
		w := breakerWard(t, "hard memory.available 1000Mi")
		w.look(time.Second)
		if gone := w.leak(900, 2000, second{40, 0}); len(gone) != breakerLimit || !strings.Contains(w.why, "circuit breaker open") {
			t.Fatalf("%v went: %s", gone, w.why)
		}
		return w
	}
	w := stopped()
	w.pod("new", 35, 0, 1)
	if gone := w.leak(600, 2000, second{40, 0}); !slices.Equal(gone, []string{"new"}) {
		t.Errorf("%v went, want the new one: %s", gone, w.why)
	}
	w = stopped()
	grown := w.pods[2].PodRef.UID
	w.pods[2].Memory.WorkingSetBytes, w.pods[2].Memory.AnonBytes = stats.Some(uint64(200<<20)), stats.Some(uint64(200<<20))
	if gone := w.leak(600, 2000, second{40, 0}); len(gone) == 0 || gone[0] != grown {
		t.Errorf("%v went, want %s, which has grown: %s", gone, grown, w.why)
	}
	w = stopped()
	w.pods[2].Memory.WorkingSetBytes = stats.Some(uint64(21 << 20)) // that is nothing
	if gone := w.leak(600, 2000, second{40, 0}); len(gone) != 0 {
		t.Errorf("%v went: %s", gone, w.why)
	}
	saved, again := onFile(t, w.m.Save()), managerOf(t, 0, "own x", "hard memory.available 1000Mi") // over a restart, too
	again.config.Replay, again.config.Breaker = false, true
	if dropped := again.Resume(w.now, saved); len(dropped) > 0 {
		t.Fatal(dropped)
	}
	w.m = again
	if gone := w.leak(600, 2000, second{40, 0}); len(gone) != 0 {
		t.Errorf("after a restart %v went: %s", gone, w.why)
	}
	w.pod("new", 35, 0, 1)
	if gone := w.leak(600, 2000, second{40, 0}); !slices.Equal(gone, []string{"new"}) {
		t.Errorf("after a restart %v went, want the new one: %s", gone, w.why)
	}
}

// What leaks is a static pod, which may not go. It lies in the cgroup of all pods, but nobody else's end helps.
func TestTheBreakerStopsForAPodThatMayNotGo(t *testing.T) {
	for _, quick := range []bool{false, true} { // and memory.current has page cache in it
		w := newWard(t, "hard memory.available 1000Mi")
		w.m.config.Breaker = true
		w.pod("static", 2000, 0, 1).Annotations = map[string]string{annotationConfigSource: "file"}
		for i := range 40 {
			w.pod(fmt.Sprint("i", i), 20, 0, 1)
		}
		left, pods, leaker := uint64(990), uint64(2800), uint64(2000)
		var gone []string
		for range 60 {
			left, pods, leaker = left-12, pods+12, leaker+12
			w.left(stats.SignalMemoryAvailable, left)
			m := &w.pods[0].Memory
			m.WorkingSetBytes, m.AnonBytes = stats.Some(leaker<<20), stats.Some(leaker<<20)
			if m.Quick = quick; quick {
				m.UsageBytes = stats.Some((leaker + 700) << 20)
				m.WorkingSetBytes = m.UsageBytes
			}
			w.now = w.now.Add(time.Second)
			w.used(pods)
			if l := w.look(0); l != nil {
				gone = append(gone, l.e.Pod.PodRef.UID)
				w.dead(l)
				w.m.Cleaned(Stamp{Time: w.now}, l)
				leaker += 20 // what that gave back it has already
			}
		}
		if len(gone) != breakerLimit || slices.Contains(gone, "static") {
			t.Errorf("quick %v: %d went, want %d: %v, %s", quick, len(gone), breakerLimit, gone, w.why)
		}
	}
}

// A static pod that only reads files grows by page cache, which is no leak: pods that leak beside it still go.
func TestPageCacheOfAPodThatMayNotGoIsNoLeak(t *testing.T) {
	w := newWard(t, "hard memory.available 1000Mi")
	w.m.config.Breaker = true
	static := w.pod("static", 100, 0, 1)
	static.Annotations = map[string]string{annotationConfigSource: "file"}
	for i := range 8 {
		w.pod(fmt.Sprint("i", i), 20, 0, 1)
	}
	left, pods, gone, back := uint64(990), uint64(2800), 0, uint64(0)
	for i := range uint64(60) {
		living := slices.DeleteFunc(slices.Clone(w.pods[1:]), func(p stats.PodStats) bool { return !p.Populated.V })
		left, pods = left-8, pods+8
		w.left(stats.SignalMemoryAvailable, left)
		w.pods[0].Memory.UsageBytes, w.pods[0].Memory.Quick = stats.Some((100+80*i)<<20), true
		for j := range w.pods[1:] { // they leak together, and take what a victim gave back, too
			m := &w.pods[1+j].Memory
			m.WorkingSetBytes.V += ((8 + back) << 20) / uint64(max(len(living), 1))
			m.AnonBytes, m.UsageBytes = m.WorkingSetBytes, m.WorkingSetBytes
		}
		back = 0
		w.now = w.now.Add(time.Second)
		w.used(pods)
		if l := w.look(0); l != nil {
			gone, back = gone+1, l.e.Returns>>20
			w.dead(l)
			w.m.Cleaned(Stamp{Time: w.now}, l)
		}
	}
	if gone != 8 {
		t.Errorf("%d went, want all: %s", gone, w.why)
	}
}

// remade has something outside of the pods take the memory for ten minutes, and all that victims give back, while a controller makes a pod anew
// five seconds after each eviction. It returns how many went.
func remade(w *ward, name func(n int) string) (gone int) {
	w.pod(name(0), 50, 0, 1)
	from := w.now
	turn := func(pods uint64) *Life {
		w.left(stats.SignalMemoryAvailable, 90)
		w.now = w.now.Add(time.Second)
		w.used(3000 + pods)
		return w.look(0)
	}
	for w.now.Sub(from) < 10*time.Minute {
		l := turn(50)
		if l == nil {
			continue
		}
		gone++
		w.dead(l)
		w.m.Cleaned(Stamp{Time: w.now}, l)
		p := w.pods[0]
		w.pods = w.pods[:0]
		for range 5 {
			w.victim(turn(0), "")
		}
		p.PodRef.UID, p.PodRef.Name = fmt.Sprint("uid-", gone), name(gone)
		p.Populated, p.SandboxIDs, p.StartTime = stats.Some(true), []string{p.PodRef.UID}, w.now
		w.pods = append(w.pods, p)
	}
	return gone
}

// A pod that is made anew after each eviction, with another UID, is not new to the breaker: nobody goes after the three. Nor is it where the
// agent begins anew.
func TestTheBreakerKnowsWhoIsMadeAnew(t *testing.T) {
	for what, name := range map[string]func(int) string{
		"a DaemonSet's":   func(n int) string { return []string{"ds-4bz8x", "ds-c2v9w", "ds-kk5ld", "ds-zw7tq"}[n%4] },
		"a StatefulSet's": func(int) string { return "web-0" },
		"a Job's":         func(n int) string { return fmt.Sprint("job-", n) },
	} {
		w := newWard(t, "hard memory.available 100Mi")
		w.m.config.Breaker = true
		if gone := remade(w, name); gone != breakerLimit {
			t.Errorf("%s: %d went in ten minutes, want %d: %s", what, gone, breakerLimit, w.why)
		}
		again := managerOf(t, 0, "own x", "hard memory.available 100Mi")
		again.config.Replay, again.config.Breaker = false, true
		if dropped := again.Resume(w.now, onFile(t, w.m.Save())); len(dropped) > 0 {
			t.Fatal(dropped)
		}
		w.m = again
		w.pods = w.pods[:0]
		if gone := remade(w, name); gone != 0 {
			t.Errorf("%s: %d went after a restart: %s", what, gone, w.why)
		}
	}
}

// One whose kin is not known is tried, but the next one ever later: 30 s, 1, 2, 4, 5 min. So a pod that is really new gets its turn in five
// minutes.
func TestWhoIsNewIsTriedEverLater(t *testing.T) {
	w := newWard(t, "hard memory.available 100Mi")
	w.m.config.Breaker = true
	if gone := remade(w, func(n int) string { return fmt.Sprintf("pod%d", n) }); gone != breakerLimit+5 {
		t.Errorf("%d went in ten minutes, want %d: %s", gone, breakerLimit+5, w.why)
	}
	at := w.now
	w.pods = w.pods[:0]
	w.pod("leaker", 60, 0, 1)
	for w.look(time.Second) == nil {
		if w.left(stats.SignalMemoryAvailable, 90); w.now.Sub(at) > trialDelayMax {
			t.Fatalf("a new one does not go: %s", w.why)
		}
	}
	saved := w.m.Save()
	saved.Breaker[0].Until = w.now.Add(time.Hour)
	again := managerOf(t, 0, "hard memory.available 100Mi")
	if dropped := again.Resume(w.now, saved); len(dropped) != 1 || again.breakers.byThreshold[breakerKey{"memory.available", true}].nextTrial.Sub(w.now) > trialDelayMax {
		t.Errorf("dropped %v, %+v", dropped, again.breakers.byThreshold)
	}
}

// What the breaker lets through counts as tried only when it begins: that it has to wait for an eviction under way costs nobody else its life.
func TestOneThatIsLetThroughIsTriedWhenItBegins(t *testing.T) {
	w := breakerWard(t, "hard memory.available 1000Mi")
	w.look(time.Second)
	w.leak(900, 2000, second{40, 0})
	w.pod("new", 35, 0, 1)
	in := Input{Summary: &stats.Summary{Time: w.now, Node: w.node, Pods: w.pods}, MemoryOnly: true}
	for range 3 { // it is chosen, and cannot be pinned
		w.now = w.now.Add(time.Second)
		in.Summary.Node.Memory.Time = w.now
		if d := w.m.Step(w.now, in); len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != "new" {
			t.Fatalf("%v: %s", d.Evictions, d.Reason)
		}
	}
	in.Summary.Pods = w.pods[:len(w.pods)-1] // it has gone by itself
	w.now = w.now.Add(time.Second)
	in.Summary.Node.Memory.Time = w.now
	if d := w.m.Step(w.now, in); len(d.Evictions) != 0 {
		t.Errorf("%s goes in its place", d.Evictions[0].Pod.PodRef.UID)
	}
}

// The breaker stops in a quick look, in which 3000 MiB of a pod are 2900 MiB of page cache. They are not remembered as what it used: it is read
// in full in the next look, and where that fails it counts as new.
func TestTheBreakerRemembersNoPageCache(t *testing.T) {
	for _, read := range []bool{true, false} {
		w := breakerWard(t, "hard memory.available 1000Mi")
		w.look(time.Second)
		cached := w.pod("cached", 3000, 0, 1)
		cached.Memory.Quick, cached.QOSClass = true, stats.Burstable
		for i := range w.pods[:8] { // others are the first in the ranking
			w.pods[i].Memory.WorkingSetBytes = stats.Some(uint64(3001+i) << 20)
		}
		w.leak(900, 2000, second{40, 0})
		at := len(w.pods) - 1
		b := w.m.breakers.byThreshold[w.m.watch.all[0].key()]
		if _, is := b.usageAtOpen["cached"]; is || b.futile != breakerLimit {
			t.Fatalf("%+v", b)
		}
		if read {
			b.usageAtOpen, b.hasBounds = nil, false
			w.m.breakers.byThreshold[w.m.watch.all[0].key()] = b
			w.look(100 * time.Millisecond)
			in := Input{Summary: &stats.Summary{Node: w.node, Pods: w.pods}, MemoryOnly: true}
			if i := w.m.Unread(w.now, in); i != at {
				t.Fatalf("%d is read next, want %d", i, at)
			}
		}
		w.pods[at].Memory.Quick = false
		use := func(mib uint64) {
			w.pods[at].Memory.WorkingSetBytes, w.pods[at].Memory.AnonBytes = stats.Some(mib<<20), stats.Some(mib<<20)
		}
		for i := range w.pods[:at] {
			w.pods[i].Memory.WorkingSetBytes = stats.Some(uint64(20) << 20)
		}
		if read {
			use(100)
			if l := w.look(time.Second); l != nil {
				t.Fatalf("%s goes, and was there", l.e.Pod.PodRef.UID)
			}
		}
		use(1600)
		if gone := w.leak(600, 2000, second{40, 40}); len(gone) == 0 || gone[0] != "cached" {
			t.Errorf("read %v: %v went, cached has grown by 1500 MiB: %s", read, gone, w.why)
		}
	}
}

// Names that are made for one pod alone are left out.
func TestKin(t *testing.T) {
	for name, want := range map[string]string{
		"ds-4bz8x": "a/ds", "web-7d9c5bf6d4-zw7tq": "a/web-7d9c5bf6d4", "web-0": "a/web", "team-x": "a/team-x", "api": "a/api", "-12": "a/-12", "a-": "a/a-",
		"my-apple": "a/my-apple", "": "",
	} {
		if got := workloadOf("a", name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
