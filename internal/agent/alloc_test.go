package agent

import (
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

// From the look that finds a threshold crossed to the choice of the victim nothing is allocated:
// memory may be exhausted. For the rest until the kill see package evictions,
// TestAStrikeDoesNotAllocate.
func TestNothingIsAllocatedBetweenTheCrossingAndTheChoice(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	l := newLoop(t, "", nil)
	l.Write("proc/zoneinfo", "Node 0, zone DMA\n  pagesets\n    cpu: 0\n              count: 10\n")
	uids, paths := []string{nodetest.UID}, []string{nodetest.Pod}
	for i := range 30 {
		uid := fmt.Sprintf("%032d", i)
		uids, paths = append(uids, uid), append(paths, "kubepods/burstable/pod"+uid)
		l.AddPod(paths[i+1], i+1)
	}
	for _, path := range paths { // everything that a look at memory reads
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
	l.Available(90)
	ctx, now := t.Context(), time.Now()
	var failed error
	run := func() {
		now = now.Add(time.Second)
		l.looks.Begin(now)
		ready := l.measure(now)
		if ready.Look != eviction.LookMemory {
			failed = errors.New("no threshold is met")
			return
		}
		d, _, err := l.choose(ctx, now, eviction.LookMemory, &ready)
		if err != nil || len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != nodetest.UID {
			failed = fmt.Errorf("choose: error %v, evictions %+v, want the largest pod", err, d.Evictions)
			return
		}
		if !l.stillMet(d.Signal.Threshold) { // as right before the kill
			failed = errors.New("the threshold is not met any more")
		}
	}
	run() // opens descriptors and grows buffers, as happens while the threshold is near
	least := uint64(math.MaxUint64)
	for range 5 { // other goroutines of this process may allocate meanwhile
		if failed != nil {
			t.Fatalf("the look or the choice failed: %v\n%s", failed, l.Text())
		}
		before := mallocs()
		run()
		least = min(least, mallocs()-before)
	}
	if least != 0 || failed != nil {
		t.Errorf("a look and a choice made %d allocations, want 0 (%v)\n%s", least, failed, l.Text())
	}
}

// mallocs returns the number of allocations of this process.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
