package agent

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"jettison/cri"
	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/internal/kill"
	"jettison/stats/read"
)

// From the look that finds a threshold crossed to the kill nothing is allocated: there may be no memory to be had.
func TestNothingIsAllocatedBetweenTheCrossingAndTheKill(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	n := newTestNode(t)
	n.write("proc/zoneinfo", "Node 0, zone DMA\n  pagesets\n    cpu: 0\n              count: 10\n")
	n.complete("cgroup/kubepods/besteffort/pod" + uid + "/")
	uids := []string{uid}
	for i := range 30 {
		uids = append(uids, fmt.Sprintf("%032d", i))
		pod := fmt.Sprintf("cgroup/kubepods/burstable/pod%032d/", i)
		n.write(pod+"cgroup.procs", "")
		n.write(pod+"cgroup.events", "populated 1\nfrozen 0\n")
		n.write(pod+"memory.current", fmt.Sprintln((i+1)<<20))
		n.write(pod+"memory.stat", fmt.Sprintf("anon %d\nfile 0\nshmem 0\ninactive_file 0\n", (i+1)<<20))
		n.complete(pod)
	}
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/cgroup.kill", "")
	var l cri.Listing
	score := int64(900)
	for _, uid := range uids {
		l.Sandboxes = append(l.Sandboxes, cri.PodSandbox{ID: "s-" + uid, UID: uid, Name: "pod", Namespace: "default", Ready: true})
		l.Containers = append(l.Containers, cri.Container{ID: "c-" + uid, SandboxID: "s-" + uid, State: cri.Running, Running: true, OOMScoreAdj: &score})
	}
	n.a.listed(update{pods: read.NewIndex(l)})
	killer := kill.New(kill.Options{FS: n.a.FS, Ladder: kill.CgroupKill})
	defer func() {
		if err := killer.Close(); err != nil {
			t.Error(err)
		}
	}()
	n.a.pin = killer.Pin
	n.available(90)
	ctx, now := t.Context(), time.Now()
	var failed error
	var last *kill.Victim
	run := func() {
		now = now.Add(poll)
		n.a.measure(now)
		if n.a.ready.Look != eviction.LookMemory {
			failed = errors.New("nothing is met")
			return
		}
		d, _, err := n.a.choose(ctx, now, memoryLook)
		if err != nil || len(d.Evictions) != 1 || d.Evictions[0].Pod.PodRef.UID != uid {
			failed = fmt.Errorf("%v: %+v", err, d.Evictions)
			return
		}
		b, ok := n.a.strike(&d, &d.Evictions[0])
		if !ok || b.err != nil {
			failed = fmt.Errorf("not killed: %v", b.err)
		}
		last = b.victim
	}
	run() // descriptors are opened and buffers grow, as they do while the threshold is near
	least := uint64(math.MaxUint64)
	for range 5 { // others in this process may allocate meanwhile
		n.a.holds.Set(now, uid, nri.Hold{Until: now}) // as after each kill
		last.Close()                                  // which makes the next one ready
		before := mallocs()
		run()
		least = min(least, mallocs()-before)
	}
	last.Close()
	if least != 0 || failed != nil {
		t.Errorf("%d allocations, %v\n%s", least, failed, n.log)
	}
}

// mallocs is how many there were in this process.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// complete gives a pod the files that newTestNode has no use for.
func (n *testNode) complete(pod string) {
	n.write(pod+"pids.current", "3\n")
	n.write(pod+"memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n")
	pressure := "avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
	n.write(pod+"memory.pressure", "some "+pressure+"full "+pressure)
}
