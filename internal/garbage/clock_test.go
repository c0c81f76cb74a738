package garbage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"jettison/reclaim"
)

// The clock of a node without a battery is set while a container starts: by it that one is 56 years old. It is as old as it is known, and
// goes when it is known for long enough. By a pass by hand it is no older than the boot.
func TestTheClockIsSetWhileAContainerStarts(t *testing.T) {
	for _, once := range []bool{false, true} {
		n := newNode(t)
		n.open(func(o *Options) { o.Once = once })
		n.up = 30 * time.Second
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
		n.sandbox("s", uidA, true, 2*time.Second)
		n.container("old", "s0", uidA, exited, 24*time.Hour, "") // of the boot before
		n.container("new", "s", uidA, created, 0, "")
		n.r.Containers[1].CreatedAt = time.Unix(28, 0).UnixNano()
		n.want(n.pass(Containers, reclaim.DiskPressure))
		n.clock = n.clock.AddDate(10, 0, 0) // once more
		n.want(n.pass(Containers, reclaim.DiskPressure))
		n.sleep(n.o.Policy.Container.CreatedMinAge)
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.r.Change(func() { n.r.Sandboxes = nil })
		n.want(n.pass(Containers, reclaim.DiskPressure), "container old", "container new")
	}
}

// Containers that ended before the clock was set back are of the future. They go as soon as they are known for their least age, not when the
// clock has come so far again; by a pass by hand, which knows none before, where there is no least age.
func TestTheClockIsSetBackAfterContainersEnded(t *testing.T) {
	for _, once := range []bool{false, true} {
		n := newNode(t)
		least := time.Minute
		if once {
			least = 0
		}
		n.open(func(o *Options) { o.Once, o.Policy.Container.MinAge = once, least })
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		n.container("c", "s", uidA, exited, -5*time.Hour, "")
		if !once {
			n.want(n.pass(Containers, reclaim.Periodic))
			n.sleep(least)
		}
		n.want(n.pass(Containers, reclaim.Periodic), "container c")
	}
}

// What nothing has changed of is not written again, nor synced: a flash memory has only so many writes.
func TestQuietPodsAreWrittenWhenTheyChange(t *testing.T) {
	n := newNode(t)
	n.sandbox("s-a", uidA, false, time.Hour)
	look := func() os.FileInfo {
		n.Plan(t.Context(), Containers, reclaim.Periodic)
		info, err := os.Stat(filepath.Join(n.state, podsFile))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := look()
	for i := range 10 {
		if i == 5 {
			n.open(nil) // a restart
		}
		n.sleep(time.Minute)
		n.up += time.Duration(i-5) * time.Microsecond // the clocks are read one after the other
		if after := look(); !os.SameFile(before, after) {
			t.Errorf("look %d: written, and nothing has changed", i)
		}
	}
	n.sandbox("s-b", uidB, false, time.Hour)
	if os.SameFile(before, look()) {
		t.Error("a pod more was not written")
	}
	if at := n.quiet.seen[uidA].SinceBoot; at != time.Hour {
		t.Errorf("quiet since %v after the boot, want 1h", at)
	}
}
