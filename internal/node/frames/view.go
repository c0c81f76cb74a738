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

// objects are the pods' objects that are known, by UID.
type objects struct {
	pods map[string]*eviction.Pod
	// inMemory says of each pod's volumes whether they take memory, not disk.
	inMemory map[string]map[string]bool
}

func newObjects(pods []v1.Pod) objects {
	o := objects{pods: make(map[string]*eviction.Pod, len(pods)),
		inMemory: make(map[string]map[string]bool, len(pods))}
	for i := range pods {
		p := &pods[i]
		uid := string(p.UID)
		// a frame is root's word; what clients may not say was not recorded
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

// blinding is what a failed source leaves absent, by its name in blinds, by a signal that it is the
// source of, or by the API's name of it; nil: no such source.
func blinding(name string) func(*stats.Summary) {
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	switch name {
	case "pid", "rlimit":
		name = "pids"
	case "allocatablememory":
		name = "allocatable"
	case "cri":
		name = "runtime"
	}
	return blinds[name]
}

// blinds are the names of sourceErrors and what they are the source of.
var blinds = map[string]func(*stats.Summary){
	"memory":      func(s *stats.Summary) { s.Node.Memory = stats.NodeMemoryStats{} },
	"allocatable": func(s *stats.Summary) { s.Node.Allocatable = stats.AllocatableMemoryStats{} },
	"swap":        func(s *stats.Summary) { s.Node.Swap = stats.NodeSwapStats{} },
	"pids":        func(s *stats.Summary) { s.Node.PIDs = stats.NodePIDStats{} },
	"pressure":    func(s *stats.Summary) { s.Node.Pressure = stats.NodePressure{} },
	"nodefs":      func(s *stats.Summary) { s.Node.Fs = stats.Opt[stats.FsStats]{} },
	"imagefs":     func(s *stats.Summary) { s.Node.ImageFs = stats.Opt[stats.FsStats]{} },
	"containerfs": func(s *stats.Summary) { s.Node.ContainerFs = stats.Opt[stats.FsStats]{} },
	// The runtime says where images and writable layers lie.
	"runtime": func(s *stats.Summary) {
		s.Node.ImageFs, s.Node.ContainerFs = stats.Opt[stats.FsStats]{}, stats.Opt[stats.FsStats]{}
	},
	// The figures of all pods: their cgroups could not be listed.
	"pods": func(s *stats.Summary) { s.Pods = nil },
	// What pods take of the disks.
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

// view is a Summary as the decision core sees it, with what the agent (nil: none) knew beside it. A
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
		blinding(name)(&out)
	}
	// Without the kernel's estimate availableBytes is memory.available, whatever way the configuration
	// has.
	if m := &out.Node.Memory; !a.Recorded && !m.KernelAvailableBytes.OK && m.CapacityBytes.OK &&
		m.WorkingSetBytes.OK {
		m.KernelAvailableBytes = stats.Some(m.Available(stats.MemoryAvailableWorkingSet).Value)
	}
	return &out
}

// place finds out which volumes of a pod take memory, not disk: by its object, where there is one
// (inMemory is not nil); else one of another size than the node's file system is not on it.
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

// fromParts makes up what a Summary leaves out, as the kubelet does: a pod's memory is that of its
// containers (pkg/kubelet/stats). What it takes of the disk in all is not made up: the kubelet
// takes 0 where the Summary does not say (pkg/kubelet/eviction/eviction_manager.go
// podEphemeralStorageLimitEviction), and what is not known exceeds no limit.
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

// fill puts what is given over what was there.
func fill[T any](into *stats.Opt[T], p *T) {
	if p != nil {
		*into = stats.Some(*p)
	}
}

// addTo adds what the agent knew of the node.
func (a *Agent) addTo(n *stats.NodeStats) {
	n.Memory.KernelAvailableBytes, n.Memory.PerCPUFreeBytes = opt(a.MemAvailableBytes),
		opt(a.PerCPUFreeBytes)
	if a.Recorded || !n.Memory.CapacityBytes.OK {
		n.Memory.CapacityBytes = opt(a.MemTotalBytes)
	}
	fill(&n.Allocatable.LimitBytes, a.AllocatableLimitBytes)
	n.Allocatable.Unlimited = a.AllocatableUnlimited
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

// addTo adds what the agent knew of a pod.
func (e *AgentPod) addTo(p *stats.PodStats) {
	fill(&p.Threads, e.Threads)
	fill(&p.Processes, e.Processes)
	fill(&p.Memory.AnonBytes, e.AnonBytes)
	fill(&p.Memory.ShmemBytes, e.ShmemBytes)
	fill(&p.Memory.SwapBytes, e.SwapBytes)
	fill(&p.Memory.RefaultBytes, e.RefaultBytes)
	fill(&p.Memory.KernelBytes, e.KernelBytes)
	if e.EventsLocal != nil { // what the pod's own limit did counts among all that happened below it
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
	p.Memory.FreedBytes, p.MemoryRequest, p.CPURequestMillis = e.ReleasedBytes.known(),
		e.MemoryRequest.known(), e.CPURequestMillis.known()
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
	p.EphemeralStorage.Files, p.EphemeralStorage.ExitedLayers = e.Files.known(), e.ExitedLayers.known()
	if u := e.Unnamed; u != nil {
		p.EphemeralStorage.Unnamed = stats.UnnamedStats{Node: u.NodeFs.known(), Image: u.ImageFs.known(),
			Container: u.ContainerFs.known()}
	}
	if e.Logs != nil {
		p.EphemeralStorage.Logs = stats.Some(stats.FsUsage{UsedBytes: e.Logs.UsedBytes,
			InodesUsed: e.Logs.InodesUsed})
	}
}

func (u *Usage) known() stats.Opt[stats.FsUsage] {
	if u == nil {
		return stats.Opt[stats.FsUsage]{}
	}
	return stats.Some(stats.FsUsage{UsedBytes: u.UsedBytes, InodesUsed: u.InodesUsed})
}

func (r *Range) known() stats.Opt[stats.Range] {
	if r == nil {
		return stats.Opt[stats.Range]{}
	}
	return stats.Some(stats.Range(*r))
}

// addTo adds totals to pressure that the Summary does not have.
func (t *Totals) addTo(p *stats.Opt[stats.PSIStats]) {
	if t != nil && !p.OK {
		some, full := stats.PSIData{Total: time.Duration(t.Some)},
			stats.PSIData{Total: time.Duration(t.Full)}
		*p = stats.Some(stats.PSIStats{Some: some, Full: full, HasSome: true, HasFull: true})
	}
}
