package stats

import "time"

// Opt is a value that may be absent. Absent is not zero: a source that failed leaves OK false.
type Opt[T any] struct {
	V  T
	OK bool
}

// Some is a value that is there.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, OK: true} }

// Range is a figure that is known to lie between two bounds; they are equal where the source is
// exact.
type Range struct{ Min, Max uint64 }

// Exactly is a figure known without error.
func Exactly(v uint64) Range { return Range{v, v} }

// Add sums two figures, bound by bound.
func (r Range) Add(o Range) Range { return Range{Min: r.Min + o.Min, Max: r.Max + o.Max} }

// Summary is one look at a node. Each part has the time it was read at: sources are read at their
// own pace.
type Summary struct {
	Time    time.Time
	Node    NodeStats
	Pods    []PodStats
	Sources []SourceStatus // those that may fail or hang on their own
	// Remains are the UIDs of pods that are not in Pods and whose directories are there still: what
	// they held of a disk may be, too.
	Remains []string
}

// NodeStats covers the whole machine.
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

// NodeMemoryStats in bytes.
type NodeMemoryStats struct {
	Time          time.Time
	CapacityBytes Opt[uint64] // MemTotal
	// WorkingSetBytes is anon + file - inactive_file of the root cgroup's memory.stat, as the kubelet
	// has it on cgroup v2 (opencontainers/cgroups fs2/memory.go, rootStatsFromMeminfo). It knows no
	// kernel memory.
	WorkingSetBytes Opt[uint64]
	UsageBytes      Opt[uint64] // anon + file, likewise
	RSSBytes        Opt[uint64] // anon
	// shmem, likewise: tmpfs and shared memory of the whole node, whichever cgroup they are charged to
	ShmemBytes Opt[uint64]
	// KernelAvailableBytes is the kernel's own estimate, MemAvailable.
	KernelAvailableBytes Opt[uint64]
	// PerCPUFreeBytes is free memory that MemAvailable does not count, see ParseZoneInfo. The cheap
	// look leaves it absent.
	PerCPUFreeBytes Opt[uint64]
}

// AllocatableMemoryStats in bytes: of the cgroup above all pods. All absent where it has no limit.
type AllocatableMemoryStats struct {
	Time            time.Time
	LimitBytes      Opt[uint64] // memory.max
	WorkingSetBytes Opt[uint64] // memory.current - inactive_file, floor 0
	Unlimited       bool        // memory.max says so
}

// PodsTotal is what all pods use together, by the cgroup above them; absent where that is not
// there.
type PodsTotal struct {
	Time            time.Time
	WorkingSetBytes Opt[uint64] // memory.current - inactive_file, floor 0
	SwapBytes       Opt[uint64] // memory.swap.current
	Tasks           Opt[uint64] // pids.current
}

// NodeSwapStats in bytes, from /proc/meminfo. A node without swap has a total of 0.
type NodeSwapStats struct {
	Time       time.Time
	TotalBytes Opt[uint64]
	FreeBytes  Opt[uint64]
}

// CPUStats is CPU time used since the cgroup was made.
type CPUStats struct {
	Time  time.Time
	Usage Opt[time.Duration]
	// NanoCores is the usage per second between this look and the one before, in billionths of a core.
	NanoCores Opt[uint64]
}

// NodePressure is pressure stall information of the whole node.
type NodePressure struct{ CPU, Memory, IO Pressure }

// Pressure is one resource's: the kernel's averages and totals, and the share of time stalled over
// the windows that this process has watched. The averages are up to 2 s old, the totals are fresh
// on every read (kernel/sched/psi.c).
type Pressure struct {
	Time  time.Time
	Stats Opt[PSIStats]
	Some  StallShare
	Full  StallShare
}

// StallShare is the share of time stalled, 0 to 1; absent until the window has been watched.
type StallShare struct{ Over1s, Over10s Opt[float64] }

// NodePIDStats counts tasks, which are threads: pid_max bounds those.
type NodePIDStats struct {
	Time    time.Time
	Max     Opt[uint64] // the lower of kernel.pid_max and kernel.threads-max
	Current Opt[uint64]
}

// PodReference names a pod. Name and Namespace are empty for a pod that the runtime has not
// announced.
type PodReference struct {
	Name      string
	Namespace string
	UID       string
}

// PodStats is one pod. What the memory view reads comes first; what only the full look reads is
// absent after it.
type PodStats struct {
	PodRef     PodReference
	Cgroup     string   // path below the root of the hierarchy; empty: none was found
	CgroupID   CgroupID // identity of the cgroup that was read; zero: none was
	QOSClass   QOSClass
	SandboxIDs []string // of the runtime, newest first
	StartTime  time.Time
	// Announced is true once the runtime has told of the pod; what follows it is unknown until then.
	Announced   bool
	Annotations map[string]string
	Populated   Opt[bool] // the pod has a live process: cgroup.events
	Memory      PodMemoryStats
	// Events since the cgroup was made: memory.events, of the pod and all below it.
	Events  Opt[MemoryEvents]
	Threads Opt[uint64] // tasks: pids.current
	// MemoryPressure is the pod's own.
	MemoryPressure Opt[PSIStats]
	// MemoryRequest lies between these bounds; the upper one is the node's memory where containers may
	// be still to come.
	MemoryRequest Opt[Range]
	// StatusRefused: the runtime's status of the pod is larger than is taken of one. What of its
	// request is unknown, is so by the pod's own doing.
	StatusRefused bool
	// Self: this process runs in the pod.
	Self bool
	// NodeCritical: an oom_score_adj of -997 outside the Guaranteed class, which only
	// system-node-critical pods get.
	NodeCritical bool

	// Of the full look.
	Containers  []ContainerStats
	CPU         CPUStats
	IO          Opt[IOStat]
	CPUPressure Opt[PSIStats]
	IOPressure  Opt[PSIStats]
	// memory.events.local: of the pod's cgroup itself, so of its own limit
	LocalEvents      Opt[MemoryEvents]
	Processes        Opt[uint64] // lines of cgroup.procs, all levels
	Restarts         Opt[uint64] // of all containers, those that are dead now included
	CPURequestMillis Opt[Range]
	EphemeralStorage PodStorageStats
	Network          Opt[NetworkStats]
}

// PodMemoryStats in bytes, from the pod's cgroup.
type PodMemoryStats struct {
	Time       time.Time
	UsageBytes Opt[uint64] // memory.current
	// memory.current - inactive_file, floor 0; Quick: memory.current, which it is not above
	WorkingSetBytes Opt[uint64]
	AnonBytes       Opt[uint64]
	ShmemBytes      Opt[uint64] // tmpfs and shared memory
	// memory.max; absent: none, or not read (the memory view reads a Guaranteed pod's only)
	LimitBytes Opt[uint64]
	// Quick: of all that, only usage and a Guaranteed pod's limit were read (Reader.Quick).
	Quick bool

	// Of the full look.
	SwapBytes       Opt[uint64]
	PageFaults      Opt[uint64]
	MajorPageFaults Opt[uint64]
	RefaultBytes    Opt[uint64] // what was reclaimed and read in again, since the cgroup was made
	// KernelBytes is what the kernel keeps for its processes and cannot take back: sockets, pipes,
	// page tables; not dentries and inodes. Killing them returns most of it. Absent before v5.18.
	KernelBytes Opt[uint64]
	// FreedBytes is what killing every process of the pod would return: anonymous memory, page tables
	// and kernel stacks for sure; shared memory only as far as no tmpfs holds it, which outlives the
	// processes. Page cache stays: what is inactive was available before, the rest is dropped after
	// them (internal/node/kill DropCache).
	FreedBytes Opt[Range]
}

// ContainerStats is one container.
type ContainerStats struct {
	Name string // empty: the runtime has not told
	ID   string
	// when it was created, as the kubelet has it (pkg/kubelet/stats/cri_stats_provider.go, v1.36.3)
	StartTime time.Time
	CPU       CPUStats
	Memory    ContainerMemoryStats
	Rootfs    Opt[FsUsage] // writable layer
	Logs      Opt[FsUsage]
	Processes Opt[uint64]
}

// ContainerMemoryStats in bytes, from the container's cgroup.
type ContainerMemoryStats struct {
	Time            time.Time
	UsageBytes      Opt[uint64]
	WorkingSetBytes Opt[uint64]
	AnonBytes       Opt[uint64]
	SwapBytes       Opt[uint64]
	PageFaults      Opt[uint64]
	MajorPageFaults Opt[uint64]
	LimitBytes      Opt[uint64] // memory.max; absent: none
	SwapLimitBytes  Opt[uint64] // memory.swap.max; absent: none
}
