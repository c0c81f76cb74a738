package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// disk sets what is left of the node's: MiB, and inodes.
func (w *ward) disk(left, inodes uint64) {
	w.node.Fs = stats.Some(stats.FsStats{
		AvailableBytes: stats.Some(left << 20), CapacityBytes: stats.Some(uint64(25_000 << 20)),
		InodesFree: stats.Some(inodes), Inodes: stats.Some(uint64(2_000_000)),
	})
	w.node.ContainerFs = w.node.Fs
}

// files gives a pod some.
func (w *ward) files(uid string, use stats.FsUsage) {
	container(w.pod(uid, 10, 0, 1)).Rootfs = stats.Some(use)
}

// One file system is spoken of by two signals at least. A victim goes for it at 200 MiB left, which it fills while it is being stopped, and
// its files take half a minute to be removed.
func TestAVictimOfOneSignalHoldsTheWholeDisk(t *testing.T) {
	for _, also := range []string{"", "hard nodefs.inodesFree 100k"} {
		w := newWard(t, "hard nodefs.available 2240Mi", also)
		w.files("stressor", stats.FsUsage{UsedBytes: 1480 << 20, InodesUsed: 4000})
		w.files("clerk", stats.FsUsage{UsedBytes: 32 << 10, InodesUsed: 15})
		w.disk(4000, 180_000)
		w.victim(w.look(time.Second), "")
		w.disk(200, 99_000)
		l := w.look(time.Second)
		w.victim(l, "stressor")
		for range 4 {
			w.disk(0, 40_000)
			w.victim(w.look(1500*time.Millisecond), "")
		}
		w.dead(l)
		for i := range uint64(20) {
			w.disk(i, 40_000)
			w.victim(w.look(1500*time.Millisecond), "")
		}
		w.disk(500, 50_000)
		w.victim(w.look(time.Second), "")
		w.m.Cleaned(Stamp{Time: w.now}, l)
		w.disk(4000, 200_000)
		w.victim(w.look(time.Second), "")
	}
}

// What a victim is known to hold is the least that it holds: those whose files were not all found do not explain the shortage, and
// many take longer than two seconds to be stopped. Figures of a node where three went for one.
func TestAVictimThatHoldsAtLeastSoMuchIsAwaited(t *testing.T) {
	for _, soft := range []bool{false, true} {
		lines := []string{"hard nodefs.inodesFree 193328"}
		if soft {
			lines = []string{"soft nodefs.inodesFree 193328", "grace nodefs.inodesFree 1s"}
		}
		w := newWard(t, lines...)
		w.files("stressor", stats.FsUsage{UsedBytes: 1 << 20, InodesUsed: 3366, Partial: true})
		w.files("clerk", stats.FsUsage{UsedBytes: 32 << 10, InodesUsed: 15})
		w.files("redis", stats.FsUsage{UsedBytes: 32 << 10, InodesUsed: 11})
		w.disk(9000, 196_200)
		w.victim(w.look(time.Second), "")
		w.disk(9000, 188_980)
		if soft {
			w.victim(w.look(time.Second), "")
		}
		w.disk(9000, 187_756)
		l := w.look(1200 * time.Millisecond)
		w.victim(l, "stressor")
		for _, at := range []struct {
			later time.Duration
			left  uint64
			dead  bool
		}{
			{2740, 187_729, false}, {2080, 188_296, true}, {2200, 188_299, false}, {5000, 190_400, false}, {5000, 192_900, false},
		} {
			w.disk(9000, at.left)
			w.victim(w.look(at.later*time.Millisecond), "")
			if at.dead {
				w.dead(l)
			}
		}
		w.m.Cleaned(Stamp{Time: w.now}, l)
		w.disk(9000, 193_100) // more than what was known of it, and what is left comes with the runtime's own garbage collection
		w.victim(w.look(2*time.Second), "")
		w.disk(9000, 196_200)
		w.victim(w.look(2*time.Second), "")
	}
}

// Nothing waits for ever: neither for a victim that does not die, nor for files that nobody removes, nor for a runtime that has removed
// them and frees nothing.
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
				w := newWard(t, "hard nodefs.available 1000Mi")
				w.files("first", stats.FsUsage{UsedBytes: 5000 << 20, Partial: partial})
				w.files("second", stats.FsUsage{UsedBytes: 300 << 20})
				w.disk(4000, 1_000_000)
				w.victim(w.look(time.Second), "")
				w.disk(900, 1_000_000)
				l := w.look(time.Second)
				w.victim(l, "first")
				w.disk(0, 1_000_000)
				w.victim(w.look(time.Second), "")
				since := w.now
				if c.dead {
					w.dead(l)
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
						t.Fatalf("nobody goes for %v: %s", waited, w.why)
					}
					if l == nil || l.e.Pod.PodRef.UID == "first" {
						continue
					}
					if w.victim(l, "second"); waited < c.least {
						t.Fatalf("it goes after %v", waited)
					}
					return
				}
			})
		}
	}
}

// Another that eats what is left once the victim is dead goes while files are removed, where they do not make up for it.
func TestAnotherEatsTheDiskOfADeadVictim(t *testing.T) {
	for due, want := range map[uint64]string{400: "second", 5000: ""} {
		w := newWard(t, "hard nodefs.available 1000Mi")
		w.files("first", stats.FsUsage{UsedBytes: due << 20})
		w.files("second", stats.FsUsage{UsedBytes: 300 << 20})
		w.disk(4000, 1_000_000)
		w.victim(w.look(time.Second), "")
		w.disk(900, 1_000_000)
		l := w.look(time.Second)
		w.victim(l, "first")
		w.dead(l)
		w.disk(500, 1_000_000)
		w.victim(w.look(time.Second), "")
		w.disk(400, 1_000_000)
		w.victim(w.look(time.Second), want)
	}
}

// A gentle victim holds up no hard threshold while it lives, but what it leaves does where it ends the shortage.
func TestTheFilesOfAGentleVictimHoldAHardThreshold(t *testing.T) {
	for due, want := range map[uint64]string{5000: "", 100: "second"} {
		w := newWard(t, "hard nodefs.available 1000Mi", "soft nodefs.available 2000Mi", "grace nodefs.available 1s")
		w.files("first", stats.FsUsage{UsedBytes: due << 20})
		w.files("second", stats.FsUsage{UsedBytes: 90 << 20})
		w.disk(4000, 1_000_000)
		w.victim(w.look(time.Second), "")
		w.disk(1500, 1_000_000)
		w.victim(w.look(time.Second), "")
		l := w.look(time.Second)
		w.victim(l, "first")
		w.dead(l)
		w.disk(800, 1_000_000)
		w.victim(w.look(time.Second), want)
	}
}

// What comes back of two victims is taken off once.
func TestWhatComesBackOfTwoVictimsCountsOnce(t *testing.T) {
	w := newWard(t, "hard nodefs.available 2000Mi")
	w.files("first", stats.FsUsage{UsedBytes: 600 << 20})
	w.files("second", stats.FsUsage{UsedBytes: 500 << 20})
	w.files("third", stats.FsUsage{UsedBytes: 30 << 20})
	w.disk(4000, 1_000_000)
	w.victim(w.look(time.Second), "")
	w.disk(900, 1_000_000)
	first := w.look(time.Second)
	w.victim(first, "first")
	w.dead(first)
	w.disk(200, 1_000_000)
	second := w.look(time.Second)
	w.victim(second, "second")
	w.dead(second)
	w.disk(800, 1_000_000)
	w.victim(w.look(time.Second), "")
	w.disk(90, 1_000_000)
	w.victim(w.look(time.Second), "")
	if left := w.m.evictions.pendingReturns(w.now, &w.m.watch.all[0], &w.m.watch).remaining; left != 500<<20 {
		t.Errorf("%d MiB are expected still", left>>20)
	}
}

// What was known of a disk's victim, by each signal, is known after a restart.
func TestWhatADiskIsOwedIsKept(t *testing.T) {
	w := newWard(t, "hard nodefs.available 1000Mi", "hard nodefs.inodesFree 1k")
	w.files("first", stats.FsUsage{UsedBytes: 600 << 20, InodesUsed: 77, Partial: true})
	w.disk(900, 1_000_000)
	l := w.look(time.Second)
	w.victim(l, "first")
	l.e.Pod.Cgroup, l.e.Pod.CgroupID.Ino = "", 1
	again := newWard(t, "hard nodefs.available 1000Mi", "hard nodefs.inodesFree 1k").m
	if dropped := again.Resume(w.now, w.m.Save()); len(dropped) > 0 || again.evictions.lives[0].baselines != l.baselines {
		t.Errorf("%v: %+v, want %+v", dropped, again.evictions.lives[0].baselines, l.baselines)
	}
}

// A disk that cannot be measured has not shown what a clean-up gave.
func TestADiskThatIsNotMeasuredShowsNothing(t *testing.T) {
	w := newWard(t, "hard nodefs.available 1000Mi")
	w.files("first", stats.FsUsage{UsedBytes: 5000 << 20})
	w.files("second", stats.FsUsage{UsedBytes: 300 << 20})
	w.disk(900, 1_000_000)
	l := w.look(time.Second)
	w.victim(l, "first")
	w.dead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.node.Fs, w.node.ContainerFs = stats.Opt[stats.FsStats]{}, stats.Opt[stats.FsStats]{}
	w.victim(w.look(time.Second), "")
	w.disk(900, 1_000_000)
	w.victim(w.look(time.Second), "")
}

// Which signals speak of one file system is the layout's to say.
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
			t.Errorf("%+v: %v", c.l, got)
		}
	}
}
