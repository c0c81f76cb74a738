package frames

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"jettison/admit"
	"jettison/eviction"
	"jettison/stats"
)

// draw draws parts of a look.
type draw struct{ *rapid.T }

func (d draw) yes(name string) bool { return rapid.Bool().Draw(d.T, name) }

// often returns true four times in five.
func (d draw) often(name string) bool { return rapid.IntRange(0, 4).Draw(d.T, name) > 0 }

// figure draws a number, sometimes absent, and rarely an implausible one.
func (d draw) figure(name string, most uint64) stats.Opt[uint64] {
	if rapid.IntRange(0, 40).Draw(d.T, name+" broken") == 0 {
		return stats.Some(rapid.SampledFrom([]uint64{math.MaxUint64, 1 << 63, math.MaxInt64}).Draw(d.T, name))
	}
	return stats.Opt[uint64]{V: rapid.Uint64Range(0, most).Draw(d.T, name), OK: d.often(name + " known")}
}

func (d draw) known(v stats.Opt[uint64]) stats.Opt[uint64] {
	if !v.OK {
		return stats.Opt[uint64]{} // an absent value is not in a frame
	}
	return v
}

func (d draw) n(name string, most uint64) stats.Opt[uint64] { return d.known(d.figure(name, most)) }

// at draws the time of a reading: now, or old enough to be stale, with parts of a second.
func (d draw) at(name string, now time.Time) time.Time {
	return now.Add(-rapid.SampledFrom([]time.Duration{0, 0, 0, time.Millisecond, 900 * time.Millisecond, 20 * time.Second}).Draw(d.T, name))
}

func (d draw) fs(name string, now time.Time) stats.Opt[stats.FsStats] {
	if !d.often(name) {
		return stats.Opt[stats.FsStats]{}
	}
	return stats.Some(stats.FsStats{Time: d.at(name+" at", now), AvailableBytes: d.n(name+" available", 4<<30), CapacityBytes: d.n(name+" capacity", 16<<30),
		InodesFree: d.n(name+" inodes", 4000), Inodes: d.n(name+" all inodes", 16000)})
}

func (d draw) stall(name string) stats.StallShare {
	share := func(name string) stats.Opt[float64] {
		if !d.yes(name) {
			return stats.Opt[float64]{}
		}
		return stats.Some(rapid.Float64Range(0, 0.5).Draw(d.T, name+" share"))
	}
	return stats.StallShare{Over1s: share(name + " 1s"), Over10s: share(name + " 10s")}
}

func (d draw) node(now time.Time) (n stats.NodeStats) {
	n.Memory = stats.NodeMemoryStats{Time: d.at("memory at", now), CapacityBytes: d.n("capacity", 16<<30), WorkingSetBytes: d.n("working set", 20<<30), UsageBytes: d.n("node's usage", 16<<30),
		KernelAvailableBytes: d.n("kernel", 8<<30), PerCPUFreeBytes: d.n("per CPU", 1<<20),
		HugePagesBytes: d.n("huge pages", 8<<30), ShrinkableBytes: d.n("ZFS", 4<<30)}
	n.Allocatable = stats.AllocatableMemoryStats{Time: d.at("allocatable at", now), LimitBytes: d.n("allocatable", 12<<30), WorkingSetBytes: d.n("allocated", 14<<30)}
	if !n.Allocatable.LimitBytes.OK || !n.Allocatable.WorkingSetBytes.OK { // read together
		n.Allocatable.LimitBytes, n.Allocatable.WorkingSetBytes = stats.Opt[uint64]{}, stats.Opt[uint64]{}
	}
	n.Swap = stats.NodeSwapStats{Time: d.at("swap at", now), TotalBytes: d.n("swap", 8<<30), FreeBytes: d.n("swap free", 8<<30)}
	n.PIDs = stats.NodePIDStats{Time: d.at("pids at", now), Max: d.n("pids", 2000), Current: d.n("tasks", 2000)}
	if d.often("limit of the pods' tasks") {
		n.PIDs.PodsMax, n.PIDs.PodsCurrent = d.n("pods' pids", 2000), d.n("pods' tasks", 2000)
	}
	n.Fs, n.ImageFs, n.ContainerFs = d.fs("nodefs", now), d.fs("imagefs", now), d.fs("containerfs", now)
	if d.often("layout") {
		n.Layout = stats.Some(stats.Layout{DedicatedImageFs: d.yes("dedicated"), SplitContainerFs: d.yes("split")})
	}
	at := d.at("pressure at", now)
	n.Pressure = stats.NodePressure{CPU: stats.Pressure{Time: at, Some: d.stall("cpu")}, Memory: stats.Pressure{Time: at, Some: d.stall("memory some"), Full: d.stall("memory full")}, IO: stats.Pressure{Time: at, Full: d.stall("io")}}
	if d.yes("psi") {
		n.Pressure.Memory.Stats = stats.Some(stats.PSIStats{HasSome: true, HasFull: true, Some: stats.PSIData{Avg60: rapid.Float64Range(0, 100).Draw(d.T, "avg60")}})
		n.Pressure.CPU.Stats = n.Pressure.Memory.Stats
	}
	return n
}

func (d draw) usage(name string, now time.Time) stats.Opt[stats.FsUsage] {
	if !d.often(name) {
		return stats.Opt[stats.FsUsage]{}
	}
	return stats.Some(stats.FsUsage{Time: now, UsedBytes: rapid.Uint64Range(0, 4<<30).Draw(d.T, name+" bytes"), InodesUsed: rapid.Uint64Range(0, 1000).Draw(d.T, name+" inodes")})
}

func (d draw) span(name string, most uint64) stats.Opt[stats.Range] {
	if !d.often(name) {
		return stats.Opt[stats.Range]{}
	}
	least := rapid.Uint64Range(0, most).Draw(d.T, name+" min")
	return stats.Some(stats.Range{Min: least, Max: least + rapid.Uint64Range(0, 1<<20).Draw(d.T, name+" more")})
}

func (d draw) pod(i int, now time.Time) stats.PodStats {
	uid := fmt.Sprintf("uid-%d", i)
	p := stats.PodStats{PodRef: stats.PodReference{UID: uid, Name: "pod-" + uid, Namespace: rapid.SampledFrom([]string{"default", "kube-system"}).Draw(d.T, "namespace")}, Cgroup: "kubepods/" + uid}
	if p.Announced = d.often("announced"); !p.Announced {
		p.PodRef.Name, p.PodRef.Namespace = "", ""
	}
	p.StartTime = d.at("start", now)
	p.QOSClass = rapid.SampledFrom([]stats.QOSClass{"", stats.BestEffort, stats.Burstable, stats.Guaranteed}).Draw(d.T, "QoS")
	if d.often("populated") {
		p.Populated = stats.Some(d.often("alive"))
	}
	for _, a := range [][]string{{"kubernetes.io/config.source", "", "", "api", "file"}, {"jettison/priority", "", "5", "x"}, {"jettison/never-evict", "", "", "true"}, {"jettison/memory-request", "", "1Gi", "1e-99990000"}} {
		key := a[0]
		if v := rapid.SampledFrom(a[1:]).Draw(d.T, key); v != "" && p.Announced {
			if p.Annotations == nil {
				p.Annotations = map[string]string{"other": "x"}
			}
			p.Annotations[key] = v
		}
	}
	p.Self, p.NodeCritical = !d.often("not self") && d.yes("self"), !d.often("not critical") && d.yes("critical")
	p.Memory = stats.PodMemoryStats{Time: now, UsageBytes: d.n("usage", 5<<30), WorkingSetBytes: d.n("memory", 4<<30), AnonBytes: d.n("anon", 4<<30), ShmemBytes: d.n("shmem", 1<<30), SwapBytes: d.n("swapped", 1<<30), RefaultBytes: d.n("refaulted", 1<<30), KernelBytes: d.n("kernel", 1<<30), FreedBytes: d.span("freed", 1<<30), LimitBytes: d.n("limit", 8<<30)}
	p.Threads, p.Processes = d.n("threads", 500), d.n("processes", 100)
	if d.often("events") {
		p.Events = stats.Some(stats.MemoryEvents{Max: rapid.Uint64Range(0, 3).Draw(d.T, "max")})
	}
	p.MemoryRequest, p.CPURequestMillis = d.span("request", 2<<30), d.span("cpu request", 2000)
	p.StatusRefused = !d.often("not refused") && d.yes("refused")
	if d.often("io") {
		p.IO = stats.Some(stats.IOStat{ReadBytes: rapid.Uint64Range(0, 1<<30).Draw(d.T, "read"), WriteBytes: 5})
	}
	if d.often("cpu") {
		p.CPU = stats.CPUStats{Time: now, Usage: stats.Some(time.Duration(rapid.Int64Range(0, 1<<40).Draw(d.T, "cpu time")))}
	}
	for _, name := range []string{"c", ""}[:rapid.IntRange(0, 2).Draw(d.T, "containers")] {
		c := stats.ContainerStats{Name: name, ID: uid + "-id", Rootfs: d.usage("rootfs", now), Logs: d.usage("logs", now), Processes: d.n("container's processes", 50)}
		if d.often("container's memory") { // a message contains it even if it is implausible, and then a frame lacks it
			c.Memory.WorkingSetBytes = stats.Some(rapid.Uint64Range(0, 4<<30).Draw(d.T, "container's working set"))
		}
		p.Containers = append(p.Containers, c)
	}
	p.EphemeralStorage = stats.PodStorageStats{UsedBytes: d.n("disk", 4<<30), Logs: d.usage("pod's logs", now),
		Files: d.usage("pod's files", now), ExitedLayers: d.usage("exited", now)}
	if v := d.usage("volume", now); v.OK {
		p.EphemeralStorage.Volumes = []stats.VolumeStats{{Name: rapid.SampledFrom([]string{"v", "\xff"}).Draw(d.T, "name of the volume"), FsUsage: v.V, Memory: d.yes("in memory")}}
	}
	return p
}

func (d draw) object(i int) *v1.Pod {
	p := &v1.Pod{}
	p.UID, p.Name, p.Namespace = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("object-%d", i), "default"
	priority := rapid.SampledFrom([]int32{-1, 0, 1, 2_000_000_000}).Draw(d.T, "priority")
	grace := rapid.Int64Range(-1, 100).Draw(d.T, "grace")
	if d.often("has a priority") {
		p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = &priority, &grace
	}
	list := func(name string) v1.ResourceList {
		out := v1.ResourceList{}
		for _, resourceName := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourceCPU} {
			if text := rapid.SampledFrom([]string{"", "0", "1Gi", "0.5Gi", "1500M"}).Draw(d.T, name+string(resourceName)); text != "" {
				out[resourceName] = resource.MustParse(text)
			}
		}
		return out
	}
	container := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: list("request "), Limits: list("limit ")}}
	p.Spec.Containers = []v1.Container{container}
	if d.yes("sidecar") {
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: list("sidecar ")}}}
	}
	if d.yes("pod-level") {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: list("pod ")}
	}
	if d.yes("container's allocation") {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Image: "x", AllocatedResources: list("allocated ")}}
		p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "s", Resources: &v1.ResourceRequirements{Requests: list("applied "), Limits: list("applied limit ")}}}
	}
	if d.yes("pod's allocation") {
		p.Status.AllocatedResources = list("total ")
	}
	if d.yes("volume") {
		size := resource.MustParse("1Gi")
		v := v1.Volume{Name: "v"}
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/x", ReadOnly: d.yes("read-only")}}
		switch rapid.IntRange(0, 5).Draw(d.T, "kind of the volume") {
		case 0:
			v.EmptyDir = &v1.EmptyDirVolumeSource{SizeLimit: &size}
		case 1:
			v.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
		case 2:
			v.HostPath = &v1.HostPathVolumeSource{Path: "/x"}
		case 3:
			v.NFS = &v1.NFSVolumeSource{Server: "s"}
		case 4:
			v.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: d.yes("read-only claim")}
		case 5:
			v.Ephemeral = &v1.EphemeralVolumeSource{}
		}
		p.Spec.Volumes = []v1.Volume{v}
	}
	if d.yes("overhead") {
		p.Spec.Overhead = list("overhead ")
	}
	p.Spec.PriorityClassName = rapid.SampledFrom([]string{"", "high", "system-node-critical"}).Draw(d.T, "class")
	p.Status.QOSClass = rapid.SampledFrom([]v1.PodQOSClass{"", v1.PodQOSBurstable}).Draw(d.T, "class by its status")
	if d.yes("annotated") {
		p.Annotations = map[string]string{"kubernetes.io/config.source": "api", "other": "x"}
	}
	if !d.often("lives") {
		p.Status.Phase = v1.PodSucceeded
	}
	return p
}

func (d draw) summary(now time.Time) *stats.Summary {
	s := &stats.Summary{Time: now, Node: d.node(now)}
	for i := range rapid.IntRange(0, 4).Draw(d.T, "pods") {
		if d.often("in the summary") {
			s.Pods = append(s.Pods, d.pod(i, now))
		}
	}
	return s
}

const everything = `
evictionHard: {memory.available: 1Gi, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 1Gi, imagefs.inodesFree: 10%, pid.available: "100", swap.available: 10%, memory.pressure.full: 20%/1s, io.pressure.full: 20%/10s, cpu.pressure.some: 30%/10s, memory.pressure.some: 40%/1m}
evictionSoft: {memory.available: 3Gi, nodefs.available: 20%, pid.available: "500"}
evictionSoftGracePeriod: {memory.available: 10s, nodefs.available: 1s, pid.available: 5s}
evictionMinimumReclaim: {memory.available: 500Mi, imagefs.available: 5%}
evictionMaxPodGracePeriod: 60
memoryAvailable: `

var impossible = regexp.MustCompile(`Pod \S+ was using 9223372036854775807,[^.]*\. `)

// The replay of a recorded look makes the decisions of the live look, with any known, unknown or
// broken data; over many looks, with failed kills and changing objects.
func TestReplayMatchesLiveLook(t *testing.T) {
	policies := map[string]string{}
	for _, by := range []string{"workingSet", "kernel", "lower"} {
		policies[by] = everything + by + "\n"
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := draw{rt}
		c := policy(t, policies[rapid.SampledFrom([]string{"workingSet", "kernel", "lower"}).Draw(rt, "memoryAvailable")])
		live, replayed, rec, now := NewPlayer(c), NewPlayer(c), &Recorder{}, epoch
		var objects []*v1.Pod
		for i := range rapid.IntRange(1, 8).Draw(rt, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(rt, "ms")) * time.Millisecond)
			l := Input{Time: now, Summary: d.summary(now), Node: "node"}
			var after *stats.Summary
			if d.yes("after a reclaim") {
				after = d.summary(now)
				after.Node.Layout = l.Summary.Node.Layout
			}
			l.MemoryOnly, l.ObserveDisks = !d.often("full"), !d.often("disks")
			if i == 0 || d.yes("other objects") {
				objects = nil
				for i := range 4 {
					if d.yes("object") {
						objects = append(objects, d.object(i))
					}
				}
			}
			if l.Pods = objects; d.yes("some will not die") {
				l.KillErrors = map[string]string{"uid-0": "hangs", "uid-2": "hangs"}
			}
			f := reclaimed(FromLook(l), after)
			want := written(t, liveOutput(live, l, after, f))
			rec.prepare(f, i == 0)
			rec.objects = f.objects
			text := marshaled(t, f)
			got := written(t, replayed.Play(read(t, text)[0]))
			// A message contains even an implausible figure, which a frame lacks.
			got, want = impossible.ReplaceAllString(got, ""), impossible.ReplaceAllString(want, "")
			if got != want {
				rt.Fatalf("replay of look %d decided differently\nlive   %s\nreplay %s\nframe  %s", i, want, got, text)
			}
		}
	})
}

// A stripped object leads to the same decisions as the whole one.
func TestStrippedObjectsInDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := draw{t}.object(0)
		stripped := strip(p)
		if was, is := eviction.NewPod(p), eviction.NewPod(&stripped); !reflect.DeepEqual(was, is) {
			t.Fatalf("stripped object ranks differently: %+v became %+v", was, is)
		}
		if was, is := admit.HeldBy(admit.PodAttributes{Pod: p}), admit.HeldBy(admit.PodAttributes{Pod: &stripped}); !reflect.DeepEqual(was.Requests, is.Requests) {
			t.Fatalf("stripped object requests %v, want %v", is.Requests, was.Requests)
		}
		for _, conditions := range [][]string{nil, {"MemoryPressure"}, {"DiskPressure"}} {
			if was, is := admit.UnderPressure(conditions, p), admit.UnderPressure(conditions, &stripped); was != is {
				t.Fatalf("admission under %v differs: %+v became %+v", conditions, was, is)
			}
		}
	})
}
