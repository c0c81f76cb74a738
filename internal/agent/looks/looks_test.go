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

// An unreadable source and its recovery are logged once each.
func TestUnreadableSource(t *testing.T) {
	n, l := newLooks(t, nil)
	n.Write("cgroup/memory.stat", "anon what\n")
	for range 3 {
		l.Cheap(time.Now(), never)
	}
	if len(l.Errors()) != 1 {
		t.Errorf("errors while a source is unreadable = %v, want one", l.Errors())
	}
	n.Write("cgroup/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 0\n")
	for range 3 {
		l.Cheap(time.Now(), never)
	}
	for _, line := range []string{`msg="source unreadable" eventKind=source source=memory`, "source readable again"} {
		if got := strings.Count(n.Text(), line); got != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", line, got, n.Text())
		}
	}
	if len(l.Errors()) != 0 {
		t.Errorf("errors after the recovery = %v, want none", l.Errors())
	}
}

// A lost signal and its recovery are logged once each, independent of the errors of sources.
func TestLostSignal(t *testing.T) {
	n, l := newLooks(t, nil)
	l.logSource("node", &l.counts.Node, errors.New("gone"))
	lost := []eviction.Lost{{Signal: stats.SignalNodeFsAvailable, Reason: "a file system that hangs"}}
	for _, now := range [][]eviction.Lost{lost, lost, nil, nil, lost} {
		l.UpdateLost(now)
	}
	for line, want := range map[string]int{"a file system that hangs": 2, "signal observed again": 1} {
		if got := strings.Count(n.Text(), line); got != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", line, got, want, n.Text())
		}
	}
	if len(l.Errors()) != 2 {
		t.Errorf("errors = %v, want the source and the signal", l.Errors())
	}
}

// The cheap look reads only what is requested: tasks if a threshold for them exists, memory on
// per-CPU lists if memory is short.
func TestCheapLookReads(t *testing.T) {
	for _, all := range []bool{false, true} {
		n, l := newLooks(t, func(o *Options) { o.Tasks = all })
		n.Write("proc/sys/kernel/pid_max", "1000\n")
		n.Write("proc/sys/kernel/threads-max", "5000\n")
		n.Write("proc/loadavg", "1.00 1.00 1.00 1/950 4242\n")
		n.Write("proc/zoneinfo", "Node 0, zone DMA\n  pagesets\n    cpu: 0\n              count: 10\n")
		node := l.Cheap(time.Now(), func(*stats.NodeStats) bool { return all })
		if node.PIDs.Current.OK != all || node.Memory.PerCPUFreeBytes.OK != all || !node.Memory.CapacityBytes.OK {
			t.Errorf("cheap look with all %v read: tasks %+v, memory %+v", all, node.PIDs, node.Memory)
		}
		if n := l.WithPerCPU(); !n.Memory.PerCPUFreeBytes.OK || l.Node().Memory.PerCPUFreeBytes.OK != all {
			t.Errorf("all %v: per-CPU reading %+v, last reading changed to %+v", all, n.Memory, l.Node().Memory)
		}
		if l.Count() != 0 || !l.Last().IsZero() {
			t.Error("a measurement counts as a look of the loop")
		}
	}
}

// Pods that may be chosen are read in full, one by one; all are if these are too many, or if frames
// are recorded.
func TestVictimLookReads(t *testing.T) {
	for _, c := range []struct {
		name string
		pods int
		all  bool
		read int // pods with memory usage that were read in full
	}{
		{"one pod stands out", 1, false, 1},
		{"many pods with a large page cache", maxQuickReads + 4, false, maxQuickReads + 4},
		{"frames are recorded", 3, true, 3},
	} {
		n, l := newLooks(t, func(o *Options) { o.All = c.all })
		for i := range c.pods - 1 {
			pod := fmt.Sprintf("kubepods/besteffort/pod00000000-0000-0000-0000-%012d", i)
			n.AddPod(pod, 500+i)
			if !c.all { // most of its memory may be reclaimable
				n.Write("cgroup/"+pod+"/memory.stat", fmt.Sprintf("anon 1\nfile 0\nshmem 0\ninactive_file %d\n", (500+i)<<20-1))
			}
		}
		n.AddPod("kubepods/burstable/podsmall", 1)
		m := eviction.NewManager(eviction.Config{Thresholds: thresholds(t), MemoryAvailable: stats.MemoryAvailableLower})
		n.Available(90)
		now := time.Now()
		m.Observe(now, l.Cheap(now, never), eviction.Situation{})
		if err := l.Victims(now, read.Index{}, nil, m); err != nil {
			t.Errorf("%s: the look at victims failed: %v", c.name, err)
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

// Growth after memory was last plentiful is reported, earlier usage is not.
func TestGrowth(t *testing.T) {
	n, l := newLooks(t, nil)
	n.Write("cgroup/system.slice/old.service/memory.current", "500000000\n")
	n.Write("cgroup/system.slice/leak.service/memory.current", "1000000\n")
	start := time.Now()
	if l.Growth() != nil {
		t.Error("growth is reported without a stored usage")
	}
	l.RecordUsage(start, false)
	n.Write("cgroup/system.slice/leak.service/memory.current", "301000000\n")
	l.RecordUsage(start.Add(time.Minute), true) // memory is short: the stored usage stays
	got := l.Growth()
	if len(got) != 1 || got[0] != (eviction.Growth{Cgroup: "system.slice/leak.service", Bytes: 300000000}) {
		t.Errorf("growth = %+v, want 300 MB of leak.service", got)
	}
	l.RecordUsage(start.Add(2*time.Minute), false)
	if got := l.Growth(); len(got) != 0 {
		t.Errorf("growth after a calm reading = %+v, want none", got)
	}
}
