package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// diskVictim is a node on which a pod with so much anonymous memory is being stopped for a disk, beside a clerk and a leaker of 10 MiB each.
func diskVictim(t *testing.T, anon uint64, lines ...string) (*ward, *Life) {
	w := newWard(t, append([]string{"hard nodefs.available 1000Mi", "hard memory.available 500Mi"}, lines...)...)
	for _, uid := range []string{"clerk", "stressor", "leaker"} {
		w.files(uid, stats.FsUsage{})
		w.uses(uid, 10, false)
	}
	w.uses("stressor", anon, false)
	w.disk(4000, 1_000_000)
	w.victim(w.look(11*time.Second), "")
	container(&w.pods[1]).Rootfs = stats.Some(stats.FsUsage{UsedBytes: 3000 << 20})
	w.disk(900, 1_000_000)
	l := w.look(11 * time.Second)
	w.victim(l, "stressor")
	return w, l
}

// A pod maps and writes a file. While it is being stopped for the disk, memory is short by less than it has: it is killed at once, nobody else is, and it stays the disk's. What its end does not explain costs another one.
func TestAVictimOfADiskIsKilledForMemory(t *testing.T) {
	for _, c := range []struct {
		short uint64
		next  string
	}{{2, "stressor"}, {250, "stressor"}, {400, "leaker"}} {
		w, l := diskVictim(t, 10)
		w.pods[1].Memory.WorkingSetBytes = stats.Some(uint64(310 << 20))
		w.uses("leaker", 900, false)
		w.pods[1].Memory.AnonBytes = stats.Some(uint64(10 << 20))
		w.victim(w.look(100*time.Millisecond), "")
		w.left(stats.SignalMemoryAvailable, 500-c.short)
		w.victim(w.look(100*time.Millisecond), c.next)
		if c.next != "stressor" {
			continue
		}
		if l.Killed().Time.IsZero() || l.e.Signal != stats.SignalNodeFsAvailable {
			t.Errorf("killed %v, for %s", l.Killed(), l.e.Signal)
		}
		w.victim(w.look(100*time.Millisecond), "")
		w.dead(l)
		w.m.Uncached(l)
		w.left(stats.SignalMemoryAvailable, 810-c.short)
		w.victim(w.look(500*time.Millisecond), "")
		w.left(stats.SignalMemoryAvailable, 490) // somebody else's
		w.victim(w.look(500*time.Millisecond), "leaker")
	}
}

// What a disk's victim has holds back nothing while it is being stopped: it is killed, and where another one leaks on nobody waits longer
// than for that.
func TestAVictimOfADiskHoldsMemoryNoLongerThanItsKill(t *testing.T) {
	for _, who := range []string{"leaker", "stressor"} {
		w, l := diskVictim(t, 800)
		at := map[string]uint64{"leaker": 20, "stressor": 800}
		w.uses("leaker", 20, false)
		for left := uint64(600); l.Killed().Time.IsZero(); left -= 24 {
			at[who] += 24
			w.uses(who, at[who], false)
			if w.left(stats.SignalMemoryAvailable, left); left < 450 {
				t.Fatalf("%s leaks: at %d MiB nobody is killed: %s", who, left, w.why)
			}
			if v := w.look(20 * time.Millisecond); v != nil && v != l {
				t.Fatalf("%s leaks: %s goes", who, v.e.Pod.PodRef.UID)
			}
		}
		w.left(stats.SignalMemoryAvailable, 200) // the kill takes its time, and somebody leaks on
		w.victim(w.look(2500*time.Millisecond), "leaker")
	}
}

// What a disk's victim gave back while it was being stopped is there already.
func TestAVictimOfADiskHasGivenItsMemoryBack(t *testing.T) {
	w, _ := diskVictim(t, 800)
	w.uses("stressor", 1, false)
	w.left(stats.SignalMemoryAvailable, 4800)
	w.victim(w.look(11*time.Second), "")
	w.uses("leaker", 4600, false)
	w.left(stats.SignalMemoryAvailable, 300)
	w.victim(w.look(100*time.Millisecond), "leaker")
}

// A small victim of a disk makes no wait for a large one of memory longer.
func TestASmallVictimOfADiskRenewsNoWait(t *testing.T) {
	gone := map[bool]uint64{}
	for _, disk := range []bool{false, true} {
		w := newWard(t, "hard nodefs.available 1000Mi", "hard memory.available 500Mi")
		w.files("stressor", stats.FsUsage{})
		w.files("leaker", stats.FsUsage{})
		w.pod("stuck", 1000, 0, 3)
		w.disk(4000, 1_000_000)
		w.victim(w.look(11*time.Second), "")
		w.left(stats.SignalMemoryAvailable, 450)
		w.victim(w.look(100*time.Millisecond), "stuck")
		w.left(stats.SignalMemoryAvailable, 400)
		w.victim(w.look(2500*time.Millisecond), "")
		if disk {
			container(&w.pods[0]).Rootfs = stats.Some(stats.FsUsage{UsedBytes: 3000 << 20})
			w.disk(900, 1_000_000)
			for range 100 {
				if w.look(50*time.Millisecond) != nil {
					break
				}
			}
			if w.m.Life("stressor") == nil {
				t.Fatal("nobody goes for the disk: ", w.why)
			}
		}
		for left := uint64(400); left > 0 && gone[disk] == 0; left -= 20 {
			w.left(stats.SignalMemoryAvailable, left)
			if l := w.look(50 * time.Millisecond); l != nil {
				gone[disk] = left
			}
		}
	}
	if gone[true]+50 < gone[false] || gone[false] == 0 { // a look or two
		t.Errorf("the next one goes at %d MiB, after a disk's victim at %d", gone[false], gone[true])
	}
}

// Page cache is expected as far as it counts as used. Shared memory comes later, and is expected once; what the kernel keeps for a pod's
// sockets was no page cache.
func TestWhatAVictimOfADiskIsExpectedToReturn(t *testing.T) {
	for _, c := range []struct {
		what                   string
		working, shmem, kernel uint64 // MiB, 10 of which are anonymous
		want                   uint64
	}{
		{what: "files", working: 410, want: 410},
		{what: "shared memory", working: 410, shmem: 400, want: 410},
		{what: "sockets", working: 410, shmem: 200, kernel: 50, want: 360},
		{what: "more than there is", working: 410, shmem: 300, kernel: 300, want: 310},
	} {
		w := newWard(t, "hard nodefs.available 1000Mi", "hard memory.available 500Mi")
		w.files("clerk", stats.FsUsage{})
		w.files("stressor", stats.FsUsage{UsedBytes: 3000 << 20})
		p := &w.pods[1].Memory
		p.AnonBytes, p.WorkingSetBytes = stats.Some(uint64(10<<20)), stats.Some(c.working<<20)
		p.ShmemBytes, p.KernelBytes = stats.Some(c.shmem<<20), stats.Some(c.kernel<<20)
		w.disk(4000, 1_000_000)
		w.victim(w.look(11*time.Second), "")
		w.disk(900, 1_000_000)
		l := w.look(11 * time.Second)
		w.victim(l, "stressor")
		for i := range w.m.watch.all {
			if one := &w.m.watch.all[i]; one.Signal == stats.SignalMemoryAvailable && l.remaining(one).V>>20 != c.want {
				t.Errorf("%s: %d MiB, want %d", c.what, l.remaining(one).V>>20, c.want)
			}
		}
	}
}

// A victim of a disk is dead, and its page cache about to be given back: nobody goes for that, but for two seconds at most. What was
// anonymous is back.
func TestThePageCacheOfADeadVictimIsOnItsWay(t *testing.T) {
	for _, c := range []struct {
		told bool
		left uint64
		next string
	}{{true, 300, "leaker"}, {false, 240, "leaker"}, {false, 300, ""}} {
		w, l := diskVictim(t, 310)
		w.pods[1].Memory.AnonBytes = stats.Some(uint64(60 << 20))
		w.uses("leaker", 100, false)
		w.left(stats.SignalMemoryAvailable, 240)
		w.victim(w.look(100*time.Millisecond), "stressor")
		w.dead(l)
		if c.told {
			w.m.Uncached(l)
		}
		w.left(stats.SignalMemoryAvailable, c.left)
		if w.victim(w.look(100*time.Millisecond), c.next); c.next != "" {
			continue
		}
		w.victim(w.look(1500*time.Millisecond), "")
		w.victim(w.look(500*time.Millisecond), "leaker")
	}
}

// Of what is not known of a disk's victim nothing is waited for.
func TestAVictimOfADiskOfWhichNothingIsKnown(t *testing.T) {
	for _, signal := range []stats.Signal{stats.SignalSwapAvailable, stats.SignalPIDAvailable} {
		w, _ := diskVictim(t, 10, "hard swap.available 1000Mi", "hard pid.available 1000")
		w.pods[1].Memory.SwapBytes, w.pods[1].Threads = stats.Opt[uint64]{}, stats.Opt[uint64]{}
		w.pods[2].Memory.SwapBytes, w.pods[2].Threads = stats.Some(uint64(500<<20)), stats.Some(uint64(700))
		w.left(signal, 600)
		w.victim(w.look(11*time.Second), "leaker")
	}
}

// A victim of a disk that is killed for memory, by a hard threshold that cuts a soft one's grace period short as well, stays the disk's: its
// files are waited for.
func TestAVictimOfADiskThatMemoryKillsStaysTheDisks(t *testing.T) {
	w := newWard(t, "soft nodefs.available 1000Mi", "grace nodefs.available 1s", "hard nodefs.available 900Mi", "hard memory.available 500Mi")
	w.m.config.MaxPodGracePeriodSeconds = 60
	w.files("stressor", stats.FsUsage{})
	w.files("clerk", stats.FsUsage{UsedBytes: 1 << 20})
	w.uses("stressor", 800, false)
	w.disk(4000, 1_000_000)
	w.victim(w.look(11*time.Second), "")
	container(&w.pods[0]).Rootfs = stats.Some(stats.FsUsage{UsedBytes: 3000 << 20})
	w.disk(950, 1_000_000)
	w.victim(w.look(11*time.Second), "")
	l := w.look(11 * time.Second)
	w.victim(l, "stressor")
	w.left(stats.SignalMemoryAvailable, 490)
	w.victim(w.look(100*time.Millisecond), "stressor")
	if l.Killed().Time.IsZero() || !l.e.Disk() {
		t.Fatalf("killed %v, for %s", l.Killed(), l.e.Signal)
	}
	if l.e.hard {
		t.Error("it is a hard threshold's")
	}
	w.left(stats.SignalMemoryAvailable, 1300)
	w.now = w.now.Add(time.Second)
	w.dead(l)
	w.disk(940, 1_000_000)
	for range 30 {
		w.victim(w.look(time.Second), "")
	}
}

// Where memory is held for its minimum reclaim, and a disk's victim has none, nobody's stop is cut short.
func TestAVictimOfADiskWithoutMemoryIsLeftInPeace(t *testing.T) {
	w, l := diskVictim(t, 0)
	w.uses("leaker", 900, false)
	w.left(stats.SignalMemoryAvailable, 490)
	w.victim(w.look(100*time.Millisecond), "leaker")
	if !l.Killed().Time.IsZero() {
		t.Error("it was killed")
	}
}

// A victim of a disk that the kernel holds is waited for as long as what it has of memory is measured, and explains the shortage. What
// cannot be measured counts for two seconds, and nothing where the kernel refuses the kill.
func TestAVictimOfADiskThatDoesNotDie(t *testing.T) {
	for _, c := range []struct {
		has     uint64 // MiB, in the end; 0: it is not measured any more
		refused bool
		next    string
	}{{310, false, ""}, {40, false, "leaker"}, {0, false, "leaker"}, {310, true, "leaker"}} {
		w, l := diskVictim(t, 310)
		w.uses("leaker", 100, false)
		if c.refused {
			if !w.m.HastenRefused(l) {
				t.Error("it is to begin anew")
			}
		}
		w.left(stats.SignalMemoryAvailable, 300)
		if v := w.look(time.Second); c.refused {
			w.victim(v, c.next)
			continue
		} else if w.victim(v, "stressor"); v != l {
			t.Fatal("it is begun anew")
		}
		w.victim(w.look(time.Second), "")
		w.uses("stressor", c.has, false)
		if c.has == 0 {
			w.pods = append(w.pods[:1], w.pods[2])
		}
		w.victim(w.look(1500*time.Millisecond), c.next)
	}
}
