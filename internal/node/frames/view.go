package frames

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/eviction"
	"jettison/internal/node/summaryv1"
	"jettison/stats"
)

// objects are the known pod objects, by UID.
type objects struct {
	pods map[string]*eviction.Pod
	// inMemory reports whether a volume uses memory instead of disk, by UID and volume name
	inMemory map[string]map[string]bool
}

func newObjects(pods []v1.Pod) objects {
	o := objects{pods: make(map[string]*eviction.Pod, len(pods)),
		inMemory: make(map[string]map[string]bool, len(pods))}
	for i := range pods {
		p := &pods[i]
		uid := string(p.UID)
		// a frame has root's authority; data that clients may not provide was not recorded
		o.pods[uid] = eviction.NewManifestPod(p)
		o.inMemory[uid] = make(map[string]bool, len(p.Spec.Volumes))
		for j := range p.Spec.Volumes {
			v := &p.Spec.Volumes[j]
			o.inMemory[uid][v.Name] = v.EmptyDir != nil && v.EmptyDir.Medium != v1.StorageMediumDefault ||
				v.Secret != nil || v.Projected != nil
		}
	}
	return o
}

// clearerOf returns the function that clears the data of a failed source. The name is a key of
// clearers, a signal of the source, or the API's name of it; nil: unknown source.
func clearerOf(name string) func(*stats.Summary) {
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	switch name {
	case "pid", "rlimit":
		name = "pids"
	case "allocatablememory":
		name = "allocatable"
	case "cri":
		name = "runtime"
	}
	return clearers[name]
}

// clearers are the functions that clear a source's data, by the names of sourceErrors.
var clearers = map[string]func(*stats.Summary){
	"memory":      func(s *stats.Summary) { s.Node.Memory = stats.NodeMemoryStats{} },
	"allocatable": func(s *stats.Summary) { s.Node.Allocatable = stats.AllocatableMemoryStats{} },
	"swap":        func(s *stats.Summary) { s.Node.Swap = stats.NodeSwapStats{} },
	"pids":        func(s *stats.Summary) { s.Node.PIDs = stats.NodePIDStats{} },
	"pressure":    func(s *stats.Summary) { s.Node.Pressure = stats.NodePressure{} },
	"nodefs":      func(s *stats.Summary) { s.Node.Fs = stats.Opt[stats.FsStats]{} },
	"imagefs":     func(s *stats.Summary) { s.Node.ImageFs = stats.Opt[stats.FsStats]{} },
	"containerfs": func(s *stats.Summary) { s.Node.ContainerFs = stats.Opt[stats.FsStats]{} },
	// the runtime reports the file systems of images and writable layers
	"runtime": func(s *stats.Summary) {
		s.Node.ImageFs, s.Node.ContainerFs = stats.Opt[stats.FsStats]{}, stats.Opt[stats.FsStats]{}
	},
	// the data of all pods: their cgroups could not be listed
	"pods": func(s *stats.Summary) { s.Pods = nil },
	// the disk usage of pods
	"storage": func(s *stats.Summary) {
		for i := range s.Pods {
			s.Pods[i].EphemeralStorage = stats.PodStorageStats{}
			for j := range s.Pods[i].Containers {
				c := &s.Pods[i].Containers[j]
				c.Rootfs, c.Logs = stats.Opt[stats.FsUsage]{}, stats.Opt[stats.FsUsage]{}
			}
		}
	},
}

// view converts a frame to the decision core's Summary, with the data of the agent (nil: none). A
// nil Summary: nothing was observed.
func view(at time.Time, v *v1alpha1.Summary, a *Agent, o objects,
	layout stats.Layout) *stats.Summary {
	if v == nil {
		v, a = &v1alpha1.Summary{}, nil
	}
	if a == nil {
		a = &Agent{}
	}
	out := summaryv1.To(v)
	out.Time, out.Node.Layout = at, stats.Some(layout)
	for i := range out.Pods {
		p := &out.Pods[i]
		extra := a.Pods[p.PodRef.UID]
		if !a.Recorded {
			place(p, &v.Pods[i], v.Node.Fs, o.inMemory[p.PodRef.UID])
			fromParts(p)
		}
		if extra != nil {
			extra.addTo(p)
		}
	}
	a.addTo(&out.Node)
	for name := range a.SourceErrors {
		clearerOf(name)(&out)
	}
	// Without the kernel's estimate, availableBytes is memory.available for every value of
	// memoryAvailable.
	if m := &out.Node.Memory; !a.Recorded && !m.KernelAvailableBytes.OK && m.CapacityBytes.OK &&
		m.WorkingSetBytes.OK {
		m.KernelAvailableBytes = stats.Some(m.Available(stats.MemoryAvailableWorkingSet).Value)
	}
	return &out
}

// place marks the volumes of a pod that use memory instead of disk: by its object if there is one
// (inMemory is not nil), else by a size that differs from the node's file system.
func place(p *stats.PodStats, from *v1alpha1.PodStats, node *v1alpha1.FsStats,
	inMemory map[string]bool) {
	volumes := p.EphemeralStorage.Volumes
	for i := range volumes {
		v := &volumes[i]
		if inMemory != nil {
			v.Memory = inMemory[v.Name]
			continue
		}
		for j := range from.VolumeStats {
			if f := &from.VolumeStats[j]; f.Name == v.Name {
				v.Memory = f.CapacityBytes != nil && node != nil && node.CapacityBytes != nil &&
					*f.CapacityBytes != *node.CapacityBytes
			}
		}
	}
}

// fromParts computes figures that a Summary omits, as the kubelet does: a pod's memory is the sum
// of its containers (pkg/kubelet/stats). The total disk usage is not computed: the kubelet uses 0
// if the Summary omits it (pkg/kubelet/eviction/eviction_manager.go
// podEphemeralStorageLimitEviction), and an unknown value exceeds no limit.
func fromParts(p *stats.PodStats) {
	if p.Memory.WorkingSetBytes.OK || len(p.Containers) == 0 {
		return
	}
	sum, all := uint64(0), true
	for i := range p.Containers {
		v := p.Containers[i].Memory.WorkingSetBytes
		sum, all = stats.SaturatingAdd(sum, v.V), all && v.OK
	}
	if all {
		p.Memory.WorkingSetBytes = stats.Some(sum)
	}
}

func opt[T any](p *T) stats.Opt[T] {
	if p == nil {
		return stats.Opt[T]{}
	}
	return stats.Some(*p)
}

// fill overwrites into with p, unless p is nil.
func fill[T any](into *stats.Opt[T], p *T) {
	if p != nil {
		*into = stats.Some(*p)
	}
}

// addTo adds the agent's data about the node.
func (a *Agent) addTo(n *stats.NodeStats) {
	n.Memory.KernelAvailableBytes, n.Memory.PerCPUFreeBytes = opt(a.MemAvailableBytes),
		opt(a.PerCPUFreeBytes)
	if a.Recorded || !n.Memory.CapacityBytes.OK {
		n.Memory.CapacityBytes = opt(a.MemTotalBytes)
		n.Memory.HugePagesBytes = opt(a.HugePagesBytes)
	}
	n.Memory.ShrinkableBytes = opt(a.ShrinkableBytes)
	fill(&n.Allocatable.LimitBytes, a.AllocatableLimitBytes)
	n.Allocatable.Unlimited = a.AllocatableUnlimited
	if p := a.PodsPIDs; p != nil {
		n.PIDs.PodsMax, n.PIDs.PodsCurrent = stats.Some(p.Max), stats.Some(p.Current)
	}
	if s := a.Swap; s != nil {
		fill(&n.Swap.TotalBytes, s.TotalBytes)
		fill(&n.Swap.FreeBytes, s.FreeBytes)
	}
	if p := a.Pressure; p != nil {
		p.CPU.addTo(&n.Pressure.CPU, p.Time)
		p.Memory.addTo(&n.Pressure.Memory, p.Time)
		p.IO.addTo(&n.Pressure.IO, p.Time)
	}
	if a.LayoutUnknown {
		n.Layout = stats.Opt[stats.Layout]{}
	}
}

func (s *Stalls) addTo(p *stats.Pressure, at time.Time) {
	if !at.IsZero() {
		p.Time = at
	}
	if s == nil {
		return
	}
	for i, shares := range []*Shares{s.Some, s.Full} {
		if shares != nil {
			*[]*stats.StallShare{&p.Some, &p.Full}[i] = stats.StallShare{Over1s: opt(shares.Over1s),
				Over10s: opt(shares.Over10s)}
		}
	}
}

// addTo adds the agent's data about a pod.
func (e *AgentPod) addTo(p *stats.PodStats) {
	fill(&p.Threads, e.Threads)
	fill(&p.Processes, e.Processes)
	fill(&p.Memory.AnonBytes, e.AnonBytes)
	fill(&p.Memory.ShmemBytes, e.ShmemBytes)
	fill(&p.Memory.SwapBytes, e.SwapBytes)
	fill(&p.Memory.RefaultBytes, e.RefaultBytes)
	fill(&p.Memory.KernelBytes, e.KernelBytes)
	if e.EventsLocal != nil { // events of the pod's own limit are included in those of the hierarchy
		local := stats.Some(stats.MemoryEvents(*e.EventsLocal))
		p.LocalEvents, p.Events = local, local
	}
	if e.Events != nil {
		p.Events = stats.Some(stats.MemoryEvents(*e.Events))
	}
	if t := e.PSITotals; t != nil {
		t.CPU.addTo(&p.CPUPressure)
		t.Memory.addTo(&p.MemoryPressure)
		t.IO.addTo(&p.IOPressure)
	}
	p.Memory.FreedBytes, p.MemoryRequest, p.CPURequestMillis = e.ReleasedBytes.opt(),
		e.MemoryRequest.opt(), e.CPURequestMillis.opt()
	if e.Announced != nil {
		p.Announced = *e.Announced
	}
	p.Populated, p.Self, p.NodeCritical, p.QOSClass = opt(e.Populated), e.Self, e.NodeCritical,
		e.QOSClass
	p.Annotations, p.Cgroup, p.StatusRefused = e.Annotations, e.Cgroup, e.StatusRefused
	if e.IO != nil {
		p.IO = stats.Some(stats.IOStat{ReadBytes: e.IO.ReadBytes, WriteBytes: e.IO.WriteBytes})
	}
	if e.CPUNanoseconds != nil {
		p.CPU.Usage = stats.Some(time.Duration(*e.CPUNanoseconds))
	}
	for i := range p.EphemeralStorage.Volumes {
		if v := &p.EphemeralStorage.Volumes[i]; slices.Contains(e.MemoryVolumes, v.Name) {
			v.Memory = true
		}
	}
	p.EphemeralStorage.Files, p.EphemeralStorage.ExitedLayers = e.Files.opt(), e.ExitedLayers.opt()
	if u := e.Unnamed; u != nil {
		p.EphemeralStorage.Unnamed = stats.UnnamedStats{Node: u.NodeFs.opt(), Image: u.ImageFs.opt(),
			Container: u.ContainerFs.opt()}
	}
	if e.Logs != nil {
		p.EphemeralStorage.Logs = stats.Some(stats.FsUsage{UsedBytes: e.Logs.UsedBytes,
			InodesUsed: e.Logs.InodesUsed})
	}
}

func (u *Usage) opt() stats.Opt[stats.FsUsage] {
	if u == nil {
		return stats.Opt[stats.FsUsage]{}
	}
	return stats.Some(stats.FsUsage{UsedBytes: u.UsedBytes, InodesUsed: u.InodesUsed})
}

func (r *Range) opt() stats.Opt[stats.Range] {
	if r == nil {
		return stats.Opt[stats.Range]{}
	}
	return stats.Some(stats.Range(*r))
}

// addTo sets pressure that the Summary lacks to the totals.
func (t *Totals) addTo(p *stats.Opt[stats.PSIStats]) {
	if t != nil && !p.OK {
		some, full := stats.PSIData{Total: time.Duration(t.Some)},
			stats.PSIData{Total: time.Duration(t.Full)}
		*p = stats.Some(stats.PSIStats{Some: some, Full: full, HasSome: true, HasFull: true})
	}
}
