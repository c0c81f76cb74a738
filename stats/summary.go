package stats

import (
	"time"

	"jettison/cgroup"
)

// Opt is a value that may be absent. Absent is not zero: a source that failed leaves OK false.
type Opt[T any] struct {
	V  T
	OK bool
}

// Some is a value that is there.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, OK: true} }

// Summary is one look at a node.
type Summary struct {
	Time time.Time
	Node NodeStats
	Pods []PodStats
}

// NodeStats covers the whole machine.
type NodeStats struct {
	Memory NodeMemoryStats
}

// NodeMemoryStats in bytes.
type NodeMemoryStats struct {
	Time          time.Time
	CapacityBytes Opt[uint64] // MemTotal
	// WorkingSetBytes is anon + file - inactive_file of the root cgroup's memory.stat, as the kubelet has it on cgroup v2
	// (opencontainers/cgroups fs2/memory.go, rootStatsFromMeminfo). It knows no kernel memory.
	WorkingSetBytes Opt[uint64]
	// KernelAvailableBytes is the kernel's own estimate, MemAvailable.
	KernelAvailableBytes Opt[uint64]
	// PerCPUFreeBytes is free memory that MemAvailable does not count, see ParseZoneInfo. The cheap look leaves it absent.
	PerCPUFreeBytes Opt[uint64]
}

// PodReference names a pod. Name and Namespace are empty for a pod that the runtime has not announced.
type PodReference struct {
	Name      string
	Namespace string
	UID       string
}

// PodStats is one pod.
type PodStats struct {
	PodRef     PodReference
	Cgroup     string    // path below the root of the hierarchy; empty: none was found
	CgroupID   cgroup.ID // identity of the cgroup that was read; zero: none was
	QOSClass   QOSClass
	SandboxIDs []string // of the runtime, newest first
	StartTime  time.Time
	// Announced is true once the runtime has told of the pod; what follows it is unknown until then.
	Announced   bool
	Annotations map[string]string
	Populated   Opt[bool] // the pod has a live process: cgroup.events
	Memory      PodMemoryStats
	// MemoryRequest of the running containers.
	MemoryRequest Opt[MemoryRequest]
	// Self: this process runs in the pod.
	Self bool
	// NodeCritical: an oom_score_adj of -997 outside the Guaranteed class, which only system-node-critical pods get.
	NodeCritical bool
}

// PodMemoryStats in bytes, from the pod's cgroup.
type PodMemoryStats struct {
	Time            time.Time
	UsageBytes      Opt[uint64] // memory.current
	WorkingSetBytes Opt[uint64] // memory.current - inactive_file, floor 0
	AnonBytes       Opt[uint64]
	ShmemBytes      Opt[uint64]
}
