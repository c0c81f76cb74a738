package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// nodeWithDiskVictim returns a node on which a pod with that much anonymous memory is being stopped
// for a disk, with a clerk and a leaker of 10 MiB each.
func nodeWithDiskVictim(t *testing.T, anon uint64, lines ...string) (*testNode, *Life) {
	w := newTestNode(t, append([]string{"hard nodefs.available 1000Mi", "hard memory.available 500Mi"}, lines...)...)
	for _, uid := range []string{"clerk", "stressor", "leaker"} {
		w.setFiles(uid, stats.FsUsage{})
		w.setPodMemory(uid, 10, false)
	}
	w.setPodMemory("stressor", anon, false)
	w.setDisk(4000, 1_000_000)
	w.wantVictim(w.look(11*time.Second), "")
	container(&w.pods[1]).Rootfs = stats.Some(stats.FsUsage{UsedBytes: 3000 << 20})
	w.setDisk(900, 1_000_000)
	l := w.look(11 * time.Second)
	w.wantVictim(l, "stressor")
	return w, l
}

// A pod maps and writes a file. While it is being stopped for the disk, memory is short by less
// than it holds: it is killed immediately, no other pod is, and it stays the disk's victim. A
// shortage that its end does not explain costs another pod.
func TestDiskVictimIsKilledForMemory(t *testing.T) {
	for _, c := range []struct {
		short uint64
		next  string
	}{{2, "stressor"}, {250, "stressor"}, {400, "leaker"}} {
		w, l := nodeWithDiskVictim(t, 10)
		w.pods[1].Memory.WorkingSetBytes = stats.Some(uint64(310 << 20))
		w.setPodMemory("leaker", 900, false)
		w.pods[1].Memory.AnonBytes = stats.Some(uint64(10 << 20))
		w.wantVictim(w.look(100*time.Millisecond), "")
		w.setLeft(stats.SignalMemoryAvailable, 500-c.short)
		w.wantVictim(w.look(100*time.Millisecond), c.next)
		if c.next != "stressor" {
			continue
		}
		if l.Killed().Time.IsZero() || l.e.Signal != stats.SignalNodeFsAvailable {
			t.Errorf("victim for %s killed at %v, want a kill and %s", l.e.Signal, l.Killed(), stats.SignalNodeFsAvailable)
		}
		w.wantVictim(w.look(100*time.Millisecond), "")
		w.reportDead(l)
		w.m.CacheDropped(l)
		w.setLeft(stats.SignalMemoryAvailable, 810-c.short)
		w.wantVictim(w.look(500*time.Millisecond), "")
		w.setLeft(stats.SignalMemoryAvailable, 490) // taken by another process
		w.wantVictim(w.look(500*time.Millisecond), "leaker")
	}
}

// A victim for a disk delays nothing while it is being stopped: it is killed, and if another pod
// keeps leaking, nothing waits longer than for that kill.
func TestDiskVictimDelaysMemoryOnlyUntilKill(t *testing.T) {
	for _, leaking := range []string{"leaker", "stressor"} {
		w, l := nodeWithDiskVictim(t, 800)
		at := map[string]uint64{"leaker": 20, "stressor": 800}
		w.setPodMemory("leaker", 20, false)
		for left := uint64(600); l.Killed().Time.IsZero(); left -= 24 {
			at[leaking] += 24
			w.setPodMemory(leaking, at[leaking], false)
			if w.setLeft(stats.SignalMemoryAvailable, left); left < 450 {
				t.Fatalf("%s leaks: no kill at %d MiB left, want one at 450 MiB: %s", leaking, left, w.reason)
			}
			if v := w.look(20 * time.Millisecond); v != nil && v != l {
				t.Fatalf("%s leaks: %s is evicted, want the victim for the disk", leaking, v.e.Pod.PodRef.UID)
			}
		}
		w.setLeft(stats.SignalMemoryAvailable, 200) // the kill is slow, and another process keeps leaking
		w.wantVictim(w.look(2500*time.Millisecond), "leaker")
	}
}

// What a victim for a disk returned while it was being stopped is available already.
func TestDiskVictimReturnedMemoryWhileStopping(t *testing.T) {
	w, _ := nodeWithDiskVictim(t, 800)
	w.setPodMemory("stressor", 1, false)
	w.setLeft(stats.SignalMemoryAvailable, 4800)
	w.wantVictim(w.look(11*time.Second), "")
	w.setPodMemory("leaker", 4600, false)
	w.setLeft(stats.SignalMemoryAvailable, 300)
	w.wantVictim(w.look(100*time.Millisecond), "leaker")
}

// A small victim for a disk does not extend the wait for a large victim for memory.
func TestSmallDiskVictimExtendsNoWait(t *testing.T) {
	leftAtEviction := map[bool]uint64{}
	for _, disk := range []bool{false, true} {
		w := newTestNode(t, "hard nodefs.available 1000Mi", "hard memory.available 500Mi")
		w.setFiles("stressor", stats.FsUsage{})
		w.setFiles("leaker", stats.FsUsage{})
		w.addPod("stuck", 1000, 0, 3)
		w.setDisk(4000, 1_000_000)
		w.wantVictim(w.look(11*time.Second), "")
		w.setLeft(stats.SignalMemoryAvailable, 450)
		w.wantVictim(w.look(100*time.Millisecond), "stuck")
		w.setLeft(stats.SignalMemoryAvailable, 400)
		w.wantVictim(w.look(2500*time.Millisecond), "")
		if disk {
			container(&w.pods[0]).Rootfs = stats.Some(stats.FsUsage{UsedBytes: 3000 << 20})
			w.setDisk(900, 1_000_000)
			for range 100 {
				if w.look(50*time.Millisecond) != nil {
					break
				}
			}
			if w.m.Life("stressor") == nil {
				t.Fatal("no victim for the disk, want stressor: ", w.reason)
			}
		}
		for left := uint64(400); left > 0 && leftAtEviction[disk] == 0; left -= 20 {
			w.setLeft(stats.SignalMemoryAvailable, left)
			if l := w.look(50 * time.Millisecond); l != nil {
				leftAtEviction[disk] = left
			}
		}
	}
	if leftAtEviction[true]+50 < leftAtEviction[false] || leftAtEviction[false] == 0 { // one or two looks
		t.Errorf("next victim at %d MiB left, with a victim for a disk at %d MiB, want at most 50 MiB less", leftAtEviction[false], leftAtEviction[true])
	}
}

// Page cache is expected as far as it counts as used. Shared memory returns later, and is expected
// once. Kernel memory of sockets is no page cache.
func TestExpectedReturnsOfDiskVictim(t *testing.T) {
	for _, c := range []struct {
		what                   string
		working, shmem, kernel uint64 // MiB, of which 10 are anonymous
		want                   uint64
	}{
		{what: "files", working: 410, want: 410},
		{what: "shared memory", working: 410, shmem: 400, want: 410},
		{what: "sockets", working: 410, shmem: 200, kernel: 50, want: 360},
		{what: "more than there is", working: 410, shmem: 300, kernel: 300, want: 310},
	} {
		w := newTestNode(t, "hard nodefs.available 1000Mi", "hard memory.available 500Mi")
		w.setFiles("clerk", stats.FsUsage{})
		w.setFiles("stressor", stats.FsUsage{UsedBytes: 3000 << 20})
		p := &w.pods[1].Memory
		p.AnonBytes, p.WorkingSetBytes = stats.Some(uint64(10<<20)), stats.Some(c.working<<20)
		p.ShmemBytes, p.KernelBytes = stats.Some(c.shmem<<20), stats.Some(c.kernel<<20)
		w.setDisk(4000, 1_000_000)
		w.wantVictim(w.look(11*time.Second), "")
		w.setDisk(900, 1_000_000)
		l := w.look(11 * time.Second)
		w.wantVictim(l, "stressor")
		for i := range w.m.watch.all {
			if one := &w.m.watch.all[i]; one.Signal == stats.SignalMemoryAvailable && l.remaining(one).V>>20 != c.want {
				t.Errorf("%s: expected return = %d MiB, want %d MiB", c.what, l.remaining(one).V>>20, c.want)
			}
		}
	}
}

// A victim for a disk is dead, and its page cache is about to be dropped: no pod is evicted for
// that amount, for two seconds at most. The anonymous memory has returned.
func TestPageCacheOfDeadVictimIsAwaited(t *testing.T) {
	for _, c := range []struct {
		told bool
		left uint64
		next string
	}{{true, 300, "leaker"}, {false, 240, "leaker"}, {false, 300, ""}} {
		w, l := nodeWithDiskVictim(t, 310)
		w.pods[1].Memory.AnonBytes = stats.Some(uint64(60 << 20))
		w.setPodMemory("leaker", 100, false)
		w.setLeft(stats.SignalMemoryAvailable, 240)
		w.wantVictim(w.look(100*time.Millisecond), "stressor")
		w.reportDead(l)
		if c.told {
			w.m.CacheDropped(l)
		}
		w.setLeft(stats.SignalMemoryAvailable, c.left)
		if w.wantVictim(w.look(100*time.Millisecond), c.next); c.next != "" {
			continue
		}
		w.wantVictim(w.look(1500*time.Millisecond), "")
		w.wantVictim(w.look(500*time.Millisecond), "leaker")
	}
}

// Nothing waits for an unknown amount of a victim for a disk.
func TestDiskVictimWithUnknownMemory(t *testing.T) {
	for _, signal := range []stats.Signal{stats.SignalSwapAvailable, stats.SignalPIDAvailable} {
		w, _ := nodeWithDiskVictim(t, 10, "hard swap.available 1000Mi", "hard pid.available 1000")
		w.pods[1].Memory.SwapBytes, w.pods[1].Threads = stats.Opt[uint64]{}, stats.Opt[uint64]{}
		w.pods[2].Memory.SwapBytes, w.pods[2].Threads = stats.Some(uint64(500<<20)), stats.Some(uint64(700))
		w.setLeft(signal, 600)
		w.wantVictim(w.look(11*time.Second), "leaker")
	}
}

// A victim for a disk that is killed for memory stays the disk's victim, also if the hard threshold
// cuts a soft one's grace period short: its files are waited for.
func TestDiskVictimKilledForMemoryStaysDiskVictim(t *testing.T) {
	w := newTestNode(t, "soft nodefs.available 1000Mi", "grace nodefs.available 1s", "hard nodefs.available 900Mi", "hard memory.available 500Mi")
	w.m.config.MaxPodGracePeriodSeconds = 60
	w.setFiles("stressor", stats.FsUsage{})
	w.setFiles("clerk", stats.FsUsage{UsedBytes: 1 << 20})
	w.setPodMemory("stressor", 800, false)
	w.setDisk(4000, 1_000_000)
	w.wantVictim(w.look(11*time.Second), "")
	container(&w.pods[0]).Rootfs = stats.Some(stats.FsUsage{UsedBytes: 3000 << 20})
	w.setDisk(950, 1_000_000)
	w.wantVictim(w.look(11*time.Second), "")
	l := w.look(11 * time.Second)
	w.wantVictim(l, "stressor")
	w.setLeft(stats.SignalMemoryAvailable, 490)
	w.wantVictim(w.look(100*time.Millisecond), "stressor")
	if l.Killed().Time.IsZero() || !l.e.Disk() {
		t.Fatalf("victim for %s killed at %v, want a killed victim for the disk", l.e.Signal, l.Killed())
	}
	if l.e.hard {
		t.Error("victim belongs to a hard threshold, want the soft one of the disk")
	}
	w.setLeft(stats.SignalMemoryAvailable, 1300)
	w.now = w.now.Add(time.Second)
	w.reportDead(l)
	w.setDisk(940, 1_000_000)
	for range 30 {
		w.wantVictim(w.look(time.Second), "")
	}
}

// If memory is short only of its minimum reclaim and a victim for a disk holds no memory, its stop
// is not cut short.
func TestDiskVictimWithoutMemoryIsNotHastened(t *testing.T) {
	w, l := nodeWithDiskVictim(t, 0)
	w.setPodMemory("leaker", 900, false)
	w.setLeft(stats.SignalMemoryAvailable, 490)
	w.wantVictim(w.look(100*time.Millisecond), "leaker")
	if !l.Killed().Time.IsZero() {
		t.Error("victim for the disk was killed, want it in its grace period")
	}
}

// A victim for a disk that the kernel holds is waited for while its memory is measured and explains
// the shortage. Unmeasured memory counts for two seconds, and not at all if the kernel refuses the
// kill.
func TestUndyingDiskVictim(t *testing.T) {
	for _, c := range []struct {
		has     uint64 // MiB, at the end; 0: no longer measured
		refused bool
		next    string
	}{{310, false, ""}, {40, false, "leaker"}, {0, false, "leaker"}, {310, true, "leaker"}} {
		w, l := nodeWithDiskVictim(t, 310)
		w.setPodMemory("leaker", 100, false)
		if c.refused {
			if !w.m.HastenRefused(l) {
				t.Error("HastenRefused = false, want the victim left to the runtime")
			}
		}
		w.setLeft(stats.SignalMemoryAvailable, 300)
		if v := w.look(time.Second); c.refused {
			w.wantVictim(v, c.next)
			continue
		} else if w.wantVictim(v, "stressor"); v != l {
			t.Fatal("eviction of stressor began again, want the same one")
		}
		w.wantVictim(w.look(time.Second), "")
		w.setPodMemory("stressor", c.has, false)
		if c.has == 0 {
			w.pods = append(w.pods[:1], w.pods[2])
		}
		w.wantVictim(w.look(1500*time.Millisecond), c.next)
	}
}
