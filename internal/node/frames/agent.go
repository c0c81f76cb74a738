package frames

import (
	"time"

	"jettison/stats"
)

// Agent is what a Summary cannot hold. All of it is optional; absent is unknown. Bytes but where a
// name says otherwise.
type Agent struct {
	// Recorded: jettison run wrote the frame, and what is absent was not known. Else what a kubelet
	// makes of the rest is made of it.
	Recorded          bool    `json:"recorded,omitzero"`
	MemAvailableBytes *uint64 `json:"memAvailableBytes,omitzero"` // the kernel's own estimate
	PerCPUFreeBytes   *uint64 `json:"perCPUFreeBytes,omitzero"`   // free memory that it does not count
	// MemTotalBytes is the capacity in a recorded frame, and where the Summary does not give
	// availableBytes and workingSetBytes.
	MemTotalBytes *uint64 `json:"memTotalBytes,omitzero"`
	// AllocatableLimitBytes is memory.max of the cgroup above all pods.
	AllocatableLimitBytes *uint64 `json:"allocatableLimitBytes,omitzero"`
	// AllocatableUnlimited: it says max.
	AllocatableUnlimited bool      `json:"allocatableUnlimited,omitzero"`
	Swap                 *Swap     `json:"swap,omitzero"`
	Pressure             *Pressure `json:"pressure,omitzero"`
	// LayoutUnknown: the agent did not know the layout of the file systems in this look.
	LayoutUnknown bool `json:"layoutUnknown,omitzero"`
	// MemoryOnly: nothing was measured of pods but memory and tasks, and nothing else asked for a
	// victim.
	MemoryOnly bool `json:"memoryOnly,omitzero"`
	// ObserveDisks: a kubelet took care of the disks, whose signals only set conditions, unless the
	// configuration has disk: act.
	ObserveDisks bool `json:"observeDisks,omitzero"`
	// SourceErrors are sources that failed, by the names in blinds, with why: what they are the source
	// of is absent.
	SourceErrors map[string]string `json:"sourceErrors,omitzero"`
	// Sources is what the agent's sources said, in their own names; it only informs.
	Sources map[string]string `json:"sources,omitzero"`
	// Pods by UID.
	Pods map[string]*AgentPod `json:"pods,omitzero"`
}

// Swap of the node, which counts instead of the Summary's.
type Swap struct {
	TotalBytes *uint64 `json:"totalBytes,omitzero"`
	FreeBytes  *uint64 `json:"freeBytes,omitzero"`
}

// Pressure is the share of time stalled over windows that the agent watched itself.
type Pressure struct {
	Time   time.Time `json:"time,omitzero"`
	CPU    *Stalls   `json:"cpu,omitzero"`
	Memory *Stalls   `json:"memory,omitzero"`
	IO     *Stalls   `json:"io,omitzero"`
}

// Stalls of one resource.
type Stalls struct {
	Some *Shares `json:"some,omitzero"`
	Full *Shares `json:"full,omitzero"`
}

// Shares are from 0 to 1.
type Shares struct {
	Over1s  *float64 `json:"over1s,omitzero"`
	Over10s *float64 `json:"over10s,omitzero"`
}

// AgentPod is what a Summary cannot hold of one pod.
type AgentPod struct {
	Threads    *uint64 `json:"threads,omitzero"`
	Processes  *uint64 `json:"processes,omitzero"` // the sandbox's own included
	AnonBytes  *uint64 `json:"anonBytes,omitzero"`
	ShmemBytes *uint64 `json:"shmemBytes,omitzero"`
	SwapBytes  *uint64 `json:"swapBytes,omitzero"`
	// KernelBytes is what the kernel keeps for its processes and cannot take back.
	KernelBytes *uint64 `json:"kernelBytes,omitzero"`
	// RefaultBytes is what was reclaimed of it and read in again, since its cgroup was made.
	RefaultBytes *uint64 `json:"refaultBytes,omitzero"`
	// Events are memory.events of the pod and all below it, EventsLocal memory.events.local, of the
	// pod's own limit.
	Events      *Events    `json:"events,omitzero"`
	EventsLocal *Events    `json:"eventsLocal,omitzero"`
	PSITotals   *PSITotals `json:"psiTotals,omitzero"`
	// ReleasedBytes is what killing every process of the pod returns.
	ReleasedBytes *Range `json:"releasedBytes,omitzero"`
	// Announced false: the runtime has not told of the pod.
	Announced *bool `json:"announced,omitzero"`
	Populated *bool `json:"populated,omitzero"` // it has a live process
	Self      bool  `json:"self,omitzero"`      // the agent runs in it
	// StatusRefused: the runtime's status of it was larger than the agent takes.
	StatusRefused bool           `json:"statusRefused,omitzero"`
	NodeCritical  bool           `json:"nodeCritical,omitzero"`
	QOSClass      stats.QOSClass `json:"qosClass,omitzero"`
	// Annotations that the runtime told: kubernetes.io/config.* and jettison/*.
	Annotations      map[string]string `json:"annotations,omitzero"`
	MemoryRequest    *Range            `json:"memoryRequest,omitzero"`
	CPURequestMillis *Range            `json:"cpuRequestMillis,omitzero"`
	Cgroup           string            `json:"cgroup,omitzero"` // path; it only informs
	IO               *IO               `json:"io,omitzero"`
	// used since the cgroup was made
	CPUNanoseconds *uint64 `json:"cpuNanoseconds,omitzero"`
	// all of the pod's, of dead containers too
	Logs *Usage `json:"logs,omitzero"`
	// Files is what the kubelet keeps for it that its containers write to, ExitedLayers the writable
	// layers of those that have exited.
	Files        *Usage `json:"files,omitzero"`
	ExitedLayers *Usage `json:"exitedLayers,omitzero"`
	// Unnamed is what its processes keep of files without a name.
	Unnamed *Unnamed `json:"unnamed,omitzero"`
	// MemoryVolumes are the names of its volumes that are tmpfs.
	MemoryVolumes []string `json:"memoryVolumes,omitzero"`
}

// Unnamed is what lies on the file system of each signal; those that are one have the same.
type Unnamed struct {
	NodeFs      *Usage `json:"nodefs,omitzero"`
	ImageFs     *Usage `json:"imagefs,omitzero"`
	ContainerFs *Usage `json:"containerfs,omitzero"`
}

// Events has the kernel's names (memory.events).
type Events struct {
	Low          uint64 `json:"low,omitzero"`
	High         uint64 `json:"high,omitzero"`
	Max          uint64 `json:"max,omitzero"`
	OOM          uint64 `json:"oom,omitzero"`
	OOMKill      uint64 `json:"oom_kill,omitzero"`
	OOMGroupKill uint64 `json:"oom_group_kill,omitzero"`
}

// PSITotals of a pod: nanoseconds stalled since its cgroup was made.
type PSITotals struct {
	CPU    *Totals `json:"cpu,omitzero"`
	Memory *Totals `json:"memory,omitzero"`
	IO     *Totals `json:"io,omitzero"`
}

// Totals of one resource, nanoseconds.
type Totals struct {
	Some uint64 `json:"some"`
	Full uint64 `json:"full"`
}

// IO counters of a pod since its cgroup was made.
type IO struct {
	ReadBytes  uint64 `json:"readBytes"`
	WriteBytes uint64 `json:"writeBytes"`
}

// Usage of a file system.
type Usage struct {
	UsedBytes  uint64 `json:"usedBytes"`
	InodesUsed uint64 `json:"inodesUsed"`
}

// Range is a figure between two bounds; in JSON {"min": 1, "max": 2}, or a number that is both.
type Range struct{ Min, Max uint64 }
