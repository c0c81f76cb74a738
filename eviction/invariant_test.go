package eviction

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/stats"
)

var (
	hardLines = []string{"own x", "hard memory.available 1Gi", "hard nodefs.available 1Gi", "hard pid.available 100", "min memory.available 1Gi"}
	softLines = []string{"soft memory.available 3Gi", "grace memory.available 10s", "soft nodefs.available 3Gi", "grace nodefs.available 5s", "soft pid.available 500", "grace pid.available 1s"}
)

func managerOf(t interface{ Fatal(...any) }, period time.Duration, lines ...string) *Manager {
	thresholds, _, errs := in(lines...).Parse()
	if errs != nil {
		t.Fatal("Parse of the settings failed:", errs[0])
	}
	return NewManager(Config{Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableLower, LocalStorage: true, MaxPodGracePeriodSeconds: 600, Replay: true,
		PressureTransitionPeriod: period, Policy: Policy{AnnotationNamespaces: []string{"kube-system"}, ProtectedNamespaces: []string{"kube-system"}}})
}

// anyPods draws pods of all sorts. Critical ones have that in their names.
func anyPods(t *rapid.T) (pods []stats.PodStats, objects map[string]*Pod) {
	objects = map[string]*Pod{}
	for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
		p := stats.PodStats{Announced: rapid.Bool().Draw(t, "announced"), Annotations: map[string]string{}}
		p.Populated = stats.Opt[bool]{V: rapid.IntRange(0, 3).Draw(t, "alive") > 0, OK: rapid.Bool().Draw(t, "known")}
		optional := func(name string, most uint64) stats.Opt[uint64] {
			return stats.Opt[uint64]{V: rapid.Uint64Range(0, most).Draw(t, name), OK: rapid.IntRange(0, 3).Draw(t, name+" known") > 0}
		}
		p.Memory.WorkingSetBytes, p.Threads = optional("memory", 4<<30), optional("threads", 100)
		p.EphemeralStorage.UsedBytes = optional("disk", 4<<30)
		p.Containers = []stats.ContainerStats{{Name: "c", Rootfs: stats.Opt[stats.FsUsage]{V: stats.FsUsage{UsedBytes: 1 << 20}, OK: rapid.Bool().Draw(t, "layer")}}}
		object := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container0("c", "")}}}
		if rapid.Bool().Draw(t, "limited") {
			object.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: parsed("2Gi")}
		}
		name, known := "ordinary", rapid.Bool().Draw(t, "object")
		namespace := rapid.SampledFrom([]string{"default", "kube-system"}).Draw(t, "namespace")
		priority := rapid.SampledFrom([]int32{-1, 0, 1, math.MaxInt32, systemCriticalPriority}).Draw(t, "priority")
		object.Spec.Priority = &priority
		switch {
		case rapid.IntRange(0, 4).Draw(t, "static") == 0:
			name, p.Annotations[annotationConfigSource] = "critical", "file"
		case rapid.IntRange(0, 9).Draw(t, "self") == 0:
			name, p.Self = "critical", true
		case rapid.IntRange(0, 9).Draw(t, "mirror") == 0:
			name, p.Annotations[annotationConfigMirror] = "critical", "hash"
		case known && priority >= systemCriticalPriority, !known && namespace == "kube-system":
			name = "critical"
		case !known && rapid.IntRange(0, 9).Draw(t, "-997") == 0:
			name, p.NodeCritical = "critical", true
		case known && rapid.IntRange(0, 9).Draw(t, "never") == 0:
			object.Annotations = map[string]string{annotationNeverEvict: "true"}
			if namespace == "kube-system" { // a tenant's annotation does not count
				name = "critical"
			}
		}
		uid := fmt.Sprintf("%s-%d", name, i)
		p.PodRef = stats.PodReference{Name: name, UID: uid, Namespace: namespace}
		object.Namespace, object.UID = p.PodRef.Namespace, types.UID(uid)
		if known {
			objects[uid] = NewPod(object)
		}
		if rapid.IntRange(0, 5).Draw(t, "in the Summary") > 0 {
			pods = append(pods, p)
		}
	}
	return pods, objects
}

// anyNode draws what is left of memory, disk and tasks, or that it is unknown.
func anyNode(t *rapid.T, at time.Time) (n stats.NodeStats) {
	left := func(name string) (uint64, bool) {
		return uint64(rapid.SampledFrom([]int{0, 1, 2, 4, 9}).Draw(t, name)), rapid.IntRange(0, 5).Draw(t, name+" known") > 0
	}
	n.Layout = stats.Opt[stats.Layout]{V: stats.Layout{DedicatedImageFs: true}, OK: rapid.IntRange(0, 3).Draw(t, "layout") > 0}
	if rapid.Bool().Draw(t, "one file system") {
		n.Layout.V = stats.Layout{}
	}
	if v, ok := left("memory"); ok {
		n.Memory = stats.NodeMemoryStats{Time: at, CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(v << 29)}
	}
	if v, ok := left("disk"); ok {
		n.Fs = stats.Some(stats.FsStats{Time: at, CapacityBytes: stats.Some(uint64(16 << 30)), AvailableBytes: stats.Some(v << 29)})
	}
	if v, ok := left("tasks"); ok {
		n.PIDs = stats.NodePIDStats{Time: at, Max: stats.Some(uint64(1000)), Current: stats.Some(1000 - v*70)}
	}
	return n
}

// stepWithReclaim makes a step with its second half.
func stepWithReclaim(t *rapid.T, m *Manager, now time.Time, in, afterwards Input) Decision {
	d := m.Step(now, in)
	for _, e := range d.Evictions {
		checkEviction(t, d, e)
	}
	if len(d.Reclaim) == 0 {
		return d
	}
	second := m.StepAfterReclaim(now, afterwards)
	for _, e := range second.Evictions {
		checkEviction(t, second, e)
	}
	if !slices.Equal(d.Conditions, second.Conditions) || len(second.Reclaim) > 0 {
		t.Fatalf("second half = %+v, want the conditions of %+v and nothing to reclaim", second, d)
	}
	second.Evictions = append(d.Evictions, second.Evictions...)
	return second
}

// checkEviction checks what is true of every eviction of every decision.
func checkEviction(t *rapid.T, d Decision, e Eviction) {
	met := slices.ContainsFunc(d.Met, func(m Met) bool { return m.Threshold.Signal == e.Signal && m.Due })
	switch {
	case e.Pod.PodRef.Name == "critical":
		t.Fatalf("critical pod is evicted, want never: %+v", e)
	case e.Disruption && !met:
		t.Fatalf("eviction for %s, which is not met: %+v", e.Signal, d)
	case e.Pod.Populated.OK && !e.Pod.Populated.V:
		t.Fatalf("evicted pod %s has no process", e.Pod.PodRef.UID)
	case e.GracePeriodSeconds < 1:
		t.Fatalf("grace period = %d s, want at least 1", e.GracePeriodSeconds)
	case e.Disruption && !d.Ranking[0].Keys.Measured && slices.ContainsFunc(d.Ranking, func(r Ranked) bool { return r.Keys.Measured && !r.Keys.SetAside }):
		t.Fatalf("unmeasured pod ranked before a measured one: %+v", d.Ranking)
	}
}

// metBy returns the threshold that an eviction of a step is for; zero: the pod's own limit.
func metBy(d Decision, e *Eviction) (met Met) {
	for _, m := range d.Met {
		if m.Threshold.Signal == e.Signal && m.Threshold.Hard() == e.hard {
			return m
		}
	}
	return met
}

func victims(d Decision) (n int) {
	for _, e := range d.Evictions {
		if e.Disruption {
			n++
		}
	}
	return n
}

// On any timeline: never two victims for thresholds in a step, never a critical pod, never a victim
// when nothing is met, and no condition left after enough steps without pressure.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := rapid.SampledFrom([]time.Duration{0, 30 * time.Second}).Draw(t, "transition")
		m, now := managerOf(t, period, append(hardLines, softLines...)...), epoch
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-1000, 20000).Draw(t, "ms")) * time.Millisecond)
			look := Input{Summary: &stats.Summary{Node: anyNode(t, now)}}
			look.Summary.Pods, look.Pods = anyPods(t)
			later := Input{Summary: &stats.Summary{Node: anyNode(t, now), Pods: look.Summary.Pods}, Pods: look.Pods}
			d := stepWithReclaim(t, m, now, look, later)
			if victims(d) > 1 {
				t.Fatalf("%d victims in a step, want at most one", victims(d))
			}
			for _, met := range d.Met {
				if !slices.Contains(d.Conditions, signals[met.Threshold.Signal].condition) {
					t.Fatalf("%v is met, conditions = %v, want its condition", met.Threshold, d.Conditions)
				}
			}
			for _, e := range d.Evictions {
				l := m.Begin(Stamp{Time: now}, e, metBy(d, &e))
				switch rapid.IntRange(0, 3).Draw(t, "fate") {
				case 0:
					m.MarkUndying(now, l)
				case 1:
					m.Cleaned(Stamp{Time: now}, l)
					m.Emptied(Stamp{Time: now}, l)
				case 2:
					m.Emptied(Stamp{Time: now}, l)
				}
			}
		}
		calm := Input{Summary: &stats.Summary{}}
		calm.Summary.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(uint64(15 << 30))}
		calm.Summary.Node.Fs = stats.Some(stats.FsStats{CapacityBytes: stats.Some(uint64(16 << 30)), AvailableBytes: stats.Some(uint64(15 << 30))})
		calm.Summary.Node.ContainerFs, calm.Summary.Node.ImageFs = calm.Summary.Node.Fs, calm.Summary.Node.Fs
		calm.Summary.Node.PIDs = stats.NodePIDStats{Max: stats.Some(uint64(1000)), Current: stats.Some(uint64(10))}
		m.Step(now.Add(20*time.Second), calm)
		if d := m.Step(now.Add(time.Hour), calm); len(d.Conditions)+len(d.Met)+len(d.Evictions) > 0 {
			t.Fatalf("state after an hour without pressure = %+v, want nothing", d)
		}
	})
}

// Soft never delays hard: whenever a manager with only hard thresholds evicts, one that also has
// soft ones, and evictions in their grace periods, evicts immediately too.
func TestSoftNeverDelaysHard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hard, full, now := managerOf(t, 0, hardLines...), managerOf(t, 0, append(hardLines, softLines...)...), epoch
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 20000).Draw(t, "ms")) * time.Millisecond)
			look := Input{Summary: &stats.Summary{Node: anyNode(t, now)}}
			look.Summary.Pods, look.Pods = anyPods(t)
			later := Input{Summary: &stats.Summary{Node: anyNode(t, now), Pods: look.Summary.Pods}, Pods: look.Pods}
			one, two := stepWithReclaim(t, hard, now, look, later), stepWithReclaim(t, full, now, look, later)
			// it was evicted one look earlier
			before := len(one.Evictions) > 0 && slices.ContainsFunc(full.evictions.lives, func(l *Life) bool {
				return l.e.hard && !l.settled && l.e.Pod.PodRef.UID == one.Evictions[0].Pod.PodRef.UID
			})
			if len(one.Evictions) > 0 && !before && (len(two.Evictions) == 0 || two.Evictions[0].GracePeriodSeconds != 1) {
				t.Fatalf("hard thresholds alone evict %s for %s, with soft ones %+v: %s", one.Evictions[0].Pod.PodRef.UID, one.Evictions[0].Signal, two.Evictions, two.Reason)
			}
			for i, d := range []Decision{one, two} {
				for _, e := range d.Evictions {
					m := []*Manager{hard, full}[i]
					l := m.Begin(Stamp{Time: now}, e, metBy(d, &e))
					if e.Hard() { // those with a grace period take their time, though it may be one second too
						m.Emptied(Stamp{Time: now}, l)
						m.Cleaned(Stamp{Time: now}, l)
					}
				}
			}
		}
	})
}

// Whatever a broken source reports: no panic, and no victim for an implausible value.
func FuzzStep(f *testing.F) {
	minus := uint64(math.MaxUint64)
	f.Add(uint64(16<<30), uint64(1), minus, uint64(1), minus, minus, 0.5, int64(0))
	f.Add(minus, minus, minus, minus, minus, minus, math.Inf(1), int64(math.MinInt64))
	f.Add(uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), uint64(0), math.NaN(), int64(math.MaxInt64))
	f.Add(uint64(100), uint64(math.MaxInt64), uint64(5), uint64(math.MaxInt64), uint64(1<<63), uint64(7), -1.0, int64(-5))
	f.Fuzz(func(t *testing.T, capacity, used, available, pod, request, more uint64, share float64, ns int64) {
		m := managerOf(t, time.Minute, append(append(hardLines, softLines...), "enforce pods", "hard swap.available 10%", "hard memory.pressure.full 20%/1s", "hard io.pressure.full 20%/1m", "hard cpu.pressure.some 20%/10s", "hard nodefs.inodesFree 5%")...)
		m.config.Breaker, m.config.Policy.ByRelease = true, true
		now := epoch
		for i := range 4 {
			s := &stats.Summary{}
			n, at := &s.Node, now.Add(time.Duration(ns)*time.Duration(i))
			n.Layout = stats.Some(stats.Layout{DedicatedImageFs: i > 1, SplitContainerFs: i > 2})
			n.Memory = stats.NodeMemoryStats{Time: at, CapacityBytes: stats.Some(capacity), WorkingSetBytes: stats.Some(used), KernelAvailableBytes: stats.Some(available), PerCPUFreeBytes: stats.Some(more)}
			n.Allocatable = stats.AllocatableMemoryStats{Time: at, LimitBytes: stats.Some(capacity), WorkingSetBytes: stats.Some(used)}
			n.Swap = stats.NodeSwapStats{Time: at, TotalBytes: stats.Some(capacity), FreeBytes: stats.Some(available)}
			n.PIDs = stats.NodePIDStats{Time: at, Max: stats.Some(capacity), Current: stats.Some(used)}
			n.Fs = stats.Some(stats.FsStats{Time: at, CapacityBytes: stats.Some(capacity), AvailableBytes: stats.Some(available), InodesFree: stats.Some(available), Inodes: stats.Some(capacity)})
			n.Pressure.Memory.Full.Over1s, n.Pressure.CPU.Some.Over10s = stats.Some(share), stats.Some(share)
			n.Pressure.IO.Stats = stats.Some(stats.PSIStats{Full: stats.PSIData{Avg60: share * 100}, HasFull: true})
			p := stats.PodStats{PodRef: stats.PodReference{UID: "a"}, StartTime: at, Threads: stats.Some(pod)}
			p.Memory = stats.PodMemoryStats{WorkingSetBytes: stats.Some(pod), SwapBytes: stats.Some(pod), FreedBytes: stats.Some(stats.Range{Min: more, Max: pod})}
			p.MemoryRequest = stats.Some(stats.Range{Min: more, Max: request})
			p.Events, p.IO = stats.Some(stats.MemoryEvents{Max: pod * uint64(i)}), stats.Some(stats.IOStat{ReadBytes: pod * uint64(i), WriteBytes: more})
			p.CPU.Usage = stats.Some(time.Duration(ns) * time.Duration(i))
			p.Containers = []stats.ContainerStats{{Name: "c", Rootfs: stats.Some(stats.FsUsage{UsedBytes: pod, InodesUsed: more}), Logs: stats.Some(stats.FsUsage{UsedBytes: more, InodesUsed: pod})}}
			p.EphemeralStorage.UsedBytes = stats.Some(pod)
			other := p
			other.PodRef.UID = "b"
			s.Pods = []stats.PodStats{p, other}
			limited := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: parsed("1Gi")}}}}}}
			look := Input{Summary: s, Pods: map[string]*Pod{"b": NewPod(limited)}, Growing: []Growth{{"x", ns}}}
			d := m.Step(now, look)
			d.text(false)
			all := d.Evictions
			if len(d.Reclaim) > 0 {
				d = m.StepAfterReclaim(now, look)
				all = append(all, d.Evictions...)
			}
			for _, e := range all {
				if e.Disruption && e.Signal != stats.SignalMemoryPressureFull && e.Signal != stats.SignalIOPressureFull && e.Signal != stats.SignalCPUPressureSome &&
					(capacity == 0 || capacity > implausible || used > implausible && e.kind == kindPID || available > implausible && (e.kind == kindBytes || e.kind == kindSwap)) {
					t.Errorf("victim for %s by implausible values: capacity %d, used %d, available %d", e.Signal, capacity, used, available)
				}
				if !e.Disruption && pod > implausible && more > implausible {
					t.Errorf("victim for %s by implausible usage %d, %d", e.Signal, pod, more)
				}
				if share != share && signals[e.Signal].kind.pressure() {
					t.Errorf("victim for a share of %v, want none for NaN", share)
				}
				l := m.Begin(Stamp{Time: now}, e, metBy(d, &e))
				l.level = available
				switch i {
				case 0:
					m.Emptied(Stamp{Time: now}, l)
				case 2:
					m.MarkUndying(now, l)
				}
			}
			now = at.Add(time.Second)
		}
	})
}
