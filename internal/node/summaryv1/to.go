package summaryv1

import (
	"math"
	"time"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/stats"
)

// To converts the API's Summary as far as it has the data. Absent values stay absent. The node's
// memory.available by the kubelet's formula is exactly availableBytes, with a capacity of
// availableBytes + workingSetBytes. As in the kubelet, it is absent if one of them is
// (pkg/kubelet/eviction/helpers.go makeSignalObservations). Every pod counts as announced. Volumes
// with a claim are omitted, because they do not use the node's disk. The caller must have checked
// the numbers (Check).
func To(s *v1alpha1.Summary) stats.Summary {
	out := stats.Summary{Pods: make([]stats.PodStats, len(s.Pods))}
	toNode(&s.Node, &out.Node)
	for i := range s.Pods {
		toPod(&s.Pods[i], &out.Pods[i])
	}
	return out
}

func opt(p *uint64) stats.Opt[uint64] {
	if p == nil {
		return stats.Opt[uint64]{}
	}
	return stats.Some(*p)
}

// unsigned converts a number; negative numbers become absent.
func unsigned(p *int64) stats.Opt[uint64] {
	if p == nil || *p < 0 {
		return stats.Opt[uint64]{}
	}
	return stats.Some(uint64(*p))
}

// sum returns the saturated sum; absent if one part is.
func sum(a, b *uint64) stats.Opt[uint64] {
	if a == nil || b == nil {
		return stats.Opt[uint64]{}
	}
	return stats.Some(stats.SaturatingAdd(*a, *b))
}

func toNode(n *v1alpha1.NodeStats, out *stats.NodeStats) {
	out.StartTime = n.StartTime.Time
	if m := n.Memory; m != nil {
		out.Memory = stats.NodeMemoryStats{
			Time: m.Time.Time, CapacityBytes: sum(m.AvailableBytes, m.WorkingSetBytes),
			WorkingSetBytes: opt(m.WorkingSetBytes),
			UsageBytes:      opt(m.UsageBytes), RSSBytes: opt(m.RSSBytes),
		}
		out.Pressure.Memory = stats.Pressure{Time: m.Time.Time, Stats: toPSI(m.PSI)}
	}
	if c := n.CPU; c != nil {
		out.CPU = toCPU(c)
		out.Pressure.CPU = stats.Pressure{Time: c.Time.Time, Stats: toPSI(c.PSI)}
	}
	if io := n.IO; io != nil {
		out.Pressure.IO = stats.Pressure{Time: io.Time.Time, Stats: toPSI(io.PSI)}
	}
	if r := n.Rlimit; r != nil {
		out.PIDs = stats.NodePIDStats{Time: r.Time.Time, Max: unsigned(r.MaxPID),
			Current: unsigned(r.NumOfRunningProcesses)}
	}
	if s := n.Swap; s != nil {
		total := sum(s.SwapUsageBytes, s.SwapAvailableBytes)
		out.Swap = stats.NodeSwapStats{Time: s.Time.Time, TotalBytes: total,
			FreeBytes: opt(s.SwapAvailableBytes)}
	}
	out.Fs = toFs(n.Fs)
	if r := n.Runtime; r != nil {
		out.ImageFs, out.ContainerFs = toFs(r.ImageFs), toFs(r.ContainerFs)
	}
	for i := range n.SystemContainers {
		if c := &n.SystemContainers[i]; c.Name == v1alpha1.SystemContainerPods && c.Memory != nil {
			out.Allocatable = stats.AllocatableMemoryStats{
				Time: c.Memory.Time.Time, LimitBytes: sum(c.Memory.AvailableBytes, c.Memory.WorkingSetBytes),
				WorkingSetBytes: opt(c.Memory.WorkingSetBytes),
			}
		}
	}
}

func toCPU(c *v1alpha1.CPUStats) stats.CPUStats {
	out := stats.CPUStats{Time: c.Time.Time, NanoCores: opt(c.UsageNanoCores)}
	if v := c.UsageCoreNanoSeconds; v != nil && *v <= math.MaxInt64 {
		out.Usage = stats.Some(time.Duration(*v))
	}
	return out
}

func toPSI(p *v1alpha1.PSIStats) stats.Opt[stats.PSIStats] {
	if p == nil {
		return stats.Opt[stats.PSIStats]{}
	}
	data := func(d v1alpha1.PSIData) stats.PSIData {
		return stats.PSIData{Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300,
			Total: time.Duration(min(d.Total, math.MaxInt64))}
	}
	return stats.Some(stats.PSIStats{Some: data(p.Some), Full: data(p.Full), HasSome: true,
		HasFull: true})
}

func toFs(f *v1alpha1.FsStats) stats.Opt[stats.FsStats] {
	if f == nil {
		return stats.Opt[stats.FsStats]{}
	}
	return stats.Some(stats.FsStats{
		Time: f.Time.Time, AvailableBytes: opt(f.AvailableBytes), CapacityBytes: opt(f.CapacityBytes),
		UsedBytes:  opt(f.UsedBytes),
		InodesFree: opt(f.InodesFree), Inodes: opt(f.Inodes), InodesUsed: opt(f.InodesUsed),
	})
}

// toUsage returns the usage of a part of a pod; absent if neither bytes nor inodes are known. If
// one is known, the other counts as 0, as in the kubelet (pkg/kubelet/eviction/helpers.go
// diskUsage, inodeUsage).
func toUsage(f *v1alpha1.FsStats) stats.Opt[stats.FsUsage] {
	if f == nil || f.UsedBytes == nil && f.InodesUsed == nil {
		return stats.Opt[stats.FsUsage]{}
	}
	return stats.Some(stats.FsUsage{Time: f.Time.Time, UsedBytes: opt(f.UsedBytes).V,
		InodesUsed: opt(f.InodesUsed).V})
}

func toPod(p *v1alpha1.PodStats, out *stats.PodStats) {
	out.PodRef = stats.PodReference{Name: p.PodRef.Name, Namespace: p.PodRef.Namespace,
		UID: p.PodRef.UID}
	out.StartTime, out.Announced = p.StartTime.Time, true
	if m := p.Memory; m != nil {
		out.Memory = stats.PodMemoryStats{
			Time: m.Time.Time, UsageBytes: opt(m.UsageBytes), WorkingSetBytes: opt(m.WorkingSetBytes),
			AnonBytes:  opt(m.RSSBytes),
			PageFaults: opt(m.PageFaults), MajorPageFaults: opt(m.MajorPageFaults),
			LimitBytes: sum(m.AvailableBytes, m.WorkingSetBytes),
		}
		out.MemoryPressure = toPSI(m.PSI)
	}
	if s := p.Swap; s != nil {
		out.Memory.SwapBytes = opt(s.SwapUsageBytes)
	}
	if c := p.CPU; c != nil {
		out.CPU, out.CPUPressure = toCPU(c), toPSI(c.PSI)
	}
	if io := p.IO; io != nil {
		out.IOPressure = toPSI(io.PSI)
	}
	if s := p.ProcessStats; s != nil {
		out.Processes = opt(s.ProcessCount)
	}
	if e := p.EphemeralStorage; e != nil {
		out.EphemeralStorage = stats.PodStorageStats{Time: e.Time.Time, UsedBytes: opt(e.UsedBytes),
			InodesUsed: opt(e.InodesUsed)}
	}
	for i := range p.VolumeStats {
		v := &p.VolumeStats[i]
		if u := toUsage(&v.FsStats); u.OK && v.PVCRef == nil {
			out.EphemeralStorage.Volumes = append(out.EphemeralStorage.Volumes,
				stats.VolumeStats{Name: v.Name, FsUsage: u.V})
		}
	}
	if p.Network != nil {
		out.Network = stats.Some(toNetwork(p.Network))
	}
	if len(p.Containers) > 0 {
		out.Containers = make([]stats.ContainerStats, len(p.Containers))
	}
	for i := range p.Containers {
		toContainer(&p.Containers[i], &out.Containers[i])
	}
}

func toContainer(c *v1alpha1.ContainerStats, out *stats.ContainerStats) {
	out.Name, out.StartTime = c.Name, c.StartTime.Time
	if c.CPU != nil {
		out.CPU = toCPU(c.CPU)
	}
	if m := c.Memory; m != nil {
		out.Memory = stats.ContainerMemoryStats{
			Time: m.Time.Time, UsageBytes: opt(m.UsageBytes), WorkingSetBytes: opt(m.WorkingSetBytes),
			AnonBytes:  opt(m.RSSBytes),
			PageFaults: opt(m.PageFaults), MajorPageFaults: opt(m.MajorPageFaults),
			LimitBytes: sum(m.AvailableBytes, m.WorkingSetBytes),
		}
	}
	if c.Swap != nil {
		out.Memory.SwapBytes, out.Memory.SwapLimitBytes = opt(c.Swap.SwapUsageBytes),
			sum(c.Swap.SwapAvailableBytes, c.Swap.SwapUsageBytes)
	}
	out.Rootfs, out.Logs = toUsage(c.Rootfs), toUsage(c.Logs)
}

func toNetwork(n *v1alpha1.NetworkStats) stats.NetworkStats {
	out := stats.NetworkStats{Time: n.Time.Time}
	all := n.Interfaces
	if len(all) == 0 && n.Name != "" {
		all = []v1alpha1.InterfaceStats{n.InterfaceStats}
	}
	for _, i := range all {
		out.Interfaces = append(out.Interfaces, stats.InterfaceStats{
			Name: i.Name, RxBytes: opt(i.RxBytes).V, RxErrors: opt(i.RxErrors).V, TxBytes: opt(i.TxBytes).V,
			TxErrors: opt(i.TxErrors).V,
		})
	}
	return out
}
