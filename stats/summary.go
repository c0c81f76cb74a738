package stats

import "time"

// Opt is a value that may be absent. Absent is not zero: a source that failed leaves OK false.
type Opt[T any] struct {
	V  T
	OK bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, OK: true} }

// Range is a value between two bounds, which are equal if the value is known exactly.
type Range struct{ Min, Max uint64 }

// ExactRange returns the Range of a value that is known exactly.
func ExactRange(v uint64) Range { return Range{v, v} }

// Add adds two ranges, bound by bound.
func (r Range) Add(o Range) Range { return Range{Min: r.Min + o.Min, Max: r.Max + o.Max} }

// Summary is one look at a node. Each part has the time of its reading, because sources are
// read at different rates.
type Summary struct {
	Time    time.Time
	Node    NodeStats
	Pods    []PodStats
	Sources []SourceStatus // sources that may fail or hang independently
	// RemainingDirs lists the UIDs of pods that are not in Pods but still have directories, because
	// their files may still use a disk.
	RemainingDirs []string
}

// NodeStats describes the whole machine.
type NodeStats struct {
	StartTime   time.Time // boot
	Memory      NodeMemoryStats
	Allocatable AllocatableMemoryStats
	Pods        PodsTotal
	Swap        NodeSwapStats
	CPU         CPUStats
	CPUs        int
	Pressure    NodePressure
	PIDs        NodePIDStats
	Fs          Opt[FsStats] // of the kubelet's root directory
	ImageFs     Opt[FsStats]
	ContainerFs Opt[FsStats]
	Layout      Opt[Layout]
}

// NodeMemoryStats is the node's memory in bytes.
type NodeMemoryStats struct {
	Time          time.Time
	CapacityBytes Opt[uint64] // MemTotal
	// HugePagesBytes are the node's huge pages, used or not; absent: none are known. They are part
	// of CapacityBytes, and of no figure below.
	HugePagesBytes Opt[uint64]
	// WorkingSetBytes is anon + file - inactive_file of the root cgroup's memory.stat, as the kubelet
	// computes it on cgroup v2 (opencontainers/cgroups fs2/memory.go, rootStatsFromMeminfo). Kernel
	// memory is not included.
	WorkingSetBytes Opt[uint64]
	UsageBytes      Opt[uint64] // anon + file of the same memory.stat
	RSSBytes        Opt[uint64] // anon
	// shmem of the same memory.stat: tmpfs and shared memory of the whole node, whichever
	// cgroup they are charged to
	ShmemBytes Opt[uint64]
	// KernelAvailableBytes is the kernel's own estimate, MemAvailable.
	KernelAvailableBytes Opt[uint64]
	// PerCPUFreeBytes is free memory that MemAvailable does not count, see ParseZoneInfo. The
	// cheap look leaves it absent.
	PerCPUFreeBytes Opt[uint64]
	// ShrinkableBytes is memory that the kernel takes back when memory is short and that MemAvailable
	// does not count: ZFS' cache (see procfs.ParseARCStats).
	ShrinkableBytes Opt[uint64]
}

// Ordinary returns the capacity without huge pages, which ordinary memory cannot use.
func (m *NodeMemoryStats) Ordinary() Opt[uint64] {
	o := m.CapacityBytes
	o.V -= min(m.HugePagesBytes.V, o.V)
	return o
}

// AllocatableMemoryStats, in bytes, is the memory of the cgroup above all pods. All values are
// absent if the cgroup has no limit.
type AllocatableMemoryStats struct {
	Time            time.Time
	LimitBytes      Opt[uint64] // memory.max
	WorkingSetBytes Opt[uint64] // memory.current - inactive_file, floor 0
	Unlimited       bool        // memory.max is "max"
}

// PodsTotal is the usage of all pods together, read from the cgroup above them; absent if that
// cgroup does not exist.
type PodsTotal struct {
	Time            time.Time
	WorkingSetBytes Opt[uint64] // memory.current - inactive_file, floor 0
	SwapBytes       Opt[uint64] // memory.swap.current
	Tasks           Opt[uint64] // pids.current
}

// NodeSwapStats is the node's swap in bytes, from /proc/meminfo. A node without swap has a
// total of 0.
type NodeSwapStats struct {
	Time       time.Time
	TotalBytes Opt[uint64]
	FreeBytes  Opt[uint64]
}

// CPUStats is the CPU time used since the cgroup was created.
type CPUStats struct {
	Time  time.Time
	Usage Opt[time.Duration]
	// NanoCores is the usage per second between the previous look and this one, in billionths
	// of a core.
	NanoCores Opt[uint64]
}

// NodePressure is the pressure stall information of the whole node.
type NodePressure struct{ CPU, Memory, IO Pressure }

// Pressure is the pressure of one resource: the kernel's averages and totals, and the share of
// time stalled over the windows that this process has observed. The averages are up to 2 s old;
// the totals are computed on every read (kernel/sched/psi.c).
type Pressure struct {
	Time  time.Time
	Stats Opt[PSIStats]
	Some  StallShare
	Full  StallShare
}

// StallShare is the share of time stalled, 0 to 1; absent until the window has been observed in
// full.
type StallShare struct{ Over1s, Over10s Opt[float64] }

// NodePIDStats counts tasks, which are threads, because pid_max limits threads.
type NodePIDStats struct {
	Time    time.Time
	Max     Opt[uint64] // the lower of kernel.pid_max and kernel.threads-max
	Current Opt[uint64]
	// pids.max and pids.current of the cgroup above all pods; absent without a limit
	PodsMax     Opt[uint64]
	PodsCurrent Opt[uint64]
}

// available returns what is left of the node's limit, or of the pods' lower limit if that is less:
// pods cannot fork at their limit, whatever the node has left. The capacity is the node's.
func (p *NodePIDStats) available() Observation {
	o := available(p.Time, p.Max, p.Current, "loadavg, pid_max or threads-max could not be read")
	if p.PodsMax.OK && p.PodsCurrent.OK && p.PodsMax.V < p.Max.V {
		o.Value = min(o.Value, p.PodsMax.V-min(p.PodsCurrent.V, p.PodsMax.V))
	}
	return o
}

// PodReference names a pod. Name and Namespace are empty for a pod that the runtime has not
// reported.
type PodReference struct {
	Name      string
	Namespace string
	UID       string
}

// PodStats describes one pod. The fields that the memory view reads come first; the fields of
// the full look are absent after a memory view.
type PodStats struct {
	PodRef   PodReference
	Cgroup   string   // path below the root of the hierarchy; empty: not found
	CgroupID CgroupID // identity of the cgroup that was read; zero: none
	// Outside are the running containers outside Cgroup. The values below include them.
	Outside    []OutsideContainer
	QOSClass   QOSClass
	SandboxIDs []string // of the runtime, newest first
	StartTime  time.Time
	// Announced is true once the runtime has reported the pod; until then the fields below are
	// unknown.
	Announced   bool
	Annotations map[string]string
	// Populated: the pod has a live process, by cgroup.events, or by the runtime if that cgroup has
	// none and where the pod's processes run is unknown.
	Populated Opt[bool]
	Memory    PodMemoryStats
	// Events are the counters of memory.events, of the pod and its descendants, since the
	// cgroup was created.
	Events  Opt[MemoryEvents]
	Threads Opt[uint64] // tasks: pids.current
	// MemoryPressure is memory.pressure of the pod's cgroup.
	MemoryPressure Opt[PSIStats]
	// MemoryRequest holds bounds of the pod's memory request. The upper bound is the node's memory if
	// more containers may still start.
	MemoryRequest Opt[Range]
	// StatusRefused: the runtime's status of the pod exceeds the size limit. The pod itself then
	// caused unknown parts of its request.
	StatusRefused bool
	// Self is true for the pod that this process runs in.
	Self bool
	// NodeCritical: an oom_score_adj of -997 outside the Guaranteed class, which only
	// system-node-critical pods get.
	NodeCritical bool

	// Read by the full look only.
	Containers  []ContainerStats
	CPU         CPUStats
	IO          Opt[IOStat]
	Written     WrittenStats
	CPUPressure Opt[PSIStats]
	IOPressure  Opt[PSIStats]
	// LocalEvents are the counters of memory.events.local: the pod's cgroup itself, so its own
	// limit.
	LocalEvents      Opt[MemoryEvents]
	Processes        Opt[uint64] // lines of cgroup.procs, of the pod's cgroup and its descendants
	Restarts         Opt[uint64] // of all containers, including dead ones
	CPURequestMillis Opt[Range]
	EphemeralStorage PodStorageStats
	Network          Opt[NetworkStats]
}

// PodMemoryStats is a pod's memory in bytes, from its cgroup.
type PodMemoryStats struct {
	Time       time.Time
	UsageBytes Opt[uint64] // memory.current
	// memory.current - inactive_file, floor 0; with Quick: memory.current, an upper bound
	WorkingSetBytes Opt[uint64]
	AnonBytes       Opt[uint64]
	ShmemBytes      Opt[uint64] // tmpfs and shared memory
	// memory.max; absent: unlimited or not read (the memory view reads a Guaranteed pod's only)
	LimitBytes Opt[uint64]
	// Quick: of the fields above, only usage and a Guaranteed pod's limit were read
	// (Reader.Quick).
	Quick bool

	// Read by the full look only.
	SwapBytes       Opt[uint64]
	PageFaults      Opt[uint64]
	MajorPageFaults Opt[uint64]
	RefaultBytes    Opt[uint64] // reclaimed and read in again since the cgroup was created
	// KernelBytes is memory that the kernel holds for the pod's processes and cannot reclaim:
	// sockets, pipes, page tables; not dentries and inodes. Killing the processes frees most of
	// it. Absent before v5.18.
	KernelBytes Opt[uint64]
	// FreedBytes is the memory that killing every process of the pod would free: anonymous memory,
	// page tables and kernel stacks are freed for certain. Shared memory is freed only if no tmpfs
	// holds it, because a tmpfs outlives the processes. Page cache is excluded: the inactive part was
	// available before, and the rest is dropped after the kill (internal/node/kill DropCache).
	FreedBytes Opt[Range]
}

// ContainerStats describes one container.
type ContainerStats struct {
	Name string // empty: not reported by the runtime
	ID   string
	// creation time, as the kubelet uses it (pkg/kubelet/stats/cri_stats_provider.go, v1.37.2)
	StartTime time.Time
	CPU       CPUStats
	Memory    ContainerMemoryStats
	Rootfs    Opt[FsUsage] // writable layer
	Logs      Opt[FsUsage]
	Processes Opt[uint64]
}

// ContainerMemoryStats is a container's memory in bytes, from its cgroup.
type ContainerMemoryStats struct {
	Time            time.Time
	UsageBytes      Opt[uint64]
	WorkingSetBytes Opt[uint64]
	AnonBytes       Opt[uint64]
	SwapBytes       Opt[uint64]
	PageFaults      Opt[uint64]
	MajorPageFaults Opt[uint64]
	LimitBytes      Opt[uint64] // memory.max; absent: unlimited
	SwapLimitBytes  Opt[uint64] // memory.swap.max; absent: unlimited
}
