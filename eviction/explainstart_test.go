package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// A disk becomes short before pods were measured while it was quiet. Its use at that time is known,
// and is more than all pods hold. On a node whose agent had just started, an innocent pod of 76 KiB
// was evicted for a file that was found one look later.
func TestDiskShortBeforePodsWereMeasured(t *testing.T) {
	for _, c := range []struct {
		name   string
		now    map[string]uint64
		victim string
	}{
		{"pods hold next to nothing", map[string]uint64{"innocent": 76 << 10, "holder": 12 << 10}, ""},
		{"what they hold is all that was taken", map[string]uint64{"innocent": 76 << 10, "holder": 31 * gib}, "holder"},
		{"and half of it", map[string]uint64{"a": 9 * gib, "b": 9 * gib}, "a"},
	} {
		m := explainer(t)
		in := disks(epoch, 40*gib, nil)
		m.Observe(epoch, &in.Summary.Node, Situation{})
		in.Measuring = true
		m.Step(epoch, in)
		if uid, _ := firstEviction(m, epoch.Add(10*time.Second), suspectDelay, 5*gib, c.now, ""); uid != c.victim {
			t.Errorf("%s: victim = %q, want %q", c.name, uid, c.victim)
		}
	}
}

// Pods are looked at soon after the disk became quiet, and again as soon as an earlier shortage is
// over: without that look it is unknown what they held.
func TestQuietDiskIsRecordedSoon(t *testing.T) {
	pods := map[string]uint64{"a": 20 * gib}
	m := explainer(t)
	at := epoch
	in := disks(at, 40*gib, pods)
	in.Measuring = true
	if r := m.Observe(at, &in.Summary.Node, Situation{}); r.Look != LookFull {
		t.Fatalf("first look = %v, want a full one", r.Look)
	}
	m.Step(at, in)
	at = at.Add(fullRetry)
	if r := m.Observe(at, &in.Summary.Node, Situation{}); r.Look != LookFull || !r.Periodic {
		t.Errorf("look %v later = %v, periodic %v, want a periodic full one", fullRetry, r.Look, r.Periodic)
	}
	shortAt(m, at, 5*gib, pods)
	at = at.Add(time.Second)
	quietAt(m, at, 40*gib, pods)
	if q := m.explain.quiet[stats.SignalNodeFsAvailable]; !q.at.Equal(at) || q.pods["a"] != 20*gib {
		t.Errorf("quiet disk after the shortage = %+v, want it recorded at %v with 20 GiB of pod a", q, at)
	}
}

// A disk that was recorded without its pods survives a restart like that: pods are looked at as
// soon as possible.
func TestRestartKeepsDiskWithoutPods(t *testing.T) {
	m := explainer(t)
	in := disks(epoch, 40*gib, nil)
	m.Observe(epoch, &in.Summary.Node, Situation{})
	restored := explainer(t)
	if dropped := restored.Resume(epoch, throughFile(t, m.Save())); len(dropped) > 0 {
		t.Errorf("Resume dropped %v, want nothing", dropped)
	}
	if restored.Observe(epoch, &in.Summary.Node, Situation{}); !restored.explain.quietLookDue {
		t.Error("no look at a quiet disk is due after a restart")
	}
	pods := map[string]uint64{"a": 1 * gib}
	if uid, _ := firstEviction(restored, epoch.Add(time.Minute), suspectDelay, 5*gib, pods, ""); uid != "" {
		t.Errorf("victim = %q, want none", uid)
	}
}
