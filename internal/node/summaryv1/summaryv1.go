// Package summaryv1 converts a stats.Summary to the kubelet's Summary API (k8s.io/kubelet
// pkg/apis/stats/v1alpha1) and back. Absent values stay absent.
//
//	summaryv1.go  From: converts to the API's Summary
//	to.go         To: converts from the API's Summary
//	check.go      Check: finds implausible numbers in the API's Summary
package summaryv1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/stats"
)

// From converts a Summary to the API's.
func From(s *stats.Summary, nodeName string) v1alpha1.Summary {
	out := v1alpha1.Summary{Node: node(&s.Node, nodeName), Pods: make([]v1alpha1.PodStats, 0,
		len(s.Pods))}
	for i := range s.Pods {
		out.Pods = append(out.Pods, pod(&s.Pods[i], &s.Node))
	}
	return out
}

func ptr(v stats.Opt[uint64]) *uint64 {
	if !v.OK {
		return nil
	}
	return &v.V
}

func signed(v stats.Opt[uint64]) *int64 {
	if !v.OK {
		return nil
	}
	i := int64(v.V)
	return &i
}

func node(n *stats.NodeStats, name string) v1alpha1.NodeStats {
	at := metav1.NewTime(n.Memory.Time)
	out := v1alpha1.NodeStats{
		NodeName: name, StartTime: metav1.NewTime(n.StartTime), CPU: cpu(n.CPU, n.Pressure.CPU.Stats),
		Fs: fs(n.Fs),
		Memory: &v1alpha1.MemoryStats{
			Time: at, UsageBytes: ptr(n.Memory.UsageBytes), WorkingSetBytes: ptr(n.Memory.WorkingSetBytes),
			RSSBytes: ptr(n.Memory.RSSBytes),
			PSI:      psi(n.Pressure.Memory.Stats),
		},
		IO:      &v1alpha1.IOStats{Time: at, PSI: psi(n.Pressure.IO.Stats)},
		Runtime: &v1alpha1.RuntimeStats{ImageFs: fs(n.ImageFs), ContainerFs: fs(n.ContainerFs)},
		Rlimit: &v1alpha1.RlimitStats{
			Time: metav1.NewTime(n.PIDs.Time), MaxPID: signed(n.PIDs.Max),
			NumOfRunningProcesses: signed(n.PIDs.Current),
		},
	}
	// the API's definition, independent of the configured memoryAvailable
	if o := n.Memory.Available(stats.MemoryAvailableWorkingSet); o.OK {
		out.Memory.AvailableBytes = &o.Value
	}
	if t, f := n.Swap.TotalBytes, n.Swap.FreeBytes; t.OK && f.OK {
		out.Swap = swap(n.Swap.Time, stats.Some(t.V-min(f.V, t.V)), f)
	}
	if a := n.Allocatable; a.LimitBytes.OK && a.WorkingSetBytes.OK {
		left := a.LimitBytes.V - min(a.WorkingSetBytes.V, a.LimitBytes.V)
		out.SystemContainers = []v1alpha1.ContainerStats{{
			Name: v1alpha1.SystemContainerPods,
			Memory: &v1alpha1.MemoryStats{Time: metav1.NewTime(a.Time), AvailableBytes: &left,
				WorkingSetBytes: ptr(a.WorkingSetBytes)},
		}}
	}
	return out
}

func cpu(c stats.CPUStats, pressure stats.Opt[stats.PSIStats]) *v1alpha1.CPUStats {
	if !c.Usage.OK && !pressure.OK {
		return nil
	}
	used := stats.Opt[uint64]{V: uint64(c.Usage.V.Nanoseconds()), OK: c.Usage.OK}
	return &v1alpha1.CPUStats{
		Time: metav1.NewTime(c.Time), UsageNanoCores: ptr(c.NanoCores), UsageCoreNanoSeconds: ptr(used),
		PSI: psi(pressure),
	}
}

func psi(p stats.Opt[stats.PSIStats]) *v1alpha1.PSIStats {
	if !p.OK {
		return nil
	}
	data := func(d stats.PSIData) v1alpha1.PSIData {
		return v1alpha1.PSIData{Total: uint64(d.Total.Nanoseconds()), Avg10: d.Avg10, Avg60: d.Avg60,
			Avg300: d.Avg300}
	}
	return &v1alpha1.PSIStats{Full: data(p.V.Full), Some: data(p.V.Some)}
}

func fs(f stats.Opt[stats.FsStats]) *v1alpha1.FsStats {
	if !f.OK {
		return nil
	}
	v := f.V
	return &v1alpha1.FsStats{
		Time: metav1.NewTime(v.Time), AvailableBytes: ptr(v.AvailableBytes),
		CapacityBytes: ptr(v.CapacityBytes), UsedBytes: ptr(v.UsedBytes),
		InodesFree: ptr(v.InodesFree), Inodes: ptr(v.Inodes), InodesUsed: ptr(v.InodesUsed),
	}
}

func swap(at time.Time, used, free stats.Opt[uint64]) *v1alpha1.SwapStats {
	if !used.OK {
		return nil
	}
	return &v1alpha1.SwapStats{Time: metav1.NewTime(at), SwapUsageBytes: ptr(used),
		SwapAvailableBytes: ptr(free)}
}

// left returns the unused part of a limit; absent if there is no limit or usage is unknown.
func left(limit, used stats.Opt[uint64]) stats.Opt[uint64] {
	return stats.Opt[uint64]{V: limit.V - min(limit.V, used.V), OK: limit.OK && used.OK}
}

func pod(p *stats.PodStats, n *stats.NodeStats) v1alpha1.PodStats {
	m := p.Memory
	out := v1alpha1.PodStats{
		PodRef: v1alpha1.PodReference{Name: p.PodRef.Name, Namespace: p.PodRef.Namespace,
			UID: p.PodRef.UID},
		StartTime: metav1.NewTime(p.StartTime), Containers: make([]v1alpha1.ContainerStats, 0,
			len(p.Containers)),
		CPU: cpu(p.CPU, p.CPUPressure), Swap: swap(m.Time, m.SwapBytes, stats.Opt[uint64]{}),
		IO: &v1alpha1.IOStats{Time: metav1.NewTime(m.Time), PSI: psi(p.IOPressure)},
		Memory: memory(stats.ContainerMemoryStats{
			Time: m.Time, UsageBytes: m.UsageBytes, WorkingSetBytes: m.WorkingSetBytes,
			AnonBytes:  m.AnonBytes,
			PageFaults: m.PageFaults, MajorPageFaults: m.MajorPageFaults, LimitBytes: m.LimitBytes,
		}, p.MemoryPressure),
	}
	if n, ok := processes(p); ok {
		out.ProcessStats = &v1alpha1.ProcessStats{ProcessCount: &n}
	}
	if e := p.EphemeralStorage; e.UsedBytes.OK {
		out.EphemeralStorage = onFs(e.Time, e.UsedBytes, e.InodesUsed, n.Fs)
	}
	for _, v := range p.EphemeralStorage.Volumes {
		used := onFs(v.Time, stats.Some(v.UsedBytes), stats.Some(v.InodesUsed), n.Fs)
		if v.Memory { // not on the node's file system
			used = &v1alpha1.FsStats{Time: metav1.NewTime(v.Time), UsedBytes: &v.UsedBytes,
				InodesUsed: &v.InodesUsed}
		}
		out.VolumeStats = append(out.VolumeStats, v1alpha1.VolumeStats{Name: v.Name, FsStats: *used})
	}
	if p.Network.OK {
		out.Network = network(p.Network.V)
	}
	for i := range p.Containers {
		out.Containers = append(out.Containers, container(&p.Containers[i], n))
	}
	return out
}

// processes returns the number of the containers' processes: the API excludes the sandbox's.
func processes(p *stats.PodStats) (n uint64, ok bool) {
	for _, c := range p.Containers {
		if !c.Processes.OK {
			return 0, false
		}
		n += c.Processes.V
	}
	return n, p.Processes.OK
}

// onFs returns the usage of a part of a file system, with the capacity and free space of the whole.
func onFs(at time.Time, used, inodes stats.Opt[uint64],
	whole stats.Opt[stats.FsStats]) *v1alpha1.FsStats {
	out := &v1alpha1.FsStats{Time: metav1.NewTime(at), UsedBytes: ptr(used), InodesUsed: ptr(inodes)}
	if whole.OK {
		out.AvailableBytes, out.CapacityBytes = ptr(whole.V.AvailableBytes), ptr(whole.V.CapacityBytes)
		out.InodesFree, out.Inodes = ptr(whole.V.InodesFree), ptr(whole.V.Inodes)
	}
	return out
}

func memory(m stats.ContainerMemoryStats,
	pressure stats.Opt[stats.PSIStats]) *v1alpha1.MemoryStats {
	out := &v1alpha1.MemoryStats{
		Time: metav1.NewTime(m.Time), UsageBytes: ptr(m.UsageBytes),
		WorkingSetBytes: ptr(m.WorkingSetBytes), RSSBytes: ptr(m.AnonBytes),
		PageFaults: ptr(m.PageFaults), MajorPageFaults: ptr(m.MajorPageFaults), PSI: psi(pressure),
	}
	if m.LimitBytes.OK && m.WorkingSetBytes.OK {
		left := m.LimitBytes.V - min(m.WorkingSetBytes.V, m.LimitBytes.V)
		out.AvailableBytes = &left
	}
	return out
}

func network(n stats.NetworkStats) *v1alpha1.NetworkStats {
	out := &v1alpha1.NetworkStats{Time: metav1.NewTime(n.Time)}
	for _, i := range n.Interfaces {
		out.Interfaces = append(out.Interfaces, networkInterface(i))
	}
	if i, ok := n.Default(); ok {
		out.InterfaceStats = networkInterface(i)
	}
	return out
}

func networkInterface(i stats.InterfaceStats) v1alpha1.InterfaceStats {
	return v1alpha1.InterfaceStats{Name: i.Name, RxBytes: &i.RxBytes, RxErrors: &i.RxErrors,
		TxBytes: &i.TxBytes, TxErrors: &i.TxErrors}
}

func container(c *stats.ContainerStats, n *stats.NodeStats) v1alpha1.ContainerStats {
	m := c.Memory
	out := v1alpha1.ContainerStats{
		Name: c.Name, StartTime: metav1.NewTime(c.StartTime),
		CPU:    cpu(c.CPU, stats.Opt[stats.PSIStats]{}),
		Memory: memory(m, stats.Opt[stats.PSIStats]{}),
		Swap:   swap(m.Time, m.SwapBytes, left(m.SwapLimitBytes, m.SwapBytes)),
	}
	if out.Name == "" { // not reported by the runtime yet: use the ID in its cgroup's name
		out.Name = c.ID
	}
	if c.Rootfs.OK {
		out.Rootfs = onFs(c.Rootfs.V.Time, stats.Some(c.Rootfs.V.UsedBytes),
			stats.Some(c.Rootfs.V.InodesUsed), n.ContainerFs)
	}
	if c.Logs.OK {
		out.Logs = onFs(c.Logs.V.Time, stats.Some(c.Logs.V.UsedBytes), stats.Some(c.Logs.V.InodesUsed),
			n.Fs)
	}
	return out
}
