package frames

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"jettison/eviction"
	"jettison/internal/node/config"
	"jettison/stats"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 123_456_789, time.UTC)

func some(v uint64) stats.Opt[uint64] { return stats.Some(v) }

// node110 returns a full look at a node with pods of two containers each.
func node110(at time.Time, pods int) *stats.Summary {
	s := &stats.Summary{Time: at}
	fs := stats.Some(stats.FsStats{Time: at, AvailableBytes: some(90 << 30), CapacityBytes: some(100 << 30), UsedBytes: some(10 << 30), InodesFree: some(9e6), Inodes: some(1e7), InodesUsed: some(1e6)})
	n := &s.Node
	n.Fs, n.ImageFs, n.ContainerFs, n.Layout = fs, fs, fs, stats.Some(stats.Layout{})
	n.Memory = stats.NodeMemoryStats{Time: at, CapacityBytes: some(64 << 30), WorkingSetBytes: some(30 << 30), UsageBytes: some(40 << 30), RSSBytes: some(20 << 30), KernelAvailableBytes: some(33 << 30), PerCPUFreeBytes: some(1 << 20)}
	n.Allocatable = stats.AllocatableMemoryStats{Time: at, LimitBytes: some(60 << 30), WorkingSetBytes: some(29 << 30)}
	n.PIDs = stats.NodePIDStats{Time: at, Max: some(4 << 20), Current: some(3000)}
	n.CPU = stats.CPUStats{Time: at, Usage: stats.Some(time.Hour), NanoCores: some(2e9)}
	psi := stats.Some(stats.PSIStats{Some: stats.PSIData{Avg10: 1.53, Avg60: 0.2, Total: 12_345_678_000}, Full: stats.PSIData{Avg10: 0.5, Total: 2_345_678_000}, HasSome: true, HasFull: true})
	n.Pressure.Memory = stats.Pressure{Time: at, Stats: psi, Some: stats.StallShare{Over1s: stats.Some(0.0123)}}
	for i := range pods {
		v := uint64(i)*7919*4096 + uint64(at.UnixNano()/1000%(1<<28))
		p := stats.PodStats{PodRef: stats.PodReference{UID: fmt.Sprintf("%08x-1234-1234-1234-%012d", i*2654435761, i), Name: fmt.Sprintf("web-%d-%x", i, i*7919), Namespace: "default"}, StartTime: epoch, Announced: true}
		p.Cgroup, p.QOSClass, p.Populated = "kubepods/burstable/pod"+p.PodRef.UID, stats.Burstable, stats.Some(true)
		p.Memory = stats.PodMemoryStats{Time: at, UsageBytes: some(v + 1<<20), WorkingSetBytes: some(v), AnonBytes: some(v / 2), ShmemBytes: some(4096), PageFaults: some(v / 4096), MajorPageFaults: some(10), LimitBytes: some(1 << 40), SwapBytes: some(0), FreedBytes: stats.Some(stats.Range{Min: v / 2, Max: v})}
		p.CPU = stats.CPUStats{Time: at, Usage: stats.Some(time.Duration(v) * 1000), NanoCores: some(v % 1e9)}
		p.CPUPressure, p.MemoryPressure, p.IOPressure = psi, psi, psi
		p.Events, p.LocalEvents = stats.Some(stats.MemoryEvents{Max: 3}), stats.Some(stats.MemoryEvents{Max: 3})
		p.Threads, p.Processes, p.IO = some(20), some(3), stats.Some(stats.IOStat{ReadBytes: v, WriteBytes: v / 2})
		p.MemoryRequest, p.CPURequestMillis = stats.Some(stats.Range{Min: 100 << 20, Max: 164 << 20}), stats.Some(stats.Range{Min: 100, Max: 100})
		for _, name := range []string{"main", "sidecar"} {
			c := stats.ContainerStats{Name: name, StartTime: epoch, CPU: p.CPU, Processes: some(1)}
			c.Memory = stats.ContainerMemoryStats{Time: at, UsageBytes: some(v / 2), WorkingSetBytes: some(v / 2), AnonBytes: some(v / 4), PageFaults: some(v / 8192), MajorPageFaults: some(5), LimitBytes: some(1 << 39), SwapBytes: some(0)}
			c.Rootfs = stats.Some(stats.FsUsage{Time: at.Add(-time.Duration(i) * time.Second), UsedBytes: v / 100, InodesUsed: 100})
			c.Logs = stats.Some(stats.FsUsage{Time: at.Add(-time.Duration(i) * time.Second), UsedBytes: v / 1000, InodesUsed: 2})
			p.Containers = append(p.Containers, c)
		}
		p.EphemeralStorage = stats.PodStorageStats{Time: at.Add(-time.Duration(i) * time.Second), UsedBytes: some(v / 50), InodesUsed: some(300), Logs: p.Containers[0].Logs,
			Volumes: []stats.VolumeStats{{Name: "cache", FsUsage: stats.FsUsage{Time: at, UsedBytes: v / 200, InodesUsed: 10}}}}
		p.Network = stats.Some(stats.NetworkStats{Time: at, Interfaces: []stats.InterfaceStats{{Name: "eth0", RxBytes: v, TxBytes: v / 3}}})
		s.Pods = append(s.Pods, p)
	}
	return s
}

// objects110 returns the objects of those pods.
func objects110(s *stats.Summary) (out []*v1.Pod) {
	request := v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi"), v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
	for i := range s.Pods {
		ref, priority := s.Pods[i].PodRef, int32(i%3)
		p := &v1.Pod{Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{
			{Name: "main", Resources: v1.ResourceRequirements{Requests: request}, Env: []v1.EnvVar{{Name: "PASSWORD", Value: "secret"}}}, {Name: "sidecar"}}}}
		p.Name, p.Namespace, p.UID = ref.Name, ref.Namespace, types.UID(ref.UID)
		p.Labels = map[string]string{"app": "secret"}
		p.Spec.Volumes = []v1.Volume{{Name: "cache", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		out = append(out, p)
	}
	return out
}

// line returns a frame in the form of a recorder, uncompressed.
func line(t testing.TB, f *Frame) []byte {
	t.Helper()
	(&Recorder{}).prepare(f, true)
	return marshaled(t, f)
}

func marshaled(t testing.TB, f *Frame) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := marshal(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t testing.TB, text []byte) []*Frame {
	t.Helper()
	r, err := NewReader(bytes.NewReader(text), "frames")
	if err != nil {
		t.Fatal(err)
	}
	var out []*Frame
	for {
		f, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("read the written frame: error %v: %.2000s", err, text)
		}
		out = append(out, f)
	}
}

func policy(t testing.TB, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	err := os.WriteFile(path, []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"+text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return c.Config
}

func written(t testing.TB, o *Output) string {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// reclaimed returns a frame with a Summary after a reclaim; nil: none.
func reclaimed(f *Frame, after *stats.Summary) *Frame {
	if after != nil {
		of := FromLook(Input{Summary: after, Node: "node"})
		f.AfterReclaim, f.AgentAfterReclaim = of.Summary, of.Agent
	}
	return f
}

// liveOutput returns the decisions of a policy on a live look, without a frame in between.
func liveOutput(p *Player, l Input, after *stats.Summary, f *Frame) *Output {
	p.objects.pods = map[string]*eviction.Pod{}
	for _, o := range l.Pods {
		p.objects.pods[string(o.UID)] = eviction.NewPod(o)
	}
	return p.decide(f, l.Summary, after)
}

// A recorded frame has only the pods that were observed. In a handwritten frame a pod with an
// object only counts too, as with a kubelet.
func TestPodsWithObjectOnly(t *testing.T) {
	s := node110(time.Unix(1e9, 0), 1)
	s.Node.Memory.KernelAvailableBytes = some(1)
	ghost := objects110(s)[0].DeepCopy()
	ghost.UID, ghost.Name = "ghost", "ghost"
	s.Pods = nil
	for _, recorded := range []bool{true, false} {
		f := read(t, line(t, FromLook(Input{Time: s.Time, Summary: s, Pods: []*v1.Pod{ghost}})))[0]
		f.Agent.Recorded = recorded
		o := NewPlayer(policy(t, "evictionHard: {memory.available: 100Mi}")).Play(f)
		if len(o.ThresholdsMet) != 1 || (len(o.Evictions) == 0) != recorded {
			t.Errorf("with a recorded eviction (%v), output = %s", recorded, written(t, o))
		}
	}
}
