package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// fullDiskLook makes one full look at a disk with that much left, with pods changed. It returns the
// victim.
func fullDiskLook(m *Manager, at time.Time, left uint64, pods map[string]uint64, change func(p *stats.PodStats)) string {
	in := disks(at, left, pods)
	for i := range in.Summary.Pods {
		if change != nil {
			change(&in.Summary.Pods[i])
		}
	}
	m.Observe(at, &in.Summary.Node, Situation{})
	m.Step(at, in)
	if d := m.StepAfterReclaim(at, in); len(d.Evictions) > 0 {
		return d.Evictions[0].Pod.PodRef.UID
	}
	return ""
}

// evictedWithinDelay looks every 10 s until the delay is over, and returns the victim.
func evictedWithinDelay(m *Manager, at time.Time, left uint64, pods map[string]uint64, change func(p *stats.PodStats)) (uid string) {
	for after := time.Duration(0); after < suspectDelay && uid == ""; after += 10 * time.Second {
		uid = fullDiskLook(m, at.Add(after), left, pods, change)
	}
	return uid
}

// startedAt gives one pod sandboxes, the newest of which was created at that time.
func startedAt(uid string, at time.Time, sandboxes ...string) func(p *stats.PodStats) {
	return func(p *stats.PodStats) {
		if p.PodRef.UID == uid {
			p.StartTime, p.SandboxIDs = at, sandboxes
		}
	}
}

// A look at a quiet disk finds a pod that has just started and that could not be measured. It held
// nothing then: if it fills the disk it is evicted. A pod that ran for long and could not be
// measured is unknown, whenever its sandbox was recreated.
func TestAPodThatHadJustBegunHeldNothing(t *testing.T) {
	unannounced := func(p *stats.PodStats) { p.Announced = p.PodRef.UID != "filler" }
	two := []string{"s2", "s1"}
	for _, c := range []struct {
		name      string
		then, now func(p *stats.PodStats)
		victim    string
	}{
		{"it had begun right before", startedAt("filler", epoch.Add(-2*time.Second)), nil, "filler"},
		{"its first sandbox was being created", unannounced, startedAt("filler", epoch.Add(2*time.Second), "s1"), "filler"},
		{"it had been there for long", startedAt("filler", epoch.Add(-time.Minute)), startedAt("filler", epoch.Add(-time.Minute)), ""},
		{"and was announced later", unannounced, startedAt("filler", epoch.Add(-time.Hour), "s1"), ""},
		{"its sandbox is made anew", startedAt("filler", epoch.Add(-time.Hour)), startedAt("filler", epoch.Add(time.Second), "s2"), ""},
		{"its sandbox was being recreated", unannounced, startedAt("filler", epoch.Add(2*time.Second), two...), ""},
		{"its sandbox had just been made anew", startedAt("filler", epoch.Add(-time.Second), two...), nil, ""},
		{"the runtime does not say", nil, nil, ""},
		{"and was announced later, by a clock that was ahead", unannounced, startedAt("filler", epoch.Add(90*time.Minute), "s1"), ""},
		{"a clock that was ahead", startedAt("filler", epoch.Add(90*time.Minute)), startedAt("filler", epoch.Add(90*time.Minute)), ""},
	} {
		m := explainer(t)
		fullDiskLook(m, epoch, 40*gib, map[string]uint64{"filler": 0, "modest": gib, "talker": gib}, c.then)
		now := map[string]uint64{"filler": 36 * gib, "modest": gib, "talker": gib}
		if uid := fullDiskLook(m, epoch.Add(10*time.Second), 4*gib, now, c.now); uid != c.victim {
			t.Errorf("%s: victim = %q, want %q", c.name, uid, c.victim)
		}
	}
}

// A look waits for measurements. A pod that starts meanwhile held nothing when the look was
// requested.
func TestPodStartedWhileQuietLookWaited(t *testing.T) {
	m := explainer(t)
	in := disks(epoch, 40*gib, map[string]uint64{"modest": gib, "talker": gib, "slow": 0})
	m.Observe(epoch, &in.Summary.Node, Situation{})
	in.Measuring = true
	m.Step(epoch, in)
	at := epoch.Add(freshLimit)
	set := startedAt("filler", epoch.Add(time.Second))
	fullDiskLook(m, at, 40*gib, map[string]uint64{"modest": gib, "talker": gib, "slow": 0, "filler": 0}, set)
	if m.explain.quietLookDue {
		t.Fatal("look at a quiet disk is still due, want it made")
	}
	now := map[string]uint64{"modest": gib, "talker": gib, "slow": 0, "filler": 36 * gib}
	if uid := evictedWithinDelay(m, at.Add(30*time.Second), 4*gib, now, set); uid != "filler" {
		t.Errorf("victim = %q, want filler", uid)
	}
}

// Files of one tenant that share blocks, or an old value of files that are gone, make the sum
// exceed what is used. What others held still counts.
func TestWhatOneHoldsTooMuchIsNotTakenFromOthers(t *testing.T) {
	m := explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"tenant": 500 * gib, "innocent": 30 * gib, "other": gib})
	now := map[string]uint64{"tenant": 1 << 20, "innocent": 30 * gib, "other": gib}
	if uid := evictedWithinDelay(m, epoch.Add(5*time.Minute), 4*gib, now, nil); uid != "" {
		t.Errorf("victim = %q, want none for files of images", uid)
	}
}

// A look that did not find every pod measured is repeated soon, and ever later while that does not
// change.
func TestIncompleteQuietLookIsRepeated(t *testing.T) {
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
		{"one has just begun", 0, startedAt("a", epoch.Add(-time.Second)), []time.Duration{1, 1, 2}},
		{"one was measured long ago", gib, but(func(st *stats.PodStorageStats) { st.Time = epoch.Add(-time.Minute) }), []time.Duration{1, 2}},
		{"one not to its end", gib, but(func(st *stats.PodStorageStats) { st.Partial = true }), []time.Duration{1, 2}},
		{"a part of one is missing", gib, but(func(st *stats.PodStorageStats) { st.UsedBytes.OK = false }), []time.Duration{1, 2}},
	} {
		m := explainer(t)
		at := epoch
		for i, want := range c.again {
			want *= time.Minute
			fullDiskLook(m, at, 40*gib, map[string]uint64{"a": c.held, "b": gib}, c.change)
			if q := m.explain.quiet[stats.SignalNodeFsAvailable]; q.at != at || q.nextLook != want {
				t.Errorf("%s, look %d: made at %v, want %v; next after %v, want %v", c.name, i, q.at, at, q.nextLook, want)
			}
			next := at.Add(max(want, time.Minute))
			if early := next.Add(-time.Second); want > 0 {
				fullDiskLook(m, early, 40*gib, map[string]uint64{"a": c.held, "b": gib}, c.change)
			}
			if at = next; want == 0 {
				at = at.Add(quietEvery)
			}
		}
		fullDiskLook(m, at, 40*gib, map[string]uint64{"a": gib, "b": gib}, whole)
		if q := m.explain.quiet[stats.SignalNodeFsAvailable]; q.nextLook != 0 {
			t.Errorf("%s: next look of a fully measured disk after %v, want the default", c.name, q.nextLook)
		}
	}
}

// A newly missing pod is looked at within a minute, whatever else has been missing for long.
func TestNewlyMissingPodIsMeasuredSoon(t *testing.T) {
	m, at := explainer(t), epoch
	hostile := func(p *stats.PodStats) {
		st := &p.EphemeralStorage
		st.Time, st.UsedBytes, st.Partial = epoch.Add(9*time.Hour), stats.Some(uint64(gib)), p.PodRef.UID == "hostile"
	}
	pods := map[string]uint64{"hostile": gib, "a": gib, "b": gib}
	for range 8 {
		fullDiskLook(m, at, 40*gib, pods, hostile)
		at = at.Add(quietEvery)
	}
	pods["slow"] = 0 // its first walk is not finished
	fullDiskLook(m, at, 40*gib, pods, hostile)
	pods["slow"] = gib
	fullDiskLook(m, at.Add(2*time.Minute), 40*gib, pods, hostile)
	pods["slow"] = 36 * gib
	if uid := fullDiskLook(m, at.Add(10*time.Minute), 5*gib, pods, hostile); uid != "slow" {
		t.Errorf("victim = %q, want slow, which was measured 8 minutes before it filled the disk", uid)
	}
}

// A pod that had just started at the look and replaces one that is gone has taken nothing.
func TestNewSuccessorExplainsNothing(t *testing.T) {
	m, set := explainer(t), startedAt("new", epoch.Add(-2*time.Second), "s")
	fullDiskLook(m, epoch, 40*gib, map[string]uint64{"old": 30 * gib, "other": gib, "new": 0}, set)
	if uid := fullDiskLook(m, epoch.Add(50*time.Second), 4*gib, map[string]uint64{"new": 30 * gib, "other": gib}, set); uid != "" {
		t.Errorf("victim = %q, want none for files of images", uid)
	}
}

// Pods that have just started are not measured: if they are half of all pods, it is unknown what
// the others held.
func TestNewPodsDoNotCountAsMeasured(t *testing.T) {
	m := explainer(t)
	set := func(p *stats.PodStats) {
		if p.StartTime = epoch.Add(-time.Hour); p.PodRef.UID[0] == 'n' {
			p.StartTime, p.SandboxIDs = epoch.Add(-2*time.Second), []string{"s"}
		}
	}
	fullDiskLook(m, epoch, 40*gib, map[string]uint64{"filler": 0, "x": gib, "n1": 0, "n2": 0}, set)
	now := map[string]uint64{"filler": 37 * gib, "x": gib, "n1": 1, "n2": 1}
	if uid := evictedWithinDelay(m, epoch.Add(30*time.Second), 4*gib, now, set); uid != "filler" {
		t.Errorf("victim = %q, want filler: one of four pods was measured on the quiet disk", uid)
	}
}

// A look that was requested right before a kubelet was detected is not made when the kubelet is
// gone, with the pods that were new then.
func TestQuietLookEndsWithKubelet(t *testing.T) {
	m := explainer(t)
	in := disks(epoch, 40*gib, map[string]uint64{"a": gib})
	m.Observe(epoch, &in.Summary.Node, Situation{})
	if !m.explain.quietLookDue {
		t.Fatal("no look at a quiet disk is due before the kubelet is detected")
	}
	in = disks(epoch.Add(time.Second), 40*gib, map[string]uint64{"a": gib})
	m.Observe(epoch.Add(time.Second), &in.Summary.Node, Situation{ObserveDisks: true})
	at, set := epoch.Add(2*time.Hour), startedAt("loader", epoch.Add(time.Minute), "s")
	fullDiskLook(m, at, 40*gib, map[string]uint64{"a": gib, "b": gib, "loader": 0}, set)
	if uid := fullDiskLook(m, at.Add(50*time.Second), 4*gib, map[string]uint64{"a": gib, "b": gib, "loader": 30 * gib}, set); uid != "" {
		t.Errorf("victim = %q, want none: its usage on the quiet disk is unknown", uid)
	}
}

// A look at quiet inodes, with a pod that is never measured, delays no victim for bytes.
func TestQuietLookDelaysNoVictim(t *testing.T) {
	m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.available 10Gi", "hard nodefs.inodesFree 1000")
	m.config.Replay, m.config.Explain = false, true
	for second := range 400 {
		at, left := epoch.Add(time.Duration(second)*time.Second), uint64(40*gib)
		if second >= 30 {
			left = 4 * gib
		}
		in := disks(at, left, map[string]uint64{"a": 30 * gib, "b": gib, "broken": 0})
		fs := &in.Summary.Node.Fs.V
		fs.Inodes, fs.InodesFree = stats.Some(uint64(1<<20)), stats.Some(uint64(1<<19))
		r := m.Observe(at, &in.Summary.Node, Situation{})
		if r.Look != LookFull {
			continue
		}
		if in.Measuring = !r.DiskMeasuredSince.IsZero(); in.Measuring && second > 30+int(freshLimit/time.Second) {
			t.Fatalf("at %d s a look at a short disk waits for measurements since %v", second, r.DiskMeasuredSince.Sub(epoch))
		}
		m.Step(at, in)
	}
}

// A look at quiet disks waits for measurements, also long after a victim's files were removed.
func TestQuietLookWaitsForMeasurementsAfterEviction(t *testing.T) {
	m := explainer(t)
	m.evictions.diskCleaned = epoch.Add(-time.Hour)
	in := disks(epoch, 40*gib, map[string]uint64{"a": gib})
	if r := m.Observe(epoch, &in.Summary.Node, Situation{}); r.DiskMeasuredSince != epoch {
		t.Errorf("DiskFresh = %v, want %v", r.DiskMeasuredSince, epoch)
	}
}
