package eviction

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"jettison/stats"
)

// disks returns a node with one file system of 100 GiB, with that much left, and pods that hold
// that much of it; 0: unknown.
func disks(at time.Time, left uint64, pods map[string]uint64) Input {
	s := &stats.Summary{Time: at}
	s.Node.Layout = stats.Some(stats.Layout{})
	s.Node.Fs = stats.Some(stats.FsStats{Time: at, CapacityBytes: stats.Some(uint64(100 << 30)), AvailableBytes: stats.Some(left)})
	for uid, held := range pods {
		p := stats.PodStats{PodRef: stats.PodReference{UID: uid}, Announced: true, Populated: stats.Some(true)}
		p.Containers = []stats.ContainerStats{{Name: "c", Rootfs: stats.Opt[stats.FsUsage]{V: stats.FsUsage{UsedBytes: held}, OK: held > 0}}}
		s.Pods = append(s.Pods, p)
	}
	slices.SortFunc(s.Pods, func(a, b stats.PodStats) int { return -compareUID(&a, &b) })
	return Input{Summary: s}
}

func compareUID(a, b *stats.PodStats) int {
	return compareBool(a.PodRef.UID < b.PodRef.UID, b.PodRef.UID < a.PodRef.UID)
}

func explainer(t interface{ Fatal(...any) }) *Manager {
	m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.available 10Gi")
	m.config.Replay, m.config.Explain = false, true
	return m
}

// quietAt makes a look at a quiet disk.
func quietAt(m *Manager, at time.Time, left uint64, pods map[string]uint64) {
	in := disks(at, left, pods)
	m.Observe(at, &in.Summary.Node, Situation{})
	m.Step(at, in)
}

// shortAt makes a step with a short disk, after a reclaim that freed nothing.
func shortAt(m *Manager, at time.Time, left uint64, pods map[string]uint64) Decision {
	in := disks(at, left, pods)
	m.Observe(at, &in.Summary.Node, Situation{})
	m.Step(at, in)
	return m.StepAfterReclaim(at, in)
}

func TestPodsExplainDiskGrowth(t *testing.T) {
	const gi = 1 << 30
	for _, c := range []struct {
		name      string
		then, now map[string]uint64
		explained uint64
		known     bool
	}{
		{"as they were", map[string]uint64{"a": 50 * gi, "b": 5 * gi}, map[string]uint64{"a": 50 * gi, "b": 5 * gi}, 0, true},
		{"one has grown", map[string]uint64{"a": 50 * gi, "b": 5 * gi}, map[string]uint64{"a": 50 * gi, "b": 15 * gi}, 10 * gi, true},
		{"one grows, one shrinks", map[string]uint64{"a": 50 * gi, "b": 5 * gi}, map[string]uint64{"a": 40 * gi, "b": 30 * gi}, 15 * gi, true},
		{"all shrink", map[string]uint64{"a": 50 * gi, "b": 5 * gi}, map[string]uint64{"a": 40 * gi, "b": 5 * gi}, 0, true},
		{"a new one", map[string]uint64{"a": 50 * gi}, map[string]uint64{"a": 50 * gi, "n": 20 * gi}, 20 * gi, true},
		{"one that is gone, with what it held", map[string]uint64{"a": 10 * gi, "b": 5 * gi}, map[string]uint64{"b": 35 * gi}, 20 * gi, true},
		{"one that is not measured now", map[string]uint64{"a": 50 * gi, "b": 5 * gi}, map[string]uint64{"a": 0, "b": 8 * gi}, 3 * gi, true},
		{"one that was not measured then", map[string]uint64{"a": 0, "b": 5 * gi}, map[string]uint64{"a": 20 * gi, "b": 5 * gi}, 0, true},
		{"a number that cannot be true", map[string]uint64{"a": 50 * gi}, map[string]uint64{"a": 1 << 63}, 0, true},
		// Then they can have taken at most what they hold now.
		{"few were measured then", map[string]uint64{"a": 0, "b": 0, "c": 5 * gi}, map[string]uint64{"a": 20 * gi}, 20 * gi, true},
		{"there were none", nil, map[string]uint64{"a": 20 * gi}, 20 * gi, true},
	} {
		m := explainer(t)
		quietAt(m, epoch, 40*gi, c.then)
		in := disks(epoch.Add(time.Minute), 4*gi, c.now)
		m.watch.evaluate(epoch.Add(time.Minute), in.Summary)
		g, known := m.explain.changeSinceQuiet(in, &m.watch.all[0], &m.watch.disks, m.looks.lastFull)
		if g.heldMore != c.explained || known != c.known || known && g.usedMore != 36*gi {
			t.Errorf("%s: explained %d GiB of %d GiB, known %v, want %d GiB of 36, known %v", c.name, g.heldMore/gi, g.usedMore/gi, known, c.explained/gi, c.known)
		}
	}
}

// Whatever pods hold: if they explain less than half of what a disk lost, no pod is evicted for
// suspectDelay, and never if the end of all of them would not end the shortage. If nothing is left,
// every byte helps: the delay ends after freshLimit. Otherwise one is evicted: immediately if
// pods explain the loss, or if the first pod alone holds a quarter of it and that would end the
// shortage.
func TestUnexplainedShortages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gi = 1 << 30
		m := explainer(t)
		then, now := map[string]uint64{}, map[string]uint64{}
		grown, all, first := uint64(0), uint64(0), ""
		for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
			uid := string(rune('a' + i))
			then[uid] = rapid.Uint64Range(1, 9).Draw(t, "held") * gi
			more := rapid.Uint64Range(0, 9).Draw(t, "more") * gi
			now[uid] = then[uid] + more
			grown, all = grown+more, all+now[uid]
			if now[uid] > now[first] {
				first = uid
			}
		}
		left := rapid.Uint64Range(0, 9).Draw(t, "left") * gi
		quietAt(m, epoch, 40*gi, then)
		lost := 40*gi - left
		at := epoch.Add(time.Minute)
		began := at
		for at.Sub(began) < 30*time.Minute {
			d := shortAt(m, at, left, now)
			explained, waited := 2*grown >= lost, at.Sub(began) >= suspectDelay || left == 0 && at.Sub(began) >= freshLimit
			own := now[first] - then[first]
			explained = explained || 4*own >= lost && left+own >= 10*gi
			may := explained || waited && (left == 0 || left+all >= 10*gi)
			if evicts := len(d.Evictions) == 1; evicts != may || d.Unexplained == may || (m.Unexplained() == "") != may {
				t.Fatalf("%v after the disk became short: eviction %v, want %v; reason %q, unexplained %v", at.Sub(began), evicts, may, d.Reason, d.Unexplained)
			}
			if may {
				break
			}
			at = at.Add(time.Duration(rapid.IntRange(2, 200).Draw(t, "seconds")) * time.Second)
		}
		in := disks(at, 50*gi, now)
		if m.Observe(at, &in.Summary.Node, Situation{}); m.Unexplained() != "" {
			t.Fatalf("Unexplained after the shortage = %q, want none", m.Unexplained())
		}
		if m.Observe(at.Add(doubtKept), &in.Summary.Node, Situation{}); len(m.explain.doubts) != 0 {
			t.Fatalf("doubts %v after the shortage = %v, want none", doubtKept, m.explain.doubts)
		}
	})
}

// A clock that is set back neither extends the delay nor ends the looks at quiet disks.
func TestDoubtEndsWithClockSetBack(t *testing.T) {
	const gi = 1 << 30
	m := explainer(t)
	pods := map[string]uint64{"a": 20 * gi}
	quietAt(m, epoch, 40*gi, pods)
	shortAt(m, epoch.Add(time.Minute), 5*gi, pods)
	back := epoch.Add(-24 * time.Hour)
	for range 2 { // the first one has no new observation of the disk
		back = back.Add(time.Second)
		if d := shortAt(m, back, 5*gi, pods); len(d.Evictions) > 0 {
			t.Error("eviction immediately after the clock was set back, want none")
		}
	}
	if d := shortAt(m, back.Add(suspectDelay), 5*gi, pods); len(d.Evictions) != 1 {
		t.Errorf("no eviction after suspectDelay, want one: %s", d.Reason)
	}
	m = explainer(t)
	quietAt(m, epoch, 40*gi, pods)
	in := disks(back, 40*gi, pods)
	if m.Observe(back, &in.Summary.Node, Situation{}); !m.explain.quietLookDue {
		t.Error("no look at a quiet disk is due after the clock was set back")
	}
}
