package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// lookAt is one full look at a disk that has so much left, with pods changed. It returns who goes.
func lookAt(m *Manager, at time.Time, left uint64, pods map[string]uint64, change func(p *stats.PodStats)) string {
	in := disks(at, left, pods)
	for i := range in.Summary.Pods {
		if change != nil {
			change(&in.Summary.Pods[i])
		}
	}
	m.Observe(at, &in.Summary.Node, Situation{})
	m.Step(at, in)
	if d := m.Reclaimed(at, in); len(d.Evictions) > 0 {
		return d.Evictions[0].Pod.PodRef.UID
	}
	return ""
}

// withinNine looks every half a minute for nine, and returns who goes.
func withinNine(m *Manager, at time.Time, left uint64, pods map[string]uint64, change func(p *stats.PodStats)) (uid string) {
	for after := time.Duration(0); after < 9*time.Minute && uid == ""; after += 30 * time.Second {
		uid = lookAt(m, at.Add(after), left, pods, change)
	}
	return uid
}

// began gives one pod sandboxes, the newest of which was made at a time.
func began(uid string, at time.Time, sandboxes ...string) func(p *stats.PodStats) {
	return func(p *stats.PodStats) {
		if p.PodRef.UID == uid {
			p.StartTime, p.SandboxIDs = at, sandboxes
		}
	}
}

// A look at a disk that rests finds a pod that has just begun, and nothing of it that could be measured. It held nothing then: when it fills
// the disk it goes. What one holds that had been there for long, and could not be measured, is not known, whenever its sandbox was made anew.
func TestAPodThatHadJustBegunHeldNothing(t *testing.T) {
	untold := func(p *stats.PodStats) { p.Announced = p.PodRef.UID != "filler" }
	two := []string{"s2", "s1"}
	for _, c := range []struct {
		name      string
		then, now func(p *stats.PodStats)
		victim    string
	}{
		{"it had begun right before", began("filler", epoch.Add(-2*time.Second)), nil, "filler"},
		{"its first sandbox was being made", untold, began("filler", epoch.Add(2*time.Second), "s1"), "filler"},
		{"it had been there for long", began("filler", epoch.Add(-time.Minute)), began("filler", epoch.Add(-time.Minute)), ""},
		{"and was told of later", untold, began("filler", epoch.Add(-time.Hour), "s1"), ""},
		{"its sandbox is made anew", began("filler", epoch.Add(-time.Hour)), began("filler", epoch.Add(time.Second), "s2"), ""},
		{"its sandbox was being made anew", untold, began("filler", epoch.Add(2*time.Second), two...), ""},
		{"its sandbox had just been made anew", began("filler", epoch.Add(-time.Second), two...), nil, ""},
		{"the runtime does not say", nil, nil, ""},
		{"a clock that was ahead", began("filler", epoch.Add(90*time.Minute)), began("filler", epoch.Add(90*time.Minute)), ""},
	} {
		m := explainer(t)
		lookAt(m, epoch, 40*gib, map[string]uint64{"filler": 0, "modest": gib, "talker": gib}, c.then)
		now := map[string]uint64{"filler": 36 * gib, "modest": gib, "talker": gib}
		if uid := lookAt(m, epoch.Add(10*time.Second), 4*gib, now, c.now); uid != c.victim {
			t.Errorf("%s: %q goes, want %q", c.name, uid, c.victim)
		}
	}
}

// A look waits for figures: one that begins meanwhile held nothing when it was asked for.
func TestAPodThatBeganWhileALookWaited(t *testing.T) {
	m := explainer(t)
	in := disks(epoch, 40*gib, map[string]uint64{"modest": gib, "talker": gib, "slow": 0})
	m.Observe(epoch, &in.Summary.Node, Situation{})
	in.Measuring = true
	m.Step(epoch, in)
	at := epoch.Add(freshLimit)
	set := began("filler", epoch.Add(time.Second))
	lookAt(m, at, 40*gib, map[string]uint64{"modest": gib, "talker": gib, "slow": 0, "filler": 0}, set)
	if m.explain.pending {
		t.Fatal("the look was not made")
	}
	now := map[string]uint64{"modest": gib, "talker": gib, "slow": 0, "filler": 36 * gib}
	if uid := withinNine(m, at.Add(30*time.Second), 4*gib, now, set); uid != "filler" {
		t.Errorf("%q goes", uid)
	}
}

// Files of one tenant that share blocks, or an old figure of files that are gone, make a sum of more than is used. What others held counts.
func TestWhatOneHoldsTooMuchIsNotTakenFromOthers(t *testing.T) {
	m := explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"tenant": 500 * gib, "innocent": 30 * gib, "other": gib})
	now := map[string]uint64{"tenant": 1 << 20, "innocent": 30 * gib, "other": gib}
	if uid := withinNine(m, epoch.Add(5*time.Minute), 4*gib, now, nil); uid != "" {
		t.Errorf("%q goes for what images took", uid)
	}
}

// A lower bound that is less than what was held is no decrease, which would hide what others took.
func TestALowerBoundHasNotShrunk(t *testing.T) {
	m := explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"large": 30 * gib, "b": gib})
	now := map[string]uint64{"large": 4 * gib, "b": gib, "f1": 7 * gib, "f2": 7 * gib, "f3": 7 * gib, "f4": 7 * gib, "f5": 7 * gib}
	uid := withinNine(m, epoch.Add(5*time.Minute), 4*gib, now, func(p *stats.PodStats) {
		p.Containers[0].Rootfs.V.Partial = p.PodRef.UID == "large"
	})
	if uid == "" {
		t.Error("five new pods hold 35 of the 36 GiB that were taken, and nobody goes")
	}
}

// A look that did not find every pod measured is made again soon, and ever later while that stays so.
func TestALookThatMissedSomethingIsMadeAgain(t *testing.T) {
	whole := func(p *stats.PodStats) {
		st := &p.EphemeralStorage
		st.Time, st.UsedBytes = epoch.Add(time.Hour), stats.Some(uint64(gib))
	}
	but := func(change func(st *stats.PodStorageStats)) func(p *stats.PodStats) {
		return func(p *stats.PodStats) {
			if whole(p); p.PodRef.UID == "a" {
				change(&p.EphemeralStorage)
			}
		}
	}
	for _, c := range []struct {
		name   string
		held   uint64 // by a
		change func(p *stats.PodStats)
		again  []time.Duration
	}{
		{"all is measured", gib, whole, []time.Duration{0, 0}},
		{"one is not", 0, whole, []time.Duration{1, 2, 4, 8, 15, 15}},
		{"one has just begun", 0, began("a", epoch.Add(-time.Second)), []time.Duration{1, 2}},
		{"one was measured long ago", gib, but(func(st *stats.PodStorageStats) { st.Time = epoch.Add(-time.Minute) }), []time.Duration{1, 2}},
		{"one not to its end", gib, but(func(st *stats.PodStorageStats) { st.Partial = true }), []time.Duration{1, 2}},
		{"a part of one is missing", gib, but(func(st *stats.PodStorageStats) { st.UsedBytes.OK = false }), []time.Duration{1, 2}},
	} {
		m := explainer(t)
		at := epoch
		for i, want := range c.again {
			want *= time.Minute
			lookAt(m, at, 40*gib, map[string]uint64{"a": c.held, "b": gib}, c.change)
			if q := m.explain.quiet[stats.SignalNodeFsAvailable]; q.at != at || q.again != want {
				t.Errorf("%s, look %d: made at %v, want %v; again after %v, want %v", c.name, i, q.at, at, q.again, want)
			}
			next := at.Add(max(want, time.Minute))
			if early := next.Add(-time.Second); want > 0 {
				lookAt(m, early, 40*gib, map[string]uint64{"a": c.held, "b": gib}, c.change)
			}
			if at = next; want == 0 {
				at = at.Add(quietEvery)
			}
		}
		lookAt(m, at, 40*gib, map[string]uint64{"a": gib, "b": gib}, whole)
		if q := m.explain.quiet[stats.SignalNodeFsAvailable]; q.again != 0 {
			t.Errorf("%s: all is measured, and it is looked at again after %v", c.name, q.again)
		}
	}
}
