package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// setDisk sets what is left of the node's disk: MiB, and inodes.
func (w *testNode) setDisk(left, inodes uint64) {
	w.node.Fs = stats.Some(stats.FsStats{
		AvailableBytes: stats.Some(left << 20), CapacityBytes: stats.Some(uint64(25_000 << 20)),
		InodesFree: stats.Some(inodes), Inodes: stats.Some(uint64(2_000_000)),
	})
	w.node.ContainerFs = w.node.Fs
}

// setFiles sets a pod's files.
func (w *testNode) setFiles(uid string, use stats.FsUsage) {
	container(w.addPod(uid, 10, 0, 1)).Rootfs = stats.Some(use)
}

// At least two signals share one file system. A victim is chosen at 200 MiB left, which it uses up
// while it is being stopped, and the removal of its files takes half a minute.
func TestAVictimOfOneSignalHoldsTheWholeDisk(t *testing.T) {
	for _, also := range []string{"", "hard nodefs.inodesFree 100k"} {
		w := newTestNode(t, "hard nodefs.available 2240Mi", also)
		w.setFiles("stressor", stats.FsUsage{UsedBytes: 1480 << 20, InodesUsed: 4000})
		w.setFiles("clerk", stats.FsUsage{UsedBytes: 32 << 10, InodesUsed: 15})
		w.setDisk(4000, 180_000)
		w.wantVictim(w.look(time.Second), "")
		w.setDisk(200, 99_000)
		l := w.look(time.Second)
		w.wantVictim(l, "stressor")
		for range 4 {
			w.setDisk(0, 40_000)
			w.wantVictim(w.look(1500*time.Millisecond), "")
		}
		w.reportDead(l)
		for i := range uint64(20) {
			w.setDisk(i, 40_000)
			w.wantVictim(w.look(1500*time.Millisecond), "")
		}
		w.setDisk(500, 50_000)
		w.wantVictim(w.look(time.Second), "")
		w.m.Cleaned(Stamp{Time: w.now}, l)
		w.setDisk(4000, 200_000)
		w.wantVictim(w.look(time.Second), "")
	}
}

// The known usage of a victim is a lower bound: pods whose files were not all found do not explain
// the shortage, and many take longer than two seconds to be stopped. The numbers are those of a
// node where three pods were evicted instead of one.
func TestAVictimThatHoldsAtLeastSoMuchIsAwaited(t *testing.T) {
	for _, soft := range []bool{false, true} {
		lines := []string{"hard nodefs.inodesFree 193328"}
		if soft {
			lines = []string{"soft nodefs.inodesFree 193328", "grace nodefs.inodesFree 1s"}
		}
		w := newTestNode(t, lines...)
		w.setFiles("stressor", stats.FsUsage{UsedBytes: 1 << 20, InodesUsed: 3366, Partial: true})
		w.setFiles("clerk", stats.FsUsage{UsedBytes: 32 << 10, InodesUsed: 15})
		w.setFiles("redis", stats.FsUsage{UsedBytes: 32 << 10, InodesUsed: 11})
		w.setDisk(9000, 196_200)
		w.wantVictim(w.look(time.Second), "")
		w.setDisk(9000, 188_980)
		if soft {
			w.wantVictim(w.look(time.Second), "")
		}
		w.setDisk(9000, 187_756)
		l := w.look(1200 * time.Millisecond)
		w.wantVictim(l, "stressor")
		for _, at := range []struct {
			later time.Duration
			left  uint64
			dead  bool
		}{
			{2740, 187_729, false}, {2080, 188_296, true}, {2200, 188_299, false}, {5000, 190_400, false}, {5000, 192_900, false},
		} {
			w.setDisk(9000, at.left)
			w.wantVictim(w.look(at.later*time.Millisecond), "")
			if at.dead {
				w.reportDead(l)
			}
		}
		w.m.Cleaned(Stamp{Time: w.now}, l)
		// more than was known of it, and the rest is freed by the runtime's own garbage collection
		w.setDisk(9000, 193_100)
		w.wantVictim(w.look(2*time.Second), "")
		w.setDisk(9000, 196_200)
		w.wantVictim(w.look(2*time.Second), "")
	}
}

// Every wait ends: for a victim that does not die, for files that are never removed, and for a
// runtime that frees no space after the removal.
func TestWhatADiskWaitsForHasAnEnd(t *testing.T) {
	for _, c := range []struct {
		name        string
		dead, clean bool
		least, most time.Duration
	}{
		{"undying", false, false, 10 * time.Second, 12 * time.Second},
		{"never removed", true, false, 2 * time.Minute, 2*time.Minute + 4*time.Second},
		{"never freed", true, true, time.Minute, time.Minute + 4*time.Second},
	} {
		for _, partial := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				w := newTestNode(t, "hard nodefs.available 1000Mi")
				w.setFiles("first", stats.FsUsage{UsedBytes: 5000 << 20, Partial: partial})
				w.setFiles("second", stats.FsUsage{UsedBytes: 300 << 20})
				w.setDisk(4000, 1_000_000)
				w.wantVictim(w.look(time.Second), "")
				w.setDisk(900, 1_000_000)
				l := w.look(time.Second)
				w.wantVictim(l, "first")
				w.setDisk(0, 1_000_000)
				w.wantVictim(w.look(time.Second), "")
				since := w.now
				if c.dead {
					w.reportDead(l)
				}
				if c.clean {
					w.m.Cleaned(Stamp{Time: w.now}, l)
				}
				if !c.dead {
					since = since.Add(-time.Second)
				}
				for {
					l := w.look(time.Second)
					waited := w.now.Sub(since)
					if waited > c.most {
						t.Fatalf("no eviction for %v, want one within %v: %s", waited, c.most, w.reason)
					}
					if l == nil || l.e.Pod.PodRef.UID == "first" {
						continue
					}
					if w.wantVictim(l, "second"); waited < c.least {
						t.Fatalf("eviction after %v, want at least %v", waited, c.least)
					}
					return
				}
			})
		}
	}
}

// Another pod that uses what is left once the victim is dead is evicted while files are removed, if
// these do not make up for it.
func TestWriterIsEvictedWhileFilesAreRemoved(t *testing.T) {
	for due, want := range map[uint64]string{400: "second", 5000: ""} {
		w := newTestNode(t, "hard nodefs.available 1000Mi")
		w.setFiles("first", stats.FsUsage{UsedBytes: due << 20})
		w.setFiles("second", stats.FsUsage{UsedBytes: 300 << 20})
		w.setDisk(4000, 1_000_000)
		w.wantVictim(w.look(time.Second), "")
		w.setDisk(900, 1_000_000)
		l := w.look(time.Second)
		w.wantVictim(l, "first")
		w.reportDead(l)
		w.setDisk(500, 1_000_000)
		w.wantVictim(w.look(time.Second), "")
		w.setDisk(400, 1_000_000)
		w.wantVictim(w.look(time.Second), want)
	}
}

// A victim in its grace period delays no hard threshold while it lives, but its files do once it is
// dead, if they end the shortage.
func TestFilesOfSoftVictimDelayHardThreshold(t *testing.T) {
	for due, want := range map[uint64]string{5000: "", 100: "second"} {
		w := newTestNode(t, "hard nodefs.available 1000Mi", "soft nodefs.available 2000Mi", "grace nodefs.available 1s")
		w.setFiles("first", stats.FsUsage{UsedBytes: due << 20})
		w.setFiles("second", stats.FsUsage{UsedBytes: 90 << 20})
		w.setDisk(4000, 1_000_000)
		w.wantVictim(w.look(time.Second), "")
		w.setDisk(1500, 1_000_000)
		w.wantVictim(w.look(time.Second), "")
		l := w.look(time.Second)
		w.wantVictim(l, "first")
		w.reportDead(l)
		w.setDisk(800, 1_000_000)
		w.wantVictim(w.look(time.Second), want)
	}
}

// What two victims return is subtracted once.
func TestReturnsOfTwoVictimsCountOnce(t *testing.T) {
	w := newTestNode(t, "hard nodefs.available 2000Mi")
	w.setFiles("first", stats.FsUsage{UsedBytes: 600 << 20})
	w.setFiles("second", stats.FsUsage{UsedBytes: 500 << 20})
	w.setFiles("third", stats.FsUsage{UsedBytes: 30 << 20})
	w.setDisk(4000, 1_000_000)
	w.wantVictim(w.look(time.Second), "")
	w.setDisk(900, 1_000_000)
	first := w.look(time.Second)
	w.wantVictim(first, "first")
	w.reportDead(first)
	w.setDisk(200, 1_000_000)
	second := w.look(time.Second)
	w.wantVictim(second, "second")
	w.reportDead(second)
	w.setDisk(800, 1_000_000)
	w.wantVictim(w.look(time.Second), "")
	w.setDisk(90, 1_000_000)
	w.wantVictim(w.look(time.Second), "")
	if left := w.m.evictions.pendingReturns(w.now, &w.m.watch.all[0], &w.m.watch).remaining; left != 500<<20 {
		t.Errorf("expected return = %d MiB, want 500 MiB", left>>20)
	}
}

// The expected returns of a victim for a disk, by each signal, survive a restart.
func TestExpectedDiskReturnsSurviveRestart(t *testing.T) {
	w := newTestNode(t, "hard nodefs.available 1000Mi", "hard nodefs.inodesFree 1k")
	w.setFiles("first", stats.FsUsage{UsedBytes: 600 << 20, InodesUsed: 77, Partial: true})
	w.setDisk(900, 1_000_000)
	l := w.look(time.Second)
	w.wantVictim(l, "first")
	l.e.Pod.Cgroup, l.e.Pod.CgroupID.Ino = "", 1
	restored := newTestNode(t, "hard nodefs.available 1000Mi", "hard nodefs.inodesFree 1k").m
	if dropped := restored.Resume(w.now, w.m.Save()); len(dropped) > 0 || restored.evictions.lives[0].baselines != l.baselines {
		t.Errorf("Resume dropped %v, baselines = %+v, want %+v", dropped, restored.evictions.lives[0].baselines, l.baselines)
	}
}

// A disk that cannot be measured has not shown what a clean-up returned.
func TestUnmeasuredDiskKeepsWaiting(t *testing.T) {
	w := newTestNode(t, "hard nodefs.available 1000Mi")
	w.setFiles("first", stats.FsUsage{UsedBytes: 5000 << 20})
	w.setFiles("second", stats.FsUsage{UsedBytes: 300 << 20})
	w.setDisk(900, 1_000_000)
	l := w.look(time.Second)
	w.wantVictim(l, "first")
	w.reportDead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.node.Fs, w.node.ContainerFs = stats.Opt[stats.FsStats]{}, stats.Opt[stats.FsStats]{}
	w.wantVictim(w.look(time.Second), "")
	w.setDisk(900, 1_000_000)
	w.wantVictim(w.look(time.Second), "")
}

// The layout decides which signals share a file system.
func TestSameDisk(t *testing.T) {
	for _, c := range []struct {
		l    stats.Layout
		want [3]bool // node and image, node and container, image and container
	}{
		{stats.Layout{}, [3]bool{true, true, true}},
		{stats.Layout{DedicatedImageFs: true}, [3]bool{false, false, true}},
		{stats.Layout{DedicatedImageFs: true, SplitContainerFs: true}, [3]bool{false, true, false}},
	} {
		d := &fileSystems{layout: stats.Some(c.l)}
		got := [3]bool{d.sameDisk(nodeFs, imageFs), d.sameDisk(containerFs, nodeFs), d.sameDisk(imageFs, containerFs)}
		if got != c.want {
			t.Errorf("sameDisk with layout %+v = %v, want %v", c.l, got, c.want)
		}
	}
}
