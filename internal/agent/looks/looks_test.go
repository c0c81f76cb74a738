package looks

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/eviction"
	"jettison/internal/node/nodetest"
	"jettison/stats"
	"jettison/stats/read"
)

func newLooks(t *testing.T, change func(*Options)) (*nodetest.Node, *Looks) {
	t.Helper()
	n := nodetest.New(t)
	o := Options{Reader: n.Reader, Log: n.Log}
	if change != nil {
		change(&o)
	}
	return n, New(o)
}

func never(*stats.NodeStats) bool { return false }

// A source that cannot be read, and that it can be again, are one line each.
func TestASourceThatCannotBeRead(t *testing.T) {
	n, l := newLooks(t, nil)
	n.Write("cgroup/memory.stat", "anon what\n")
	for range 3 {
		l.Cheap(time.Now(), never)
	}
	if len(l.Errors()) != 1 {
		t.Errorf("errors %v", l.Errors())
	}
	n.Write("cgroup/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 0\n")
	for range 3 {
		l.Cheap(time.Now(), never)
	}
	for _, line := range []string{"cannot read the node's memory", "everything is read again"} {
		if got := strings.Count(n.Text(), line); got != 1 {
			t.Errorf("%q is logged %d times:\n%s", line, got, n.Text())
		}
	}
	if len(l.Errors()) != 0 {
		t.Errorf("errors %v", l.Errors())
	}
}

// A signal that counts as lost is said once, and once that it is back; the sources' errors have nothing to do with it.
func TestALostSignal(t *testing.T) {
	n, l := newLooks(t, nil)
	l.readable("node", &l.counts.Node, errors.New("gone"))
	lost := []eviction.Lost{{Signal: stats.SignalNodeFsAvailable, Reason: "a file system that hangs"}}
	for _, now := range [][]eviction.Lost{lost, lost, nil, nil, lost} {
		l.Lost(now)
	}
	for line, want := range map[string]int{"a file system that hangs": 2, "is observed again": 1} {
		if got := strings.Count(n.Text(), line); got != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", line, got, want, n.Text())
		}
	}
	if len(l.Errors()) != 2 {
		t.Errorf("errors %v", l.Errors())
	}
}

// The cheap look reads what it is asked for, and no more: tasks where a threshold is for them, memory on per-CPU lists where it is short.
func TestWhatACheapLookReads(t *testing.T) {
	for _, all := range []bool{false, true} {
		n, l := newLooks(t, func(o *Options) { o.Tasks = all })
		n.Write("proc/sys/kernel/pid_max", "1000\n")
		n.Write("proc/sys/kernel/threads-max", "5000\n")
		n.Write("proc/loadavg", "1.00 1.00 1.00 1/950 4242\n")
		n.Write("proc/zoneinfo", "Node 0, zone DMA\n  pagesets\n    cpu: 0\n              count: 10\n")
		node := l.Cheap(time.Now(), func(*stats.NodeStats) bool { return all })
		if node.PIDs.Current.OK != all || node.Memory.PerCPUFreeBytes.OK != all || !node.Memory.CapacityBytes.OK {
			t.Errorf("all %v: %+v, %+v", all, node.PIDs, node.Memory)
		}
		if n := l.WithPerCPU(); !n.Memory.PerCPUFreeBytes.OK || l.Node().Memory.PerCPUFreeBytes.OK != all {
			t.Errorf("all %v: %+v; what was read last has changed: %+v", all, n.Memory, l.Node().Memory)
		}
		if l.Count() != 0 || !l.Last().IsZero() {
			t.Error("a measurement counts as a look of the loop")
		}
	}
}

// Of the pods those that may be chosen are read in full, one by one; when there are too many of them, or frames are recorded, all are.
func TestWhatALookAtVictimsReads(t *testing.T) {
	for _, c := range []struct {
		name string
		pods int
		all  bool
		read int // pods that were read in full, of those that use memory
	}{
		{"one that stands out", 1, false, 1},
		{"many with a lot of page cache", quickReads + 4, false, quickReads + 4},
		{"frames are recorded", 3, true, 3},
	} {
		n, l := newLooks(t, func(o *Options) { o.All = c.all })
		for i := range c.pods - 1 {
			pod := fmt.Sprintf("kubepods/besteffort/pod00000000-0000-0000-0000-%012d", i)
			n.AddPod(pod, 500+i)
			if !c.all { // most of it may go
				n.Write("cgroup/"+pod+"/memory.stat", fmt.Sprintf("anon 1\nfile 0\nshmem 0\ninactive_file %d\n", (500+i)<<20-1))
			}
		}
		n.AddPod("kubepods/burstable/podsmall", 1)
		m := eviction.NewManager(eviction.Config{Thresholds: thresholds(t), MemoryAvailable: stats.MemoryAvailableLower})
		n.Available(90)
		now := time.Now()
		m.Observe(now, l.Cheap(now, never), eviction.Situation{})
		if err := l.Victims(now, read.Index{}, nil, m); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		full := 0
		for i := range l.Summary().Pods {
			if p := &l.Summary().Pods[i]; !p.Memory.Quick && p.PodRef.UID != "small" {
				full++
			}
		}
		if full != c.read || len(l.Summary().Pods) != c.pods+1 {
			t.Errorf("%s: %d of %d pods were read in full, want %d", c.name, full, len(l.Summary().Pods), c.read)
		}
	}
}

func thresholds(t *testing.T) []eviction.Threshold {
	t.Helper()
	parsed, _, errs := eviction.Settings{EvictionHard: map[string]string{"memory.available": "100Mi"}}.Parse()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return parsed
}

// What grew since memory was last plenty is named, what was there before is not.
func TestGrowth(t *testing.T) {
	n, l := newLooks(t, nil)
	n.Write("cgroup/system.slice/old.service/memory.current", "500000000\n")
	n.Write("cgroup/system.slice/leak.service/memory.current", "1000000\n")
	start := time.Now()
	if l.Growing() != nil {
		t.Error("something grows out of nothing")
	}
	l.Grew(start, false)
	n.Write("cgroup/system.slice/leak.service/memory.current", "301000000\n")
	l.Grew(start.Add(time.Minute), true) // memory is short: what was, is kept
	got := l.Growing()
	if len(got) != 1 || got[0] != (eviction.Growth{Cgroup: "system.slice/leak.service", Bytes: 300000000}) {
		t.Errorf("%+v", got)
	}
	l.Grew(start.Add(2*time.Minute), false)
	if got := l.Growing(); len(got) != 0 {
		t.Errorf("after calm: %+v", got)
	}
}
