package eviction

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"jettison/internal/base/race"
	"jettison/stats"
)

// fullNode returns a node with that many pods, all measured, with known objects, and with every
// signal observed; nothing is met.
func fullNode(pods int) Input {
	in := Input{Summary: &stats.Summary{}, Pods: map[string]*Pod{}}
	limits := v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10Gi")}
	size := resource.MustParse("1Gi")
	for i := range pods {
		uid := fmt.Sprintf("12345678-1234-1234-1234-%012d", i)
		p := stats.PodStats{PodRef: stats.PodReference{UID: uid, Name: uid, Namespace: "default"}, Announced: true, Populated: stats.Some(true), Threads: stats.Some(uint64(i))}
		p.Memory.WorkingSetBytes = stats.Some(uint64(i) << 20)
		p.EphemeralStorage.UsedBytes = stats.Some(uint64(i) << 20)
		p.EphemeralStorage.Volumes = []stats.VolumeStats{{Name: "v", FsUsage: stats.FsUsage{UsedBytes: 1 << 20}}}
		p.Containers = []stats.ContainerStats{{Name: "a", Rootfs: stats.Some(stats.FsUsage{UsedBytes: 1 << 20})}, {Name: "b", Logs: stats.Some(stats.FsUsage{UsedBytes: 1 << 20})}}
		in.Summary.Pods = append(in.Summary.Pods, p)
		object := &v1.Pod{Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}, {Name: "b"}},
			Volumes:    []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}}},
		}}
		object.UID = types.UID(uid)
		in.Pods[uid] = NewPod(object)
	}
	n := &in.Summary.Node
	n.Layout = stats.Some(stats.Layout{})
	n.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(64 << 30)), WorkingSetBytes: stats.Some(uint64(1 << 30)), KernelAvailableBytes: stats.Some(uint64(60 << 30))}
	n.PIDs = stats.NodePIDStats{Max: stats.Some(uint64(32768)), Current: stats.Some(uint64(1000))}
	fs := stats.Some(stats.FsStats{AvailableBytes: stats.Some(uint64(90 << 30)), CapacityBytes: stats.Some(uint64(100 << 30)), InodesFree: stats.Some(uint64(9e6)), Inodes: stats.Some(uint64(1e7))})
	n.Fs, n.ImageFs, n.ContainerFs = fs, fs, fs
	n.Pressure.Memory.Full.Over1s = stats.Some(0.01)
	return in
}

func benchManager(pressure bool) *Manager {
	s := Settings{EvictionHard: DefaultHard(), EvictionSoft: map[string]string{"memory.available": "200Mi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "1m"}, EnforceNodeAllocatable: []string{"pods"}, OwnSignals: true}
	s.EvictionHard["pid.available"] = "100"
	if pressure {
		s.EvictionHard["memory.pressure.full"] = "20%/1s"
	}
	thresholds, _, errs := s.Parse()
	if errs != nil {
		panic(errs[0])
	}
	return NewManager(Config{Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableLower, LocalStorage: true, Breaker: true, PressureTransitionPeriod: 5 * time.Minute,
		Policy: Policy{AnnotationNamespaces: []string{"kube-system"}}})
}

// A step in which nothing is met does not allocate, also with pressure thresholds and while a
// condition is still true.
func TestACalmStepDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, pressure := range []bool{false, true} {
		m, now, in := benchManager(pressure), epoch, fullNode(1000)
		in.Summary.Node.PIDs.Current.V = 32700
		m.Step(now, in)
		in.Summary.Node.PIDs.Current.V = 1000
		if d := m.Step(now, in); len(d.Conditions) != 1 || d.Met != nil {
			t.Fatalf("calm step: conditions %v, met %v, want one condition and nothing met", d.Conditions, d.Met)
		}
		if n := testing.AllocsPerRun(100, func() { now = now.Add(time.Millisecond); m.Step(now, in) }); n != 0 {
			t.Errorf("calm step with pressure %v: %v allocations, want 0", pressure, n)
		}
		if n := testing.AllocsPerRun(100, func() { now = now.Add(time.Millisecond); m.Observe(now, &in.Summary.Node, Situation{}) }); n != 0 {
			t.Errorf("Observe with pressure %v: %v allocations, want 0", pressure, n)
		}
	}
}

// The steps: nothing is met; a hard threshold for memory is met, and the benchmark forgets its
// victim; that victim's eviction is in progress; every disk signal is met, with the second half
// after the reclaim; a pressure signal is met that one pod causes.
func BenchmarkStep(b *testing.B) {
	const little = 50 << 20
	noMemory := func(n *stats.NodeStats) { n.Memory.KernelAvailableBytes = stats.Some(uint64(little)) }
	for _, c := range []struct {
		name     string
		pressure bool
		short    func(*stats.NodeStats)
		victims  int // per step
		begin    bool
	}{
		{"calm", false, func(*stats.NodeStats) {}, 0, false},
		{"memory", false, noMemory, 1, false},
		{"underway", false, noMemory, 0, true},
		{"disks", false, func(n *stats.NodeStats) {
			fs := stats.Some(stats.FsStats{AvailableBytes: stats.Some(uint64(little)), CapacityBytes: stats.Some(uint64(100 << 30)), InodesFree: stats.Some(uint64(10)), Inodes: stats.Some(uint64(1e7))})
			n.Fs, n.ImageFs, n.ContainerFs = fs, fs, fs
		}, 1, false},
		{"pressure", true, func(n *stats.NodeStats) { n.Pressure.Memory.Full.Over1s = stats.Some(0.5) }, 1, false},
	} {
		for _, pods := range []int{110, 1000} {
			b.Run(fmt.Sprintf("%s/pods=%d", c.name, pods), func(b *testing.B) {
				m, now, in := benchManager(c.pressure), epoch, fullNode(pods)
				hits := &in.Summary.Pods[pods-1].Events
				hits.OK = true
				m.Step(now, in)
				c.short(&in.Summary.Node)
				if c.begin {
					d := m.Step(now, in)
					m.Begin(Stamp{Time: now}, d.Evictions[0], d.Signal)
				}
				b.ReportAllocs()
				for b.Loop() {
					now = now.Add(time.Millisecond)
					hits.V.Max++
					d := m.Step(now, in)
					if len(d.Reclaim) > 0 {
						d = m.StepAfterReclaim(now, in)
					}
					if len(d.Evictions) != c.victims {
						b.Fatal(len(d.Evictions), d.Reason)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
			})
		}
	}
}

// A step that finds a victim does not allocate until its words are added. They equal those of any
// other step.
func TestATerseStepDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, c := range []struct {
		name  string
		short func(*stats.NodeStats)
	}{
		{"memory", func(n *stats.NodeStats) { n.Memory.KernelAvailableBytes = stats.Some(uint64(50 << 20)) }},
		{"tasks", func(n *stats.NodeStats) { n.PIDs.Current.V = 32700 }},
	} {
		in := fullNode(1000)
		for i := range in.Summary.Pods { // objects of half of them; some are protected
			p := &in.Summary.Pods[i]
			if i%2 == 0 {
				delete(in.Pods, p.PodRef.UID)
			}
			if i%50 == 0 {
				p.PodRef.Namespace = "kube-system"
			}
			if i%70 == 0 {
				p.Annotations = map[string]string{annotationConfigSource: "file"}
			}
		}
		m, wordy := benchManager(false), benchManager(false)
		m.config.Policy.ProtectedNamespaces, wordy.config.Policy.ProtectedNamespaces = []string{"kube-system"}, []string{"kube-system"}
		now := epoch
		m.Step(now, in)
		wordy.Step(now, in)
		c.short(&in.Summary.Node)
		in.Terse, in.MemoryOnly = true, true
		m.Step(now, in) // the buffers grow to their final size
		var d Decision
		if n := testing.AllocsPerRun(100, func() {
			now = now.Add(time.Millisecond)
			m.Observe(now, &in.Summary.Node, Situation{})
			d = m.Step(now, in)
		}); n != 0 {
			t.Errorf("%s: terse step: %v allocations, want 0", c.name, n)
		}
		if len(d.Evictions) != 1 || d.Evictions[0].Message != "" {
			t.Fatalf("%s: evictions = %+v, want one without a message", c.name, d.Evictions)
		}
		d.AddTexts()
		in.Terse = false
		want := wordy.Step(now, in)
		d.Met, want.Met, d.Signal.Since, want.Signal.Since = nil, nil, now, now
		if diff := cmp.Diff(want, d, cmp.AllowUnexported(Eviction{}, Keys{}, Threshold{}, suspicion{}), cmpopts.IgnoreUnexported(Pod{})); diff != "" {
			t.Errorf("%s: terse step differs from a normal one (-want +got):\n%s", c.name, diff)
		}
	}
}
