package evictions

import (
	"context"
	"os"
	"testing"
	"time"

	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// A pod that is being stopped for a disk is killed if memory is also short and the pod uses it. It
// stays the disk's victim: its files are removed, and its record shows the disk's signal and the
// time of the kill.
func TestDiskVictimKilledForMemory(t *testing.T) {
	f, dir := newFixture(t, softAndHard, nil), t.TempDir()
	f.keeping(dir)
	ctx, cancel := context.WithCancel(t.Context())
	f.pods = f.Runs()
	f.Runtime.Change(func() { f.Runtime.Hang = map[string]bool{"StopContainer": true} })
	now := time.Now()
	f.decideDisk(now)
	disk := f.decideDisk(now.Add(11 * time.Second))
	if len(disk.Evictions) != 1 || !f.OnDecided(ctx, &disk) {
		t.Fatal(disk.Reason)
	}
	f.killable()
	life := f.m.Life(nodetest.UID)
	u := f.inProgress[life]
	memory := f.decide(now.Add(12*time.Second), 90)
	if len(memory.Evictions) != 1 || !memory.Evictions[0].CutsGracePeriod || !f.OnDecided(ctx, &memory) {
		t.Fatal(memory.Reason)
	}
	if e := life.Eviction(); f.m.Life(nodetest.UID) != life || life.Killed().Time.IsZero() || e.Signal != stats.SignalNodeFsAvailable || !u.job.remove.Load() {
		t.Errorf("killed %v, signal %s, removes files %v\n%s", life.Killed(), e.Signal, u.job.remove.Load(), f.Text())
	}
	if again := f.decide(now.Add(12*time.Second+100*time.Millisecond), 90); len(again.Evictions) > 0 {
		t.Errorf("the victim is evicted once more: %+v", again.Evictions)
	}
	f.end(cancel)
	if err := f.o.Keeper.Close(); err != nil {
		t.Fatal(err)
	}
	_, running := f.keeping(dir)
	if len(running) != 1 || running[0].Signal != stats.SignalNodeFsAvailable || running[0].Killed.Time.IsZero() {
		text, _ := os.ReadFile(dir + "/records.jsonl")
		t.Errorf("restored records = %+v, want one killed for nodefs.available\n%s", running, text)
	}
}
