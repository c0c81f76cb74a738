package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// shmem is what the node has in shared memory, in MiB.
func (w *ward) shmem(mib uint64) { w.node.Memory.ShmemBytes = stats.Some(mib << 20) }

// inMemory is a pod whose files lie in a tmpfs, with innocents beside it. It is evicted for memory and dead, the runtime has cleaned up, and
// the files are still there: a kubelet unmounts them in its own time.
func inMemory(t *testing.T, files uint64, lines ...string) (*ward, *Life) {
	w := newWard(t, append(lines, "hard memory.available 100Mi")...)
	w.pod("files", files+5, 0, 1).Memory.ShmemBytes = stats.Some(files << 20)
	w.pods[0].Memory.AnonBytes = stats.Some(uint64(5 << 20))
	for _, uid := range []string{"innocent1", "innocent2", "innocent3", "innocent4"} {
		w.pod(uid, 3, 0, 1)
	}
	w.free(90, files+10)
	l := w.look(time.Second)
	w.victim(l, "files")
	w.look(10 * time.Millisecond)
	w.dead(l)
	w.look(10 * time.Millisecond)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	return w, l
}

// free sets what is available, and what lies in shared memory.
func (w *ward) free(mib, shmem uint64) {
	w.left(stats.SignalMemoryAvailable, mib)
	w.shmem(shmem)
}

// Memory that lies in a volume comes back when its owner unmounts it. That the runtime has cleaned up says nothing of that: nobody else goes
// for it meanwhile.
func TestWhatLiesInAVolumeIsAwaited(t *testing.T) {
	w, l := inMemory(t, 400)
	for range 50 {
		w.free(88, 409)
		w.victim(w.look(100*time.Millisecond), "")
	}
	w.free(490, 10)
	w.victim(w.look(100*time.Millisecond), "")
	if w.m.Ready(w.now); l.Outcome() != OutcomeBack || !l.settled {
		t.Errorf("outcome %v, settled %v", l.Outcome(), l.settled)
	}
}

// Not for ever: after 15 s the next one goes. And not while half of what was left is gone, nor once the volume is gone and memory still short,
// nor for what does not explain the shortage.
func TestWhatLiesInAVolumeIsNotAwaitedInVain(t *testing.T) {
	w, _ := inMemory(t, 400)
	w.free(88, 410)
	w.victim(w.look(14900*time.Millisecond), "")
	w.victim(w.look(100*time.Millisecond), "innocent1")

	w, _ = inMemory(t, 400)
	w.free(44, 410)
	w.victim(w.look(100*time.Millisecond), "innocent1")

	w, _ = inMemory(t, 400)
	w.free(88, 20)
	w.victim(w.look(100*time.Millisecond), "innocent1")

	w, _ = inMemory(t, 20)
	w.free(79, 30)
	w.victim(w.look(100*time.Millisecond), "innocent1")
}

// Two at once: what the one gives back is not taken for the other's.
func TestTwoVolumesAtOnce(t *testing.T) {
	w, _ := inMemory(t, 400)
	last := &w.pods[len(w.pods)-1] // another one with files
	last.Memory.WorkingSetBytes, last.Memory.ShmemBytes = stats.Some(uint64(305<<20)), stats.Some(uint64(300<<20))
	w.free(40, 710) // half of what was left is gone
	l := w.look(100 * time.Millisecond)
	w.victim(l, last.PodRef.UID)
	w.dead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.free(38, 710)
	w.victim(w.look(time.Second), "")
	w.free(60, 310) // the first one's, and somebody took what that gave
	w.victim(w.look(time.Second), "")
	w.free(60, 10)
	if l := w.look(time.Second); l == nil {
		t.Errorf("both are gone, memory is short: %s", w.why)
	}
}

// A victim of a soft threshold that is dead is none that a hard threshold does not wait for: its memory is on its way. So is that of one that
// went for something else.
func TestAVolumeIsAwaitedWhateverItsOwnerWentFor(t *testing.T) {
	w := newWard(t, "hard memory.available 100Mi", "soft memory.available 200Mi", "grace memory.available 1s", "hard pid.available 1000")
	w.pod("files", 405, 0, 3000).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
	w.pod("innocent", 3, 0, 1)
	w.free(150, 410)
	w.victim(w.look(time.Second), "")
	l := w.look(2 * time.Second)
	w.victim(l, "files")
	w.dead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.free(95, 410)
	w.victim(w.look(3*time.Second), "")

	w = newWard(t, "hard memory.available 100Mi", "hard pid.available 1000")
	w.pod("files", 405, 0, 3000).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
	w.pod("innocent", 3, 0, 1)
	w.free(150, 410)
	w.left(stats.SignalPIDAvailable, 900)
	l = w.look(time.Second)
	w.victim(l, "files")
	w.dead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.left(stats.SignalPIDAvailable, 3900)
	w.free(95, 410)
	w.victim(w.look(3*time.Second), "")
}

// A restart forgets none of it.
func TestAVolumeIsAwaitedOverARestart(t *testing.T) {
	w, l := inMemory(t, 400)
	w.free(88, 400)
	w.victim(w.look(100*time.Millisecond), "")
	saved, again := onFile(t, w.m.Save()), managerOf(t, 0, "own x", "hard memory.available 100Mi")
	again.config.Replay = false
	if dropped := again.Resume(w.now, saved); len(dropped) > 0 || again.evictions.lives[0].awaited != l.awaited || again.evictions.pool != w.m.evictions.pool {
		t.Errorf("dropped %v, was %+v %+v, is %+v %+v", dropped, l.awaited, w.m.evictions.pool, again.evictions.lives[0].awaited, again.evictions.pool)
	}
	w.m = again
	w.victim(w.look(time.Second), "")
	w.victim(w.look(15*time.Second), "innocent1")
	saved.Lives[0].Shmem = &SavedShmem{Bytes: 1 << 63}
	again = managerOf(t, 0, "hard memory.available 100Mi")
	if dropped := again.Resume(w.now, saved); len(dropped) != 1 || again.evictions.lives[0].shmem.bytes != 0 {
		t.Errorf("dropped %v, is %+v", dropped, again.evictions.lives[0].shmem)
	}
	saved = onFile(t, w.m.Save())
	for _, broken := range []*SavedPool{nil, {Need: 1 << 63}, {Need: 400 << 20, Highest: new(uint64(1 << 63))}} {
		saved.Shmem = broken
		again = managerOf(t, 0, "own x", "hard memory.available 100Mi")
		dropped := again.Resume(w.now, saved)
		if len(dropped) > 0 != (broken != nil) || again.evictions.pool != (sharedPool{}) {
			t.Errorf("%+v: dropped %v, is %+v", broken, dropped, again.evictions.pool)
		}
	}
}

// What is awaited of a volume does not let a second pod eat all that came back since: a victim was killed when next to nothing was left, much
// came back, and that is what the next shortage is held against.
func TestWhatCameBackIsNotEatenWhileAVolumeIsAwaited(t *testing.T) {
	w := newWard(t, "hard memory.available 100Mi")
	w.pod("files", 405, 0, 1).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
	w.pods[0].Memory.AnonBytes = stats.Some(uint64(5 << 20))
	w.pod("leaker", 3, 0, 1)
	w.free(4, 410)
	l := w.look(time.Second)
	w.victim(l, "files")
	w.look(10 * time.Millisecond)
	w.dead(l)
	w.look(10 * time.Millisecond)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.free(2000, 410)
	w.victim(w.look(500*time.Millisecond), "")
	w.pods[1].Memory.WorkingSetBytes, w.pods[1].Memory.AnonBytes = stats.Some(uint64(1950<<20)), stats.Some(uint64(1950<<20))
	for _, left := range []uint64{99, 80, 60, 51} {
		w.free(left, 410)
		w.victim(w.look(200*time.Millisecond), "")
	}
	w.free(48, 410)
	w.victim(w.look(200*time.Millisecond), "leaker")
}

// What others write into tmpfs meanwhile does not hide that a volume is gone: the node's shared memory falls from where it was then, not only
// from where it was at the kill.
func TestAVolumeThatIsGoneIsNotAwaitedForWhatOthersWrote(t *testing.T) {
	w, _ := inMemory(t, 400)
	for _, shmem := range []uint64{500, 600, 700} {
		w.free(88, shmem)
		w.victim(w.look(100*time.Millisecond), "")
	}
	w.free(88, 300) // the 400 of the volume are gone
	w.victim(w.look(100*time.Millisecond), "innocent1")

	w, _ = inMemory(t, 400)
	for _, shmem := range []uint64{400, 300, 400, 300, 400, 300, 400, 300} { // one that comes and goes is not taken for the volume
		w.free(88, shmem)
		w.victim(w.look(100*time.Millisecond), "")
	}
}

// What is awaited of one victim no longer, for it does not die or its owner never unmounts, is no part of what another one's volume has to
// fall by.
func TestWhatIsGivenUpIsNoPartOfAnothersVolume(t *testing.T) {
	for _, dies := range []bool{false, true} {
		w := newWard(t, "hard memory.available 100Mi")
		w.pod("first", 600, 0, 1).Memory.ShmemBytes = stats.Some(uint64(170 << 20))
		w.pod("files", 405, 0, 1).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
		w.pods[1].Memory.AnonBytes = stats.Some(uint64(5 << 20))
		w.pod("innocent", 3, 0, 1)
		w.free(90, 580)
		first := w.look(time.Second)
		w.victim(first, "first")
		began := w.now
		if dies {
			w.dead(first)
			w.m.Cleaned(Stamp{Time: w.now}, first)
		}
		w.free(3, 580)
		l := w.look(2100 * time.Millisecond)
		w.victim(l, "files")
		w.dead(l)
		w.m.Cleaned(Stamp{Time: w.now}, l)
		w.free(88, 180) // its files are gone, the first one's are not
		until := DieLimit
		if dies {
			until = sharedLimit
		}
		w.victim(w.look(began.Add(until).Sub(w.now)-time.Millisecond), "")
		w.now = began.Add(until)
		if !dies {
			w.m.Refused(w.now, first)
		}
		w.victim(w.look(100*time.Millisecond), "innocent")
	}
}

// A kubelet restarts a pod with its volumes, so that what lies in them does not come back. That is seen once the wait takes long.
func TestAVolumeOfAPodThatCameBackIsNotAwaited(t *testing.T) {
	w, _ := inMemory(t, 400)
	w.free(88, 409)
	w.victim(w.look(100*time.Millisecond), "")
	w.pods[0].Populated, w.pods[0].SandboxIDs = stats.Some(true), []string{"another"}
	w.victim(w.look(100*time.Millisecond), "")
	if l := w.look(settleLimit); l == nil {
		l = w.look(pollShort)
		w.victim(l, "files")
	}
}

// What falls before a victim has died is of those that are dead: once that is theirs, its own is held against what there is then.
func TestOneVolumeIsGoneBeforeTheOtherOwnerDies(t *testing.T) {
	w := newWard(t, "hard memory.available 100Mi")
	w.pod("stuck", 900, 0, 1).Memory.ShmemBytes = stats.Some(uint64(300 << 20))
	w.pod("files", 405, 0, 1).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
	w.pods[1].Memory.AnonBytes = stats.Some(uint64(5 << 20))
	w.pod("innocent", 3, 0, 1)
	w.free(90, 710)
	stuck := w.look(time.Second)
	w.victim(stuck, "stuck")
	w.free(3, 710)
	l := w.look(2100 * time.Millisecond)
	w.victim(l, "files")
	w.dead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.free(420, 310)
	w.victim(w.look(100*time.Millisecond), "")
	w.free(200, 500) // somebody writes
	w.victim(w.look(time.Second), "")
	w.dead(stuck)
	w.m.Cleaned(Stamp{Time: w.now}, stuck)
	w.free(95, 200) // and the 300 are gone
	w.victim(w.look(settleLimit), "innocent")
}

// The end of the wait for one whose files may be gone is no end of the wait for a volume of which nothing can be back, for nothing fell since.
func TestWhatCannotBeBackIsAwaited(t *testing.T) {
	w := newWard(t, "hard memory.available 100Mi")
	for i, uid := range []string{"first", "second", "third"} {
		p := w.pod(uid, uint64(905-200*i), 0, 1)
		p.Memory.ShmemBytes, p.Memory.AnonBytes = stats.Some(uint64(900-200*i)<<20), stats.Some(uint64(5<<20))
	}
	w.pod("innocent", 3, 0, 1)
	goes := func(later time.Duration, uid string, left, shmem uint64) {
		w.free(left, shmem)
		l := w.look(later)
		w.victim(l, uid)
		w.dead(l)
		w.m.Cleaned(Stamp{Time: w.now}, l)
	}
	goes(time.Second, "first", 90, 2100)
	goes(2*time.Second, "second", 40, 2100) // the first one's volume stays
	w.free(300, 1400)                       // the second one's is gone
	w.victim(w.look(2*time.Second), "")
	goes(4*time.Second, "third", 10, 1400)
	w.free(88, 1400)
	w.victim(w.look(time.Second), "")
	w.victim(w.look(10*time.Second), "") // neither of the others is awaited any more
	w.victim(w.look(4*time.Second), "innocent")
}
