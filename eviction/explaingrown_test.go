package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jettison/stats"
)

// reclaiming is an explainer that a minimum reclaim of 5 GiB keeps short for longer.
func reclaiming(t *testing.T) *Manager {
	m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.available 10Gi", "min nodefs.available 5Gi")
	m.config.Replay, m.config.Explain = false, true
	return m
}

// While a minimum reclaim keeps a disk short that has no more used than when it was quiet, or next to no more, what is missing is to be
// explained: a file of the node's that is gone again costs no pod. One that has grown meanwhile by that explains it, whatever else shrank.
func TestAMinimumReclaimIsNoShortageOfAPods(t *testing.T) {
	pods := map[string]uint64{"innocent": 3 * gib, "other": gib}
	for _, c := range []struct {
		name   string
		left   uint64 // once what the node took is gone
		now    map[string]uint64
		victim string
	}{
		{"more is left than when it was quiet", 13 * gib, pods, ""},
		{"as much is left", 12 * gib, pods, ""},
		{"and a byte less, which a pod has written", 12*gib - 1, map[string]uint64{"innocent": 3*gib + 1, "other": gib}, ""},
		{"it is short still", 9 * gib, pods, ""},
		{"a pod has grown by what is missing", 13 * gib, map[string]uint64{"innocent": 3 * gib, "other": 4 * gib}, "other"},
	} {
		m := reclaiming(t)
		quietAt(m, epoch, 12*gib, pods)
		at := epoch.Add(time.Minute)
		if d := shortAt(m, at, 6*gib, pods); len(d.Evictions) > 0 || !d.Unexplained {
			t.Fatalf("%s: at first: %+v", c.name, d.Reason)
		}
		if uid, _ := goesAfter(m, at.Add(5*time.Second), 9*time.Minute, c.left, c.now, ""); uid != c.victim {
			t.Errorf("%s: %q goes, want %q", c.name, uid, c.victim)
		}
	}
	// One that wrote all that was taken goes at once, though more than that is missing.
	m := reclaiming(t)
	quietAt(m, epoch, 12*gib, pods)
	now := map[string]uint64{"innocent": 3 * gib, "other": 3*gib + gib/2}
	if uid, after := goesAfter(m, epoch.Add(time.Minute), time.Hour, 10*gib-gib/2, now, ""); uid == "" || after != 0 {
		t.Errorf("%q goes after %v", uid, after)
	}
}

// A threshold that was raised makes a disk short that has lost nothing since it was quiet: what is missing is to be explained there, too.
func TestAThresholdThatWasRaisedCostsNoPod(t *testing.T) {
	pods := map[string]uint64{"innocent": 3 * gib, "other": gib}
	before := explainer(t)
	quietAt(before, epoch, 12*gib, pods)
	for _, c := range []struct {
		now    map[string]uint64
		victim string
	}{{pods, ""}, {map[string]uint64{"innocent": 3 * gib, "other": 5 * gib}, "other"}} {
		m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.available 20Gi")
		m.config.Replay, m.config.Explain = false, true
		if dropped := m.Resume(epoch, onFile(t, before.Save())); len(dropped) > 0 {
			t.Error(dropped)
		}
		if uid, _ := goesAfter(m, epoch.Add(time.Minute), 9*time.Minute, 13*gib, c.now, ""); uid != c.victim {
			t.Errorf("%q goes, want %q", uid, c.victim)
		}
	}
}

// What a pod held that is gone since a disk was quiet is free: its successor, which holds as much, has taken nothing. It is not free while
// the pod's directories are there, nor does it shield one that was there before, or one that takes more than that.
func TestAPodThatWasReplacedHasTakenNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		then    map[string]uint64
		now     map[string]uint64
		remains []string
		victim  string
	}{
		{"replaced", map[string]uint64{"old": 30 * gib, "other": gib}, map[string]uint64{"new": 30 * gib, "other": gib}, nil, ""},
		{"its files are there", map[string]uint64{"old": 30 * gib, "other": gib}, map[string]uint64{"new": 30 * gib, "other": gib}, []string{"old"}, "new"},
		{"it takes more", map[string]uint64{"old": 10 * gib, "other": gib}, map[string]uint64{"new": 46 * gib, "other": gib}, nil, "new"},
		{"another one grows", map[string]uint64{"old": 20 * gib, "other": gib}, map[string]uint64{"other": 20 * gib}, nil, "other"},
		{"several", map[string]uint64{"o1": 15 * gib, "o2": 15 * gib, "other": gib}, map[string]uint64{"n1": 15 * gib, "n2": 15 * gib, "other": gib}, nil, ""},
	} {
		m := explainer(t)
		quietAt(m, epoch, 40*gib, c.then)
		at := epoch.Add(time.Minute)
		in := disks(at, 4*gib, c.now)
		in.Summary.Remains = c.remains
		m.Observe(at, &in.Summary.Node, Situation{})
		m.Step(at, in)
		uid := ""
		if d := m.Reclaimed(at, in); len(d.Evictions) > 0 {
			uid = d.Evictions[0].Pod.PodRef.UID
		}
		if uid != c.victim {
			t.Errorf("%s: %q goes, want %q", c.name, uid, c.victim)
		}
	}
}

// The same where the one before is listed still, and has ended.
func TestAPodThatHasEndedFreesWhatItHeld(t *testing.T) {
	m := explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"old": 30 * gib, "other": gib})
	at := epoch.Add(time.Minute)
	in := disks(at, 4*gib, map[string]uint64{"old": 1 << 20, "n1": 15 * gib, "n2": 15 * gib, "other": gib})
	for i := range in.Summary.Pods {
		if p := &in.Summary.Pods[i]; p.PodRef.UID == "old" {
			p.Populated = stats.Some(false)
		}
	}
	m.Observe(at, &in.Summary.Node, Situation{})
	m.Step(at, in)
	if d := m.Reclaimed(at, in); len(d.Evictions) > 0 {
		t.Errorf("%s goes for what the node took: %s", d.Evictions[0].Pod.PodRef.UID, d.Reason)
	}
}

// A pod that was there when a disk was quiet, and not measured, as while its first walk takes long, has not grown by all that it holds: how
// much it has is not known. That outlives a restart, and ends as soon as it was measured at rest.
func TestAPodThatWasNotMeasuredAtRestHasNotGrown(t *testing.T) {
	now := map[string]uint64{"first": gib, "large": 30 * gib}
	m := explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"first": gib, "large": 0})
	again := explainer(t)
	if dropped := again.Resume(epoch, onFile(t, m.Save())); len(dropped) > 0 {
		t.Error(dropped)
	}
	if diff := cmp.Diff(m.Save(), again.Save()); diff != "" {
		t.Error(diff)
	}
	for _, m := range []*Manager{m, again} {
		if uid, _ := goesAfter(m, epoch.Add(time.Minute), 9*time.Minute, 4*gib, now, ""); uid != "" {
			t.Errorf("%s goes for what the node took", uid)
		}
	}
	m = explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"first": gib, "large": 0})
	quietAt(m, epoch.Add(quietEvery), 40*gib, map[string]uint64{"first": gib, "large": gib})
	if uid, _ := goesAfter(m, epoch.Add(quietEvery+time.Minute), time.Minute, 4*gib, now, ""); uid != "large" {
		t.Errorf("measured since: %q goes", uid)
	}
	// Nor does it hide another one that has.
	m = explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"first": gib, "large": 0})
	grown := map[string]uint64{"first": 32 * gib, "large": 30 * gib}
	if uid, _ := goesAfter(m, epoch.Add(time.Minute), time.Minute, 4*gib, grown, ""); uid != "first" {
		t.Errorf("beside one that has grown: %q goes", uid)
	}
}

// What a file says of pods that were not measured is bounded.
func TestSavedPodsThatWereNotMeasured(t *testing.T) {
	m := explainer(t)
	saved := Saved{Disks: []SavedDisk{{Signal: "nodefs.available", Quiet: epoch, Pods: map[string]uint64{"a": 1}, Unmeasured: []string{"b", "c/d", ""}}}}
	if dropped := m.Resume(epoch, saved); len(dropped) != 1 || len(m.explain.quiet["nodefs.available"].unmeasured) != 1 {
		t.Errorf("%v, %+v", dropped, m.explain.quiet)
	}
	saved.Disks[0].Unmeasured = slices.Repeat([]string{"b"}, maxRemembered+1)
	if dropped := explainer(t).Resume(epoch, saved); len(dropped) != 1 {
		t.Error(dropped)
	}
}
