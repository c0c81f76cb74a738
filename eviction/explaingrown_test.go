package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jettison/stats"
)

// explainerWithMinReclaim returns a manager whose minimum reclaim of 5 GiB prolongs a disk's
// shortage.
func explainerWithMinReclaim(t *testing.T) *Manager {
	m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.available 10Gi", "min nodefs.available 5Gi")
	m.config.Replay, m.config.Explain = false, true
	return m
}

// If a minimum reclaim keeps a disk short whose use has grown by nothing or next to nothing since
// it was quiet, pods must explain what is missing: a file of the node that is gone again costs no
// pod. A pod that has grown by that much explains it, whatever else shrank.
func TestAMinimumReclaimIsNoShortageOfAPods(t *testing.T) {
	pods := map[string]uint64{"innocent": 3 * gib, "other": gib}
	for _, c := range []struct {
		name   string
		left   uint64 // once the files of the node are gone
		now    map[string]uint64
		victim string
	}{
		{"more is left than when it was quiet", 13 * gib, pods, ""},
		{"as much is left", 12 * gib, pods, ""},
		{"and a byte less, which a pod has written", 12*gib - 1, map[string]uint64{"innocent": 3*gib + 1, "other": gib}, ""},
		{"it is short still", 9 * gib, pods, ""},
		{"a pod has grown by what is missing", 13 * gib, map[string]uint64{"innocent": 3 * gib, "other": 4 * gib}, "other"},
	} {
		m := explainerWithMinReclaim(t)
		quietAt(m, epoch, 12*gib, pods)
		at := epoch.Add(time.Minute)
		if d := shortAt(m, at, 6*gib, pods); len(d.Evictions) > 0 || !d.Unexplained {
			t.Fatalf("%s: first step: %d evictions, unexplained %v, want a doubt: %s", c.name, len(d.Evictions), d.Unexplained, d.Reason)
		}
		if uid, _ := firstEviction(m, at.Add(5*time.Second), suspectDelay, c.left, c.now, ""); uid != c.victim {
			t.Errorf("%s: victim = %q, want %q", c.name, uid, c.victim)
		}
	}
	// A pod that wrote everything that was taken is evicted immediately, although more than that is
	// missing.
	m := explainerWithMinReclaim(t)
	quietAt(m, epoch, 12*gib, pods)
	now := map[string]uint64{"innocent": 3 * gib, "other": 3*gib + gib/2}
	if uid, after := firstEviction(m, epoch.Add(time.Minute), time.Hour, 10*gib-gib/2, now, ""); uid == "" || after != 0 {
		t.Errorf("victim = %q after %v, want one immediately", uid, after)
	}
}

// A raised threshold makes a disk short that has lost nothing since it was quiet: there too pods
// must explain what is missing.
func TestRaisedThresholdEvictsNoPod(t *testing.T) {
	pods := map[string]uint64{"innocent": 3 * gib, "other": gib}
	before := explainer(t)
	quietAt(before, epoch, 12*gib, pods)
	for _, c := range []struct {
		now    map[string]uint64
		victim string
	}{{pods, ""}, {map[string]uint64{"innocent": 3 * gib, "other": 5 * gib}, "other"}} {
		m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.available 20Gi")
		m.config.Replay, m.config.Explain = false, true
		if dropped := m.Resume(epoch, throughFile(t, before.Save())); len(dropped) > 0 {
			t.Errorf("Resume dropped %v, want nothing", dropped)
		}
		if uid, _ := firstEviction(m, epoch.Add(time.Minute), suspectDelay, 13*gib, c.now, ""); uid != c.victim {
			t.Errorf("victim = %q, want %q", uid, c.victim)
		}
	}
}

// What a pod held that is gone since a disk was quiet is free: a successor that holds as much has
// taken nothing. It is not free while the pod's directories exist. It does not shield a pod that
// existed before, nor one that takes more.
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
		in.Summary.RemainingDirs = c.remains
		m.Observe(at, &in.Summary.Node, Situation{})
		m.Step(at, in)
		uid := ""
		if d := m.StepAfterReclaim(at, in); len(d.Evictions) > 0 {
			uid = d.Evictions[0].Pod.PodRef.UID
		}
		if uid != c.victim {
			t.Errorf("%s: victim = %q, want %q", c.name, uid, c.victim)
		}
	}
}

// The same if the earlier pod is still listed and has ended.
func TestEndedPodFreesItsUsage(t *testing.T) {
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
	if d := m.StepAfterReclaim(at, in); len(d.Evictions) > 0 {
		t.Errorf("%s is evicted for files of the node, want no eviction: %s", d.Evictions[0].Pod.PodRef.UID, d.Reason)
	}
}

// A pod that existed when a disk was quiet and was not measured, as during a long first walk, has
// not grown by everything that it holds: its growth is unknown. That survives a restart, and ends
// with a measurement while the disk is quiet.
func TestAPodThatWasNotMeasuredAtRestHasNotGrown(t *testing.T) {
	now := map[string]uint64{"first": gib, "large": 30 * gib}
	m := explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"first": gib, "large": 0})
	restored := explainer(t)
	if dropped := restored.Resume(epoch, throughFile(t, m.Save())); len(dropped) > 0 {
		t.Errorf("Resume dropped %v, want nothing", dropped)
	}
	if diff := cmp.Diff(m.Save(), restored.Save()); diff != "" {
		t.Errorf("saved state after a restart differs (-want +got):\n%s", diff)
	}
	for _, m := range []*Manager{m, restored} {
		if uid, _ := firstEviction(m, epoch.Add(time.Minute), suspectDelay, 4*gib, now, ""); uid != "" {
			t.Errorf("%s is evicted for files of the node, want no eviction", uid)
		}
	}
	m = explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"first": gib, "large": 0})
	quietAt(m, epoch.Add(quietEvery), 40*gib, map[string]uint64{"first": gib, "large": gib})
	if uid, _ := firstEviction(m, epoch.Add(quietEvery+time.Minute), time.Minute, 4*gib, now, ""); uid != "large" {
		t.Errorf("victim after a measurement = %q, want large", uid)
	}
	// It does not hide another pod that has grown.
	m = explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"first": gib, "large": 0})
	grown := map[string]uint64{"first": 32 * gib, "large": 30 * gib}
	if uid, _ := firstEviction(m, epoch.Add(time.Minute), time.Minute, 4*gib, grown, ""); uid != "first" {
		t.Errorf("victim = %q, want first, which has grown", uid)
	}
}

// Saved unmeasured pods are bounded.
func TestSavedUnmeasuredPods(t *testing.T) {
	m := explainer(t)
	saved := Saved{Disks: []SavedDisk{{Signal: "nodefs.available", Quiet: epoch, Pods: map[string]uint64{"a": 1}, Unmeasured: []string{"b", "c/d", ""}}}}
	if dropped := m.Resume(epoch, saved); len(dropped) != 1 || len(m.explain.quiet["nodefs.available"].unmeasured) != 1 {
		t.Errorf("Resume dropped %v, quiet disks %+v, want one error and one unmeasured pod", dropped, m.explain.quiet)
	}
	saved.Disks[0].Unmeasured = slices.Repeat([]string{"b"}, maxRemembered+1)
	if dropped := explainer(t).Resume(epoch, saved); len(dropped) != 1 {
		t.Errorf("Resume of too many pods dropped %v, want one error", dropped)
	}
}
