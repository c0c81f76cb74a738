package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// setShmem sets the node's shared memory, in MiB.
func (w *testNode) setShmem(mib uint64) { w.node.Memory.ShmemBytes = stats.Some(mib << 20) }

// nodeWithVolumeInMemory returns a node with innocent pods and one whose files are in a tmpfs. That
// pod was evicted for memory and is dead, the runtime has cleaned up, and the files still exist: a
// kubelet unmounts them later.
func nodeWithVolumeInMemory(t *testing.T, files uint64, lines ...string) (*testNode, *Life) {
	w := newTestNode(t, append(lines, "hard memory.available 100Mi")...)
	w.addPod("files", files+5, 0, 1).Memory.ShmemBytes = stats.Some(files << 20)
	w.pods[0].Memory.AnonBytes = stats.Some(uint64(5 << 20))
	for _, uid := range []string{"innocent1", "innocent2", "innocent3", "innocent4"} {
		w.addPod(uid, 3, 0, 1)
	}
	w.setMemory(90, files+10)
	l := w.look(time.Second)
	w.wantVictim(l, "files")
	w.look(10 * time.Millisecond)
	w.reportDead(l)
	w.look(10 * time.Millisecond)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	return w, l
}

// setMemory sets the available and the shared memory.
func (w *testNode) setMemory(mib, shmem uint64) {
	w.setLeft(stats.SignalMemoryAvailable, mib)
	w.setShmem(shmem)
}

// Memory in a volume returns when its owner unmounts it. The runtime's clean-up does not show that:
// no other pod is evicted meanwhile.
func TestWhatLiesInAVolumeIsAwaited(t *testing.T) {
	w, l := nodeWithVolumeInMemory(t, 400)
	for range 50 {
		w.setMemory(88, 409)
		w.wantVictim(w.look(100*time.Millisecond), "")
	}
	w.setMemory(490, 10)
	w.wantVictim(w.look(100*time.Millisecond), "")
	if w.m.Ready(w.now); l.Outcome() != OutcomeBack || !l.settled {
		t.Errorf("outcome = %v, settled = %v, want back and true", l.Outcome(), l.settled)
	}
}

// The wait ends: after 15 s the next pod is evicted. There is no wait once half of the amount is
// gone, once the volume is freed and memory still short, or for a volume that does not end the
// shortage.
func TestVolumeWaitEnds(t *testing.T) {
	w, _ := nodeWithVolumeInMemory(t, 400)
	w.setMemory(88, 410)
	w.wantVictim(w.look(14900*time.Millisecond), "")
	w.wantVictim(w.look(100*time.Millisecond), "innocent1")

	w, _ = nodeWithVolumeInMemory(t, 400)
	w.setMemory(44, 410)
	w.wantVictim(w.look(100*time.Millisecond), "innocent1")

	w, _ = nodeWithVolumeInMemory(t, 400)
	w.setMemory(88, 20)
	w.wantVictim(w.look(100*time.Millisecond), "innocent1")

	w, _ = nodeWithVolumeInMemory(t, 20)
	w.setMemory(79, 30)
	w.wantVictim(w.look(100*time.Millisecond), "innocent1")
}

// Two volumes together: what one returns does not count for the other.
func TestTwoVolumesTogether(t *testing.T) {
	w, _ := nodeWithVolumeInMemory(t, 400)
	last := &w.pods[len(w.pods)-1] // another pod with files
	last.Memory.WorkingSetBytes, last.Memory.ShmemBytes = stats.Some(uint64(305<<20)), stats.Some(uint64(300<<20))
	w.setMemory(40, 710) // half of the amount is gone
	l := w.look(100 * time.Millisecond)
	w.wantVictim(l, last.PodRef.UID)
	w.reportDead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.setMemory(38, 710)
	w.wantVictim(w.look(time.Second), "")
	w.setMemory(60, 310) // the first volume was freed, and another process took that
	w.wantVictim(w.look(time.Second), "")
	w.setMemory(60, 10)
	if l := w.look(time.Second); l == nil {
		t.Errorf("both volumes freed, memory short: no eviction, want one: %s", w.reason)
	}
}

// A dead victim of a soft threshold delays a hard one, because its memory will return. So does a
// victim of another signal.
func TestVolumeWaitForAnySignal(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi", "soft memory.available 200Mi", "grace memory.available 1s", "hard pid.available 1000")
	w.addPod("files", 405, 0, 3000).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
	w.addPod("innocent", 3, 0, 1)
	w.setMemory(150, 410)
	w.wantVictim(w.look(time.Second), "")
	l := w.look(2 * time.Second)
	w.wantVictim(l, "files")
	w.reportDead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.setMemory(95, 410)
	w.wantVictim(w.look(3*time.Second), "")

	w = newTestNode(t, "hard memory.available 100Mi", "hard pid.available 1000")
	w.addPod("files", 405, 0, 3000).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
	w.addPod("innocent", 3, 0, 1)
	w.setMemory(150, 410)
	w.setLeft(stats.SignalPIDAvailable, 900)
	l = w.look(time.Second)
	w.wantVictim(l, "files")
	w.reportDead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.setLeft(stats.SignalPIDAvailable, 3900)
	w.setMemory(95, 410)
	w.wantVictim(w.look(3*time.Second), "")
}

// A restart forgets none of it.
func TestVolumeWaitSurvivesRestart(t *testing.T) {
	w, l := nodeWithVolumeInMemory(t, 400)
	w.setMemory(88, 400)
	w.wantVictim(w.look(100*time.Millisecond), "")
	saved, restored := throughFile(t, w.m.Save()), managerOf(t, 0, "own x", "hard memory.available 100Mi")
	restored.config.Replay = false
	if dropped := restored.Resume(w.now, saved); len(dropped) > 0 || restored.evictions.lives[0].awaited != l.awaited || restored.evictions.pool != w.m.evictions.pool {
		t.Errorf("Resume dropped %v, expected returns %+v %+v, want %+v %+v", dropped, restored.evictions.lives[0].awaited, restored.evictions.pool, l.awaited, w.m.evictions.pool)
	}
	w.m = restored
	w.wantVictim(w.look(time.Second), "")
	w.wantVictim(w.look(15*time.Second), "innocent1")
	saved.Lives[0].Shmem = &SavedShmem{Bytes: 1 << 63}
	restored = managerOf(t, 0, "hard memory.available 100Mi")
	if dropped := restored.Resume(w.now, saved); len(dropped) != 1 || restored.evictions.lives[0].shmem.bytes != 0 {
		t.Errorf("Resume dropped %v, shared memory = %+v, want one error and none", dropped, restored.evictions.lives[0].shmem)
	}
	saved = throughFile(t, w.m.Save())
	for _, broken := range []*SavedPool{nil, {Need: 1 << 63}, {Need: 400 << 20, Highest: new(uint64(1 << 63))}} {
		saved.Shmem = broken
		restored = managerOf(t, 0, "own x", "hard memory.available 100Mi")
		dropped := restored.Resume(w.now, saved)
		if len(dropped) > 0 != (broken != nil) || restored.evictions.pool != (sharedPool{}) {
			t.Errorf("saved pool %+v: Resume dropped %v, pool = %+v, want it empty", broken, dropped, restored.evictions.pool)
		}
	}
}

// While a volume is awaited, no second pod may use up everything that returned: a victim was killed
// when next to nothing was left, much returned, and the next shortage is compared with that.
func TestReturnedMemoryIsProtectedDuringVolumeWait(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.addPod("files", 405, 0, 1).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
	w.pods[0].Memory.AnonBytes = stats.Some(uint64(5 << 20))
	w.addPod("leaker", 3, 0, 1)
	w.setMemory(4, 410)
	l := w.look(time.Second)
	w.wantVictim(l, "files")
	w.look(10 * time.Millisecond)
	w.reportDead(l)
	w.look(10 * time.Millisecond)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.setMemory(2000, 410)
	w.wantVictim(w.look(500*time.Millisecond), "")
	w.pods[1].Memory.WorkingSetBytes, w.pods[1].Memory.AnonBytes = stats.Some(uint64(1950<<20)), stats.Some(uint64(1950<<20))
	for _, left := range []uint64{99, 80, 60, 51} {
		w.setMemory(left, 410)
		w.wantVictim(w.look(200*time.Millisecond), "")
	}
	w.setMemory(48, 410)
	w.wantVictim(w.look(200*time.Millisecond), "leaker")
}

// What others write into tmpfs meanwhile does not hide that a volume was freed: the node's shared
// memory falls from its value at that time, not only from its value at the kill.
func TestFreedVolumeIsSeenDespiteOtherWriters(t *testing.T) {
	w, _ := nodeWithVolumeInMemory(t, 400)
	for _, shmem := range []uint64{500, 600, 700} {
		w.setMemory(88, shmem)
		w.wantVictim(w.look(100*time.Millisecond), "")
	}
	w.setMemory(88, 300) // the 400 of the volume are freed
	w.wantVictim(w.look(100*time.Millisecond), "innocent1")

	w, _ = nodeWithVolumeInMemory(t, 400)
	// memory that comes and goes does not count for the volume
	for _, shmem := range []uint64{400, 300, 400, 300, 400, 300, 400, 300} {
		w.setMemory(88, shmem)
		w.wantVictim(w.look(100*time.Millisecond), "")
	}
}

// A victim that is no longer awaited, because it does not die or its owner never unmounts, is no
// part of what another victim's volume has to fall by.
func TestAbandonedVolumeWaitIsNotShared(t *testing.T) {
	for _, dies := range []bool{false, true} {
		w := newTestNode(t, "hard memory.available 100Mi")
		w.addPod("first", 600, 0, 1).Memory.ShmemBytes = stats.Some(uint64(170 << 20))
		w.addPod("files", 405, 0, 1).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
		w.pods[1].Memory.AnonBytes = stats.Some(uint64(5 << 20))
		w.addPod("innocent", 3, 0, 1)
		w.setMemory(90, 580)
		first := w.look(time.Second)
		w.wantVictim(first, "first")
		began := w.now
		if dies {
			w.reportDead(first)
			w.m.Cleaned(Stamp{Time: w.now}, first)
		}
		w.setMemory(3, 580)
		l := w.look(2100 * time.Millisecond)
		w.wantVictim(l, "files")
		w.reportDead(l)
		w.m.Cleaned(Stamp{Time: w.now}, l)
		w.setMemory(88, 180) // its files are freed, the first one's are not
		until := DieLimit
		if dies {
			until = sharedLimit
		}
		w.wantVictim(w.look(began.Add(until).Sub(w.now)-time.Millisecond), "")
		w.now = began.Add(until)
		if !dies {
			w.m.MarkUndying(w.now, first)
		}
		w.wantVictim(w.look(100*time.Millisecond), "innocent")
	}
}

// A kubelet restarts a pod with its volumes, so that their memory does not return. That is detected
// once the wait takes long.
func TestVolumeOfRecreatedPodIsNotAwaited(t *testing.T) {
	w, _ := nodeWithVolumeInMemory(t, 400)
	w.setMemory(88, 409)
	w.wantVictim(w.look(100*time.Millisecond), "")
	w.pods[0].Populated, w.pods[0].SandboxIDs = stats.Some(true), []string{"another"}
	w.wantVictim(w.look(100*time.Millisecond), "")
	if l := w.look(settleLimit); l == nil {
		l = w.look(pollShort)
		w.wantVictim(l, "files")
	}
}

// A fall before a victim has died counts for dead victims: once that is theirs, the victim's own is
// compared with the current value.
func TestFirstVolumeFreedBeforeSecondDeath(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	w.addPod("stuck", 900, 0, 1).Memory.ShmemBytes = stats.Some(uint64(300 << 20))
	w.addPod("files", 405, 0, 1).Memory.ShmemBytes = stats.Some(uint64(400 << 20))
	w.pods[1].Memory.AnonBytes = stats.Some(uint64(5 << 20))
	w.addPod("innocent", 3, 0, 1)
	w.setMemory(90, 710)
	stuck := w.look(time.Second)
	w.wantVictim(stuck, "stuck")
	w.setMemory(3, 710)
	l := w.look(2100 * time.Millisecond)
	w.wantVictim(l, "files")
	w.reportDead(l)
	w.m.Cleaned(Stamp{Time: w.now}, l)
	w.setMemory(420, 310)
	w.wantVictim(w.look(100*time.Millisecond), "")
	w.setMemory(200, 500) // another process writes
	w.wantVictim(w.look(time.Second), "")
	w.reportDead(stuck)
	w.m.Cleaned(Stamp{Time: w.now}, stuck)
	w.setMemory(95, 200) // and the 300 are freed
	w.wantVictim(w.look(settleLimit), "innocent")
}

// The end of the wait for a victim whose files may be freed does not end the wait for a volume that
// cannot be freed yet, because nothing fell since.
func TestVolumeThatCannotBeFreedIsAwaited(t *testing.T) {
	w := newTestNode(t, "hard memory.available 100Mi")
	for i, uid := range []string{"first", "second", "third"} {
		p := w.addPod(uid, uint64(905-200*i), 0, 1)
		p.Memory.ShmemBytes, p.Memory.AnonBytes = stats.Some(uint64(900-200*i)<<20), stats.Some(uint64(5<<20))
	}
	w.addPod("innocent", 3, 0, 1)
	wantVictimAfter := func(later time.Duration, uid string, left, shmem uint64) {
		w.setMemory(left, shmem)
		l := w.look(later)
		w.wantVictim(l, uid)
		w.reportDead(l)
		w.m.Cleaned(Stamp{Time: w.now}, l)
	}
	wantVictimAfter(time.Second, "first", 90, 2100)
	wantVictimAfter(2*time.Second, "second", 40, 2100) // the first one's volume stays
	w.setMemory(300, 1400)                             // the second one's volume is freed
	w.wantVictim(w.look(2*time.Second), "")
	wantVictimAfter(4*time.Second, "third", 10, 1400)
	w.setMemory(88, 1400)
	w.wantVictim(w.look(time.Second), "")
	w.wantVictim(w.look(10*time.Second), "") // neither of the others is awaited any more
	w.wantVictim(w.look(4*time.Second), "innocent")
}
