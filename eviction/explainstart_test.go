package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// A disk that becomes short before pods were measured at rest: how much of it was used then is known all the same, and that is more than
// all that pods hold. On a node whose agent had just started an innocent pod of 76 KiB went so, for a file that was found a look later.
func TestADiskThatIsShortBeforePodsWereMeasured(t *testing.T) {
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
		if uid, _ := goesAfter(m, epoch.Add(10*time.Second), 9*time.Minute, 5*gib, c.now, ""); uid != c.victim {
			t.Errorf("%s: %q goes, want %q", c.name, uid, c.victim)
		}
	}
}

// Pods are looked at soon after they were measured at rest, and again as soon as a shortage that came before that is over: without that
// look nothing is known of what they held.
func TestADiskAtRestIsLookedAtAsSoonAsItCanBe(t *testing.T) {
	pods := map[string]uint64{"a": 20 * gib}
	m := explainer(t)
	at := epoch
	in := disks(at, 40*gib, pods)
	in.Measuring = true
	if r := m.Observe(at, &in.Summary.Node, Situation{}); r.Look != LookFull {
		t.Fatalf("at first: %v", r.Look)
	}
	m.Step(at, in)
	at = at.Add(fullRetry)
	if r := m.Observe(at, &in.Summary.Node, Situation{}); r.Look != LookFull || !r.Periodic {
		t.Errorf("%v later: %v", fullRetry, r.Look)
	}
	shortAt(m, at, 5*gib, pods)
	at = at.Add(time.Second)
	quietAt(m, at, 40*gib, pods)
	if q := m.explain.quiet[stats.SignalNodeFsAvailable]; !q.at.Equal(at) || q.pods["a"] != 20*gib {
		t.Errorf("after the shortage: %+v", q)
	}
}

// What is known of a disk without its pods outlives a restart as that: pods are looked at as soon as they can be.
func TestARestartKeepsWhatIsKnownWithoutPods(t *testing.T) {
	m := explainer(t)
	in := disks(epoch, 40*gib, nil)
	m.Observe(epoch, &in.Summary.Node, Situation{})
	again := explainer(t)
	if dropped := again.Resume(epoch, onFile(t, m.Save())); len(dropped) > 0 {
		t.Error(dropped)
	}
	if again.Observe(epoch, &in.Summary.Node, Situation{}); !again.explain.quietLookDue {
		t.Error("no look at pods is due")
	}
	pods := map[string]uint64{"a": 1 * gib}
	if uid, _ := goesAfter(again, epoch.Add(time.Minute), 9*time.Minute, 5*gib, pods, ""); uid != "" {
		t.Errorf("%q goes", uid)
	}
}
