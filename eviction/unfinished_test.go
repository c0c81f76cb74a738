package eviction

import (
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// inodes returns a node with that many of 200,000 inodes left, and 40 of 100 GiB, and pods that
// hold that many.
func inodes(at time.Time, left uint64, pods map[string]uint64, change func(p *stats.PodStats)) Input {
	in := disks(at, 40*gib, nil)
	fs := &in.Summary.Node.Fs.V
	fs.Inodes, fs.InodesFree = stats.Some(uint64(200_000)), stats.Some(left)
	in.Summary.Pods = disks(at, 0, pods).Summary.Pods
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		u := &p.Containers[0].Rootfs
		u.V.InodesUsed, u.V.UsedBytes, p.EphemeralStorage.Time = u.V.UsedBytes, u.V.UsedBytes<<12, at
		p.EphemeralStorage.UsedBytes = stats.Some(u.V.UsedBytes)
		if change != nil {
			change(p)
		}
	}
	return in
}

// inodesAt makes one look at that. It returns what the look asked for, and the decision.
func inodesAt(m *Manager, at time.Time, left uint64, pods map[string]uint64, change func(p *stats.PodStats)) (Ready, Decision) {
	in := inodes(at, left, pods, change)
	r := m.Observe(at, &in.Summary.Node, Situation{})
	m.Step(at, in)
	return r, m.StepAfterReclaim(at, in)
}

// cutOff makes a pod's usage that of a walk that was cut off.
func cutOff(uid string) func(p *stats.PodStats) {
	return func(p *stats.PodStats) {
		if p.PodRef.UID == uid {
			p.Containers[0].Rootfs.V.Partial, p.EphemeralStorage.Partial, p.EphemeralStorage.Cut = true, true, true
		}
	}
}

// measuredAt makes a pod's usage that of a time.
func measuredAt(uid string, at time.Time) func(p *stats.PodStats) {
	return func(p *stats.PodStats) {
		if p.PodRef.UID == uid {
			p.EphemeralStorage.Time = at
		}
	}
}

// A pod takes 140,000 inodes in a moment, and its walk is cut off, or is from before: that does not
// clear the pods. The pod is walked to its end, and evicted at the next look. The same holds if
// bytes are doubted as well, and after a restart.
func TestAFigureThatIsTooSmallKeepsADoubtOpen(t *testing.T) {
	rest := map[string]uint64{"filler": 10, "b": 3000}
	crossed := epoch.Add(time.Minute)
	for _, c := range []struct {
		name   string
		found  uint64
		change func(p *stats.PodStats)
		open   bool
	}{
		{"cut off", 22_341, cutOff("filler"), true},
		{"of before", 10, measuredAt("filler", crossed.Add(-time.Second)), true},
		{"not measured any more", 0, nil, true},
		{"what is taken is no pod's", 10, nil, false},
	} {
		for _, restart := range []bool{false, true} {
			fresh := func() *Manager {
				m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.inodesFree 150000", "hard nodefs.available 10Gi")
				m.config.Replay, m.config.Explain = false, true
				return m
			}
			m, at := fresh(), crossed.Add(rateWithin+time.Second)
			inodesAt(m, epoch, 190_000, rest, nil)
			now := map[string]uint64{"filler": c.found, "b": 3000}
			inodesAt(m, crossed, 120_000, now, measuredAt("filler", epoch))
			if restart {
				saved := throughFile(t, m.Save())
				if m = fresh(); len(m.Resume(at, saved)) > 0 {
					t.Fatal("Resume dropped saved state, want nothing dropped")
				}
			}
			for look := range 4 {
				r, d := inodesAt(m, at, 50_000, now, c.change)
				open := strings.Contains(d.Reason, "or 1 of 2 pods that are not completely measured")
				remeasures := strings.Contains(d.Reason, remeasureFirst)
				switch {
				case len(d.Evictions) > 0:
					t.Errorf("%s: %s is evicted, want no eviction", c.name, d.Evictions[0].Pod.PodRef.UID)
				case remeasures != (restart && look == 0), !remeasures && open != c.open:
					t.Errorf("%s, restart %v, look %d: wrong reason %q", c.name, restart, look, d.Reason)
				case r.DiskWalkedSince.IsZero() != (restart && look == 0):
					t.Errorf("%s: DiskWhole = %v, want the time of the doubt", c.name, r.DiskWalkedSince)
				}
				at = at.Add(fullRetry)
			}
			now["filler"] = 130_000
			if _, d := inodesAt(m, at, 50_000, now, nil); len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != "filler" {
				t.Errorf("%s: no eviction of filler after a complete walk: %s", c.name, d.Reason)
			}
		}
	}
}

// Once nothing is short, no walk is requested.
func TestNoWalkAfterDoubtEnded(t *testing.T) {
	m := explainer(t)
	pods := map[string]uint64{"a": gib}
	quietAt(m, epoch, 40*gib, pods)
	shortAt(m, epoch.Add(time.Minute), 5*gib, pods)
	if r := m.Ready(epoch.Add(time.Minute)); !r.DiskWalkedSince.Equal(epoch.Add(time.Minute)) {
		t.Errorf("DiskWhole during a doubt = %v, want its beginning", r.DiskWalkedSince)
	}
	in := disks(epoch.Add(2*time.Minute), 40*gib, pods)
	if r := m.Observe(epoch.Add(2*time.Minute), &in.Summary.Node, Situation{}); !r.DiskWalkedSince.IsZero() {
		t.Errorf("DiskWhole without a shortage = %v, want zero", r.DiskWalkedSince)
	}
}

// A pod whose walk was cut off on the quiet disk has not grown by what a longer one finds: images
// filled the disk. By complete measurements it has.
func TestAPodThatWasCutOffAtRestHasNotGrownByALongerWalk(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *stats.PodStats)
		victim string
	}{
		{"cut off", cutOff("giant"), ""},
		{"walked to its end", nil, "giant"},
	} {
		m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.inodesFree 60000")
		m.config.Replay, m.config.Explain = false, true
		inodesAt(m, epoch, 150_000, map[string]uint64{"giant": 20_000, "b": 3000}, c.change)
		restored := managerOf(t, 5*time.Minute, "own x", "hard nodefs.inodesFree 60000")
		restored.config.Replay, restored.config.Explain = false, true
		if dropped := restored.Resume(epoch, throughFile(t, m.Save())); len(dropped) > 0 {
			t.Errorf("Resume dropped %v, want nothing", dropped)
		}
		for _, m := range []*Manager{m, restored} {
			uid := ""
			for after := time.Duration(0); after < suspectDelay && uid == ""; after += 10 * time.Second {
				_, d := inodesAt(m, epoch.Add(time.Minute+after), 50_000, map[string]uint64{"giant": 80_000, "b": 3000}, nil)
				if len(d.Evictions) > 0 {
					uid = d.Evictions[0].Pod.PodRef.UID
				}
			}
			if uid != c.victim {
				t.Errorf("%s: victim = %q, want %q", c.name, uid, c.victim)
			}
		}
	}
}

// A pod with usage from before a disk became short might hold everything that is short: the delay
// ends then.
func TestStaleMeasurementEndsDelay(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *stats.PodStats)
		victim string
	}{
		{"old", measuredAt("b", epoch), "b"},
		{"new", func(p *stats.PodStats) { p.EphemeralStorage.Time = epoch.Add(time.Hour) }, ""},
	} {
		m := explainer(t)
		pods := map[string]uint64{"a": gib, "b": 3 * gib}
		fullDiskLook(m, epoch, 90*gib, pods, c.change)
		uid, after := "", time.Duration(0)
		for ; after < time.Hour && uid == ""; after += time.Minute {
			uid = fullDiskLook(m, epoch.Add(time.Minute+after), 2*gib, pods, c.change)
		}
		if uid != c.victim || uid != "" && after != suspectDelay+time.Minute {
			t.Errorf("%s: victim = %q after %v, want %q", c.name, uid, after, c.victim)
		}
	}
}

// A pod whose walk was cut off on the quiet disk may have grown by any part of what it holds: it is
// evicted after the delay.
func TestPodThatWasCutOffAtRestIsEvictedAfterDelay(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *stats.PodStats)
	}{{"walked to its end", nil}, {"cut off again", cutOff("giant")}} {
		m := managerOf(t, 5*time.Minute, "own x", "hard nodefs.inodesFree 30000")
		m.config.Replay, m.config.Explain = false, true
		inodesAt(m, epoch, 150_000, map[string]uint64{"giant": 20_000, "b": 3000}, cutOff("giant"))
		uid, reason, after := "", "", time.Duration(0)
		for ; after < 2*suspectDelay && uid == ""; after += 30 * time.Second {
			_, d := inodesAt(m, epoch.Add(time.Minute+after), 5000, map[string]uint64{"giant": 165_000, "b": 3000}, c.change)
			if len(d.Evictions) > 0 {
				uid = d.Evictions[0].Pod.PodRef.UID
				break
			}
			reason = d.Reason
		}
		if uid != "giant" || after != suspectDelay {
			t.Errorf("%s: victim = %q after %v, want giant after %v: %s", c.name, uid, after, suspectDelay, reason)
		}
	}
}

// A runtime that reports writable layers once an hour leaves all pods in doubt: whatever took the
// disk, the first of them is evicted in the end. If layers are on another disk, that does not
// matter for this one: what is measured there is complete, and too little for any eviction.
func TestRarelyReportedLayers(t *testing.T) {
	for dedicated, victim := range map[bool]string{true: "", false: "b"} {
		m := explainer(t)
		look := func(at time.Time, left uint64) Decision {
			in := disks(at, left, map[string]uint64{"a": gib, "b": 3 * gib})
			in.Summary.Node.Layout = stats.Some(stats.Layout{DedicatedImageFs: dedicated})
			for i := range in.Summary.Pods {
				p := &in.Summary.Pods[i]
				layer := &p.Containers[0].Rootfs
				p.EphemeralStorage.Time = epoch
				p.EphemeralStorage.Logs = stats.Some(stats.FsUsage{Time: at, UsedBytes: layer.V.UsedBytes})
				layer.V = stats.FsUsage{Time: epoch, UsedBytes: 1 << 20}
			}
			m.Observe(at, &in.Summary.Node, Situation{})
			d := m.Step(at, in)
			if len(d.Reclaim) > 0 {
				d = m.StepAfterReclaim(at, in)
			}
			return d
		}
		look(epoch, 90*gib)
		uid, after := "", time.Duration(0)
		for ; after < time.Hour && uid == ""; after += time.Minute {
			d := look(epoch.Add(time.Minute+after), 2*gib)
			if len(d.Evictions) > 0 {
				uid = d.Evictions[0].Pod.PodRef.UID
			} else if open := strings.Contains(d.Reason, "or 2 of 2 pods that are not completely measured"); after > 0 && open == dedicated {
				t.Errorf("layers on another disk %v, after %v: wrong reason %q", dedicated, after, d.Reason)
			}
		}
		if uid != victim {
			t.Errorf("layers on another disk %v: victim = %q after %v, want %q", dedicated, uid, after, victim)
		}
	}
}
