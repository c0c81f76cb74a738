package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/agent/podlister"
	"jettison/internal/base/race"
	"jettison/internal/node/nodetest"
	"jettison/stats/read"
)

// From the look that finds a threshold crossed to the choice of the victim nothing is allocated, also at
// the first decision after the start: memory may be exhausted. For the rest until the kill see package
// evictions, TestAStrikeDoesNotAllocate.
func TestNothingIsAllocatedBetweenTheCrossingAndTheChoice(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	least := uint64(math.MaxUint64)
	for i := 0; i < 20 && least > 0; i++ { // other goroutines of this process may allocate meanwhile
		l := loopOfManyPods(t)
		l.Available(500)
		l.warmUp(time.Now())
		l.Available(90)
		before := mallocs()
		err := l.chooseFirst(t.Context())
		least = min(least, mallocs()-before)
		if err != nil {
			t.Fatalf("the look or the choice failed: %v\n%s", err, l.Text())
		}
	}
	if least != 0 {
		t.Errorf("a look and a choice made %d allocations, want 0", least)
	}
}

// chooseFirst makes a look and a choice as the loop does, until right before the kill.
func (l *testLoop) chooseFirst(ctx context.Context) error {
	now := time.Now()
	l.looks.Begin(now)
	ready := l.measure(now)
	if ready.Look != eviction.LookMemory {
		return errors.New("no threshold is met")
	}
	d, _, err := l.choose(ctx, now, eviction.LookMemory, &ready)
	if err != nil || len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != nodetest.UID {
		return fmt.Errorf("choose: error %w, evictions %+v, want the largest pod", err, d.Evictions)
	}
	if !l.stillMet(d.Signal.Threshold) {
		return errors.New("the threshold is not met any more")
	}
	return nil
}

// loopOfManyPods returns a loop with 31 pods, whose cgroups have everything that a look at memory reads.
func loopOfManyPods(t *testing.T) *testLoop {
	l := newLoop(t, "", nil)
	l.Write("proc/zoneinfo", "Node 0, zone DMA\n  pagesets\n    cpu: 0\n              count: 10\n")
	uids, paths := []string{nodetest.UID}, []string{nodetest.Pod}
	for i := range 30 {
		uid := fmt.Sprintf("%032d", i)
		uids, paths = append(uids, uid), append(paths, "kubepods/burstable/pod"+uid)
		l.AddPod(paths[i+1], i+1)
	}
	for _, path := range paths {
		l.Write("cgroup/"+path+"/pids.current", "3\n")
		l.Write("cgroup/"+path+"/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n")
		const pressure = "avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
		l.Write("cgroup/"+path+"/memory.pressure", "some "+pressure+"full "+pressure)
	}
	var listing cri.Listing
	score := int64(900)
	for _, uid := range uids {
		listing.Sandboxes = append(listing.Sandboxes, cri.PodSandbox{ID: "s-" + uid, UID: uid, Name: "pod", Namespace: "default", Ready: true})
		listing.Containers = append(listing.Containers, cri.Container{
			ID: "c-" + uid, SandboxID: "s-" + uid, State: cri.Running, Running: true, OOMScoreAdj: &score,
		})
	}
	l.onListed(podlister.Update{Pods: read.NewIndex(listing)})
	return l
}

// mallocs returns the number of allocations of this process.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
