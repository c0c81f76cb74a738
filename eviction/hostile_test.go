package eviction

import (
	"math"
	"testing"
	"time"

	"jettison/stats"
)

// Implausible values that would mean a shortage are no observations: nothing is met, and no pod
// dies.
func TestFiguresThatCannotBeTrue(t *testing.T) {
	huge, gib := stats.Some(uint64(math.MaxUint64)), stats.Some(uint64(1<<30))
	minus := stats.Some(uint64(1 << 63))
	for name, node := range map[string]stats.NodeStats{
		"a working set of everything":     {Memory: stats.NodeMemoryStats{CapacityBytes: gib, WorkingSetBytes: huge}},
		"a negative working set":          {Memory: stats.NodeMemoryStats{CapacityBytes: gib, WorkingSetBytes: minus}},
		"a sum that overflows":            {Memory: stats.NodeMemoryStats{CapacityBytes: gib, KernelAvailableBytes: huge, PerCPUFreeBytes: gib}},
		"no capacity":                     {Memory: stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(0)), KernelAvailableBytes: stats.Some(uint64(0))}},
		"a negative capacity":             {Memory: stats.NodeMemoryStats{CapacityBytes: minus, KernelAvailableBytes: stats.Some(uint64(0))}},
		"more than everything used below": {Allocatable: stats.AllocatableMemoryStats{LimitBytes: gib, WorkingSetBytes: huge}},
		"a negative number of tasks":      {PIDs: stats.NodePIDStats{Max: stats.Some(uint64(1000)), Current: huge}},
		"a disk of nothing":               {Fs: stats.Some(stats.FsStats{CapacityBytes: stats.Some(uint64(0)), AvailableBytes: stats.Some(uint64(0))}), Layout: stats.Some(stats.Layout{DedicatedImageFs: true})},
	} {
		m := managerOf(t, time.Minute, append(hardLines, "enforce pods")...)
		if d := m.Step(epoch, Input{Summary: &stats.Summary{Node: node, Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "a"}}}}}); len(d.Met)+len(d.Evictions) > 0 {
			t.Errorf("%s: met %+v, evictions %+v, want none", name, d.Met, d.Evictions)
		}
	}
}

// An implausible request is unknown: it neither saves a pod nor condemns it.
func TestImplausibleRequest(t *testing.T) {
	m, pods := managerOf(t, 0, hardLines...), []stats.PodStats{}
	for uid, request := range map[string]uint64{"broken": math.MaxUint64, "over": 1, "within": 1 << 40} {
		p := stats.PodStats{PodRef: stats.PodReference{UID: uid, Name: uid}, MemoryRequest: stats.Some(stats.ExactRange(request))}
		p.Memory.WorkingSetBytes = stats.Some(uint64(1 << 30))
		pods = append(pods, p)
	}
	in := Input{Summary: &stats.Summary{Pods: pods}}
	in.Summary.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(uint64(1))}
	if got := names(m.Step(epoch, in).Ranking); got != "over broken within" {
		t.Errorf("ranking = %q, want over broken within", got)
	}
}

// A reading older than MaxAge is no observation. In a replay none is too old, and one without a
// time never is.
func TestMaxAge(t *testing.T) {
	in := Input{Summary: &stats.Summary{}}
	in.Summary.Node.Memory = stats.NodeMemoryStats{Time: epoch, CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(uint64(1))}
	for _, c := range []struct {
		replay bool
		age    time.Duration
		met    bool
	}{{true, time.Hour, true}, {false, stats.MaxAge, true}, {false, stats.MaxAge + 1, false}} {
		m := managerOf(t, 0, hardLines...)
		m.config.Replay = c.replay
		if d := m.Step(epoch.Add(c.age), in); len(d.Met) > 0 != c.met {
			t.Errorf("%+v: met = %v, want %v", c, d.Met, c.met)
		}
	}
	m := managerOf(t, 0, hardLines...)
	m.config.Replay = false
	disk := Input{Summary: &stats.Summary{}}
	disk.Summary.Node.Fs = stats.Some(stats.FsStats{Time: epoch, CapacityBytes: stats.Some(uint64(16 << 30)), AvailableBytes: stats.Some(uint64(1))})
	if d := m.Step(epoch.Add(time.Minute), disk); len(d.Met) == 0 {
		t.Error("old reading of a disk: nothing is met, want met: its source decides on its age")
	}
	in.Summary.Node.Memory.Time = time.Time{}
	if d := m.Step(epoch, in); len(d.Met) == 0 {
		t.Error("reading without a time: nothing is met, want met")
	}
}

// An eviction holds nothing of the Summary, which the next look overwrites.
func TestEvictionCopiesPod(t *testing.T) {
	pod := stats.PodStats{PodRef: stats.PodReference{UID: "a"}, SandboxIDs: []string{"s"}, Annotations: map[string]string{"k": "v"}, Containers: []stats.ContainerStats{{Name: "c"}}}
	pod.Memory.WorkingSetBytes = stats.Some(uint64(1))
	pod.EphemeralStorage.Volumes = []stats.VolumeStats{{Name: "v"}}
	in := Input{Summary: &stats.Summary{Pods: []stats.PodStats{pod}}}
	in.Summary.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(uint64(1))}
	d := managerOf(t, 0, hardLines...).Step(epoch, in)
	if len(d.Evictions) != 1 {
		t.Fatalf("%d evictions, want one: %s", len(d.Evictions), d.Reason)
	}
	in.Summary.Pods[0].PodRef.UID = "other"
	pod.SandboxIDs[0], pod.Annotations["k"], pod.Containers[0].Name, pod.EphemeralStorage.Volumes[0].Name = "x", "x", "x", "x"
	v := d.Evictions[0].Pod
	if v.PodRef.UID != "a" || v.SandboxIDs[0] != "s" || v.Annotations["k"] != "v" || v.Containers[0].Name != "c" || v.EphemeralStorage.Volumes[0].Name != "v" {
		t.Errorf("victim after the Summary was overwritten = %+v, want a copy", v)
	}
}

// A pod that never dies is set aside for 30 s, then for one, two, four, and from then on five
// minutes. A pod that died starts again.
func TestHowLongPodsAreSetAside(t *testing.T) {
	m := managerOf(t, 0, hardLines...)
	begin := func() *Life {
		e := Eviction{Signal: stats.SignalMemoryAvailable}
		e.Pod.PodRef.UID = "a"
		return m.Begin(Stamp{Time: epoch}, e, Met{})
	}
	for _, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		m.MarkUndying(epoch, begin())
		if got := m.evictions.history.aside["a"].until.Sub(epoch); got != want {
			t.Errorf("set aside for %v, want %v", got, want)
		}
	}
	m.Emptied(Stamp{Time: epoch}, begin())
	m.MarkUndying(epoch, begin())
	if got := m.evictions.history.aside["a"].until.Sub(epoch); got != 30*time.Second {
		t.Errorf("set aside for %v after a death, want 30s", got)
	}
}
