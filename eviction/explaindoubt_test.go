package eviction

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jettison/stats"
)

const gib = 1 << 30

// firstEviction steps every 20 s for that long while a disk is short, and returns the victim and its
// time. atLeast is the pod whose usage is a lower bound.
func firstEviction(m *Manager, at time.Time, long time.Duration, left uint64, pods map[string]uint64, atLeast string) (uid string, after time.Duration) {
	for after := time.Duration(0); after < long; after += 20 * time.Second {
		in := disks(at.Add(after), left, pods)
		for i := range in.Summary.Pods {
			if p := &in.Summary.Pods[i]; p.PodRef.UID == atLeast {
				p.Containers[0].Rootfs.V.Partial = true
			}
		}
		m.Observe(at.Add(after), &in.Summary.Node, Situation{})
		m.Step(at.Add(after), in)
		if d := m.StepAfterReclaim(at.Add(after), in); len(d.Evictions) > 0 {
			return d.Evictions[0].Pod.PodRef.UID, after
		}
	}
	return "", long
}

// A pod with a lower bound, or with unmeasured usage, might hold everything that is short: it is
// evicted after the delay. If nothing is left, the delay ends immediately, and any pod that would
// help is evicted, although all of them would not return everything that is short.
func TestNobodyIsSparedForEverByLowerBounds(t *testing.T) {
	then := map[string]uint64{"leaker": gib / 2, "b": 3 * gib}
	for _, c := range []struct {
		name    string
		left    uint64
		now     map[string]uint64
		atLeast string
		victim  string
		after   time.Duration
	}{
		{"a lower bound", 0, map[string]uint64{"leaker": gib, "b": 3 * gib}, "leaker", "leaker", 20 * time.Second},
		{"a lower bound, and a little is left", 2 * gib, map[string]uint64{"leaker": gib, "b": 3 * gib}, "leaker", "leaker", suspectDelay},
		{"one that is not measured", 2 * gib, map[string]uint64{"leaker": 0, "b": 3 * gib}, "", "leaker", suspectDelay},
		{"nothing is left, and what all hold is not all that is short", 0, map[string]uint64{"leaker": gib, "b": 8*gib + gib/2}, "", "b", 20 * time.Second},
		{"nothing is left, and what all hold is next to nothing", 0, map[string]uint64{"leaker": 1 << 20, "b": 2 << 20}, "", "", 0},
		{"what all hold is not all that is short", 2 * gib, map[string]uint64{"leaker": gib, "b": 3 * gib}, "", "", 0},
	} {
		m := explainer(t)
		quietAt(m, epoch, 90*gib, then)
		uid, after := firstEviction(m, epoch.Add(time.Minute), 26*time.Hour, c.left, c.now, c.atLeast)
		if uid != c.victim || uid != "" && after != c.after {
			t.Errorf("%s: victim = %q after %v, want %q after %v", c.name, uid, after, c.victim, c.after)
		}
	}
}

// The end of all pods need not return the minimum reclaim too.
func TestMinimumReclaimSparesNoPod(t *testing.T) {
	m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.available 10Gi", "min nodefs.available 5Gi")
	m.config.Replay, m.config.Explain = false, true
	pods := map[string]uint64{"a": 6 * gib}
	quietAt(m, epoch, 90*gib, pods)
	if uid, after := firstEviction(m, epoch.Add(time.Minute), time.Hour, 5*gib, pods, ""); uid != "a" || after != suspectDelay {
		t.Errorf("victim = %q after %v, want a after %v", uid, after, suspectDelay)
	}
}

// Images grew by 8 GiB in weeks on a disk that is always near its limit of 10 GiB; then a pod
// writes 7 GiB in a minute.
func TestSlowGrowthDoesNotShieldALeaker(t *testing.T) {
	m := explainer(t)
	pods := map[string]uint64{"leaker": gib, "b": gib}
	at := epoch
	for left := uint64(19); left >= 11; left-- { // one GiB per day
		quietAt(m, at, left*gib, pods)
		at = at.Add(24 * time.Hour)
	}
	if q := m.explain.quiet[stats.SignalNodeFsAvailable]; q.used != 89*gib {
		t.Errorf("use of the quiet disk = %d GiB, want 89 GiB", q.used/gib)
	}
	if uid, after := firstEviction(m, at, time.Hour, 4*gib, map[string]uint64{"leaker": 8 * gib, "b": gib}, ""); uid != "leaker" || after != 0 {
		t.Errorf("victim = %q after %v, want leaker immediately", uid, after)
	}
}

// A pod that alone has grown by what is short is evicted immediately, although something else took
// more. A pod that grew by little while little is short is not, nor one that is only large.
func TestWhoAloneEndsTheShortageGoes(t *testing.T) {
	then := map[string]uint64{"a": gib, "b": 5 * gib}
	for _, c := range []struct {
		name   string
		left   uint64
		now    map[string]uint64
		victim string
	}{
		{"7 of 15 GiB", 4 * gib, map[string]uint64{"a": 8 * gib, "b": 5 * gib}, "a"},
		{"5 of 15 GiB, which is not enough", 4 * gib, map[string]uint64{"a": 6 * gib, "b": 5 * gib}, ""},
		{"1 of 9 GiB, which is enough", 10*gib - 1, map[string]uint64{"a": gib, "b": 6 * gib}, ""},
		{"the other one has grown", 8 * gib, map[string]uint64{"a": 4 * gib, "b": 5 * gib}, ""},
	} {
		m := explainer(t)
		quietAt(m, epoch, 19*gib, then)
		if uid, _ := firstEviction(m, epoch.Add(time.Minute), suspectDelay, c.left, c.now, ""); uid != c.victim {
			t.Errorf("%s: victim = %q, want %q", c.name, uid, c.victim)
		}
	}
}

// A shortage that repeatedly ends for a moment does not restart the delay, and the disk is
// not quiet meanwhile.
func TestIntermittentShortageIsOneDoubt(t *testing.T) {
	m := explainer(t)
	pods := map[string]uint64{"a": 15 * gib, "b": gib}
	quietAt(m, epoch, 90*gib, pods)
	began := epoch.Add(10 * time.Minute)
	at := began
	for i := range 60 {
		at = at.Add(10 * time.Second)
		left := uint64(9)
		if i%4 == 3 {
			left = 10
		}
		if d := shortAt(m, at, left*gib+uint64(i%2), pods); len(d.Evictions) > 0 {
			if after := at.Sub(began.Add(10 * time.Second)); after != suspectDelay {
				t.Errorf("first eviction after %v, want %v", after, suspectDelay)
			}
			if q := m.explain.quiet[stats.SignalNodeFsAvailable]; !q.at.Equal(epoch) {
				t.Errorf("disk recorded as quiet at %v, want no record between two shortages", q.at.Sub(epoch))
			}
			return
		}
	}
	t.Error("no eviction in ten minutes, want one after suspectDelay")
}

// After a restart a shortage is compared with the same values, for the same time.
func TestRestartKeepsDoubts(t *testing.T) {
	m := explainer(t)
	pods := map[string]uint64{"a": 5 * gib, "b": gib}
	quietAt(m, epoch, 90*gib, pods)
	if !m.NeedsSave() {
		t.Error("Unsaved = false after a look at a quiet disk, want true")
	}
	at := epoch.Add(time.Minute)
	if d := shortAt(m, at, 5*gib, pods); len(d.Evictions) > 0 {
		t.Fatalf("%s is evicted immediately, want a delay", d.Evictions[0].Pod.PodRef.UID)
	}
	restored := explainer(t)
	if dropped := restored.Resume(at, throughFile(t, m.Save())); len(dropped) > 0 || m.NeedsSave() {
		t.Errorf("Resume dropped %v, Unsaved = %v, want nothing and false", dropped, m.NeedsSave())
	}
	if diff := cmp.Diff(m.Save(), restored.Save()); diff != "" {
		t.Errorf("saved state after a restart differs (-want +got):\n%s", diff)
	}
	at = at.Add(10 * time.Second)
	if uid, after := firstEviction(restored, at, time.Hour, 5*gib, pods, ""); uid != "a" || after != suspectDelay {
		t.Errorf("victim after a restart = %q after %v, want a after %v", uid, after, suspectDelay)
	}
}

// Saved disks are bounded, and implausible values are dropped. A file without them is an older
// agent's.
func TestSavedDisksAreBounded(t *testing.T) {
	far := epoch.Add(1000 * time.Hour)
	m := explainer(t)
	dropped := m.Resume(epoch, Saved{Disks: []SavedDisk{
		{Signal: "memory.available", Quiet: epoch},
		{Signal: "x\ny", Quiet: epoch},
		{Signal: "imagefs.available", Quiet: epoch, Used: math.MaxUint64},
		{Signal: "nodefs.inodesFree", Doubt: epoch},
		{Signal: "nodefs.available", Quiet: far, Used: 60 * gib, Pods: map[string]uint64{"a": gib, "b": math.MaxUint64, "c/d": 1}, Doubt: far, Ended: far},
	}})
	if len(dropped) != 5 || !strings.Contains(dropped[4].Error(), "2 of 3") || len(m.explain.quiet) != 1 {
		t.Errorf("Resume dropped %v, %d quiet disks, want 5 errors and one disk", dropped, len(m.explain.quiet))
	}
	q, d := m.explain.quiet["nodefs.available"], m.explain.doubts["nodefs.available"]
	if !q.at.Equal(epoch) || len(q.pods) != 1 || !d.since.Equal(epoch) || !d.ended.Equal(epoch) {
		t.Errorf("quiet disk = %+v, doubt = %+v, want times at most epoch and one pod", q, d)
	}
	many := quietDisk{at: epoch, pods: map[string]uint64{}}
	for i := range 2 * maxRemembered {
		many.pods[strings.Repeat("u", i%200+1)+string(rune('a'+i/200))] = uint64(i)
	}
	m.explain.quiet["nodefs.available"] = many
	if s := m.Save(); len(s.Disks) != 1 || len(s.Disks[0].Pods) != maxRemembered {
		t.Errorf("saved %d pods of the disk, want %d", len(s.Disks[0].Pods), maxRemembered)
	}
	if errs := explainer(t).Resume(epoch, Saved{}); len(errs) > 0 {
		t.Errorf("Resume of a file without disks: %v, want no errors", errs)
	}
}

// A shortage minutes after the end of another one has a delay of its own: only the time counts in
// which the disk was short.
func TestAnotherShortageIsDelayedToo(t *testing.T) {
	m := explainer(t)
	pods := map[string]uint64{"a": 15 * gib, "b": gib}
	quietAt(m, epoch, 90*gib, pods)
	at := epoch.Add(10 * time.Minute)
	for range 2 {
		if d := shortAt(m, at, 9*gib, pods); len(d.Evictions) > 0 {
			t.Fatalf("%s is evicted immediately, want a delay", d.Evictions[0].Pod.PodRef.UID)
		}
		at = at.Add(10 * time.Second)
	}
	quietAt(m, at, 20*gib, pods)
	at = at.Add(5 * time.Minute)
	if uid, after := firstEviction(m, at, time.Hour, 9*gib, pods, ""); uid != "a" || after < suspectDelay-20*time.Second {
		t.Errorf("victim = %q after %v of the second shortage, want a after %v", uid, after, suspectDelay-20*time.Second)
	}
}
