package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// A pod maps and writes a file that it has unlinked. It is stopped for the disk, and memory is short by less than it has of the file in
// memory before it has ended: that counts as used until then, and comes back with its end. Nobody else goes for it, unless it is too little.
func TestAFileWithoutANameReturnsItsPageCache(t *testing.T) {
	for _, short := range []uint64{2, 250, 400} {
		w := newWard(t, "hard nodefs.available 1000Mi", "hard memory.available 500Mi")
		w.files("clerk", stats.FsUsage{})
		w.files("stressor", stats.FsUsage{})
		p := &w.pods[1]
		p.Memory.WorkingSetBytes = stats.Some(uint64(310 << 20))
		w.disk(4000, 1_000_000)
		w.victim(w.look(11*time.Second), "")
		p.EphemeralStorage.Unnamed.Node = stats.Some(stats.FsUsage{UsedBytes: 300 << 20})
		w.disk(900, 1_000_000)
		l := w.look(11 * time.Second)
		w.victim(l, "stressor")
		w.left(stats.SignalMemoryAvailable, 500-short)
		if short > 310 {
			w.victim(w.look(time.Second), "clerk")
			continue
		}
		w.victim(w.look(time.Second), "")
		w.victim(w.look(time.Second), "")
		w.dead(l)
		w.left(stats.SignalMemoryAvailable, 810-short)
		w.victim(w.look(500*time.Millisecond), "")
		w.left(stats.SignalMemoryAvailable, 490) // somebody else's
		w.victim(w.look(500*time.Millisecond), "clerk")
	}
}

// A victim of a disk counts for memory until it is dead, and for no pressure: its clean-up takes minutes.
func TestWhatAVictimOfADiskCountsFor(t *testing.T) {
	w := newWard(t, "hard nodefs.available 1000Mi", "hard memory.available 500Mi", "hard memory.pressure.full 50%/1s")
	w.files("stressor", stats.FsUsage{UsedBytes: 300 << 20})
	w.disk(4000, 1_000_000)
	w.victim(w.look(11*time.Second), "")
	w.disk(900, 1_000_000)
	l := w.look(11 * time.Second)
	w.victim(l, "stressor")
	counts := func() (memory, pressure bool) {
		for i := range w.m.watched {
			switch one := &w.m.watched[i]; {
			case one.Signal == stats.SignalMemoryAvailable:
				memory = l.counts(w.now, one)
			case one.info.kind.pressure():
				pressure = l.counts(w.now, one)
			}
		}
		return memory, pressure
	}
	if memory, pressure := counts(); !memory || pressure {
		t.Errorf("alive it counts for memory %v, for pressure %v, want true and false", memory, pressure)
	}
	w.dead(l)
	if memory, pressure := counts(); memory || pressure {
		t.Errorf("dead it counts for memory %v, for pressure %v, want false", memory, pressure)
	}
}

// A victim of a disk that the kernel holds is waited for as long as what it has of memory is measured, and explains the shortage. What
// cannot be measured counts for two seconds.
func TestAVictimOfADiskThatDoesNotDie(t *testing.T) {
	for _, c := range []struct {
		has  uint64 // MiB, in the end; 0: it is not measured any more
		next string
	}{{310, ""}, {40, "clerk"}, {0, "clerk"}} {
		w := newWard(t, "hard nodefs.available 1000Mi", "hard memory.available 500Mi")
		w.files("clerk", stats.FsUsage{})
		w.files("stressor", stats.FsUsage{UsedBytes: 300 << 20})
		w.uses("stressor", 310, false)
		w.disk(4000, 1_000_000)
		w.victim(w.look(11*time.Second), "")
		w.disk(900, 1_000_000)
		l := w.look(11 * time.Second)
		w.victim(l, "stressor")
		w.m.Killed(Stamp{Time: w.now}, l)
		w.left(stats.SignalMemoryAvailable, 300)
		w.victim(w.look(time.Second), "")
		w.uses("stressor", c.has, false)
		if c.has == 0 {
			w.pods = w.pods[:1]
		}
		w.victim(w.look(1500*time.Millisecond), c.next)
	}
}
