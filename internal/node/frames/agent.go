package frames

import (
	"time"

	"jettison/stats"
)

// Agent has the data that a Summary cannot hold. All fields are optional; absent is unknown. Values
// are bytes unless the name has another unit.
type Agent struct {
	// Recorded: jettison run wrote the frame, and absent values were unknown. Otherwise they are
	// computed from the rest as a kubelet does.
	Recorded          bool    `json:"recorded,omitzero"`
	MemAvailableBytes *uint64 `json:"memAvailableBytes,omitzero"` // the kernel's own estimate
	PerCPUFreeBytes   *uint64 `json:"perCPUFreeBytes,omitzero"`   // free memory that the estimate omits
	// MemTotalBytes is the capacity in a recorded frame, or if the Summary lacks availableBytes and
	// workingSetBytes.
	MemTotalBytes *uint64 `json:"memTotalBytes,omitzero"`
	// HugePagesBytes are the node's preallocated huge pages. They reduce MemTotalBytes where that is
	// the capacity: a kubelet's availableBytes are without them since v1.37.
	HugePagesBytes *uint64 `json:"hugePagesBytes,omitzero"`
	// ShrinkableBytes is memory that the kernel takes back and MemAvailable does not count.
	ShrinkableBytes *uint64 `json:"shrinkableBytes,omitzero"`
	// AllocatableLimitBytes is memory.max of the cgroup above all pods.
	AllocatableLimitBytes *uint64 `json:"allocatableLimitBytes,omitzero"`
	// AllocatableUnlimited: the memory.max is max.
	AllocatableUnlimited bool `json:"allocatableUnlimited,omitzero"`
	// PodsPIDs are pids.max and pids.current of the cgroup above all pods; absent without a limit.
	PodsPIDs *PodsPIDs `json:"podsPIDs,omitzero"`
	Swap     *Swap     `json:"swap,omitzero"`
	Pressure *Pressure `json:"pressure,omitzero"`
	// LayoutUnknown: the layout of the file systems was unknown in this look.
	LayoutUnknown bool `json:"layoutUnknown,omitzero"`
	// MemoryOnly: only memory and tasks of pods were measured, and only they could require a
	// victim.
	MemoryOnly bool `json:"memoryOnly,omitzero"`
	// ObserveDisks: a kubelet handled the disks, so that disk signals only set conditions, unless
	// the configuration has disk: act.
	ObserveDisks bool `json:"observeDisks,omitzero"`
	// SourceErrors are the errors of failed sources, by the names in clearers. Their data is absent.
	SourceErrors map[string]string `json:"sourceErrors,omitzero"`
	// Sources are the errors of the agent's sources by their own names, for information only.
	Sources map[string]string `json:"sources,omitzero"`
	// Pods by UID.
	Pods map[string]*AgentPod `json:"pods,omitzero"`
}

// PodsPIDs are the tasks of all pods together and their limit.
type PodsPIDs struct {
	Max     uint64 `json:"max"`
	Current uint64 `json:"current"`
}

// Swap is the node's swap. It replaces the Summary's.
type Swap struct {
	TotalBytes *uint64 `json:"totalBytes,omitzero"`
	FreeBytes  *uint64 `json:"freeBytes,omitzero"`
}

// Pressure has the shares of stalled time in windows that the agent measured itself.
type Pressure struct {
	Time   time.Time `json:"time,omitzero"`
	CPU    *Stalls   `json:"cpu,omitzero"`
	Memory *Stalls   `json:"memory,omitzero"`
	IO     *Stalls   `json:"io,omitzero"`
}

// Stalls are the shares of one resource.
type Stalls struct {
	Some *Shares `json:"some,omitzero"`
	Full *Shares `json:"full,omitzero"`
}

// Shares are from 0 to 1.
type Shares struct {
	Over1s  *float64 `json:"over1s,omitzero"`
	Over10s *float64 `json:"over10s,omitzero"`
}

// AgentPod has the data of a pod that a Summary cannot hold.
type AgentPod struct {
	Threads    *uint64 `json:"threads,omitzero"`
	Processes  *uint64 `json:"processes,omitzero"` // including the sandbox's
	AnonBytes  *uint64 `json:"anonBytes,omitzero"`
	ShmemBytes *uint64 `json:"shmemBytes,omitzero"`
	SwapBytes  *uint64 `json:"swapBytes,omitzero"`
	// KernelBytes is kernel memory of the pod that cannot be reclaimed.
	KernelBytes *uint64 `json:"kernelBytes,omitzero"`
	// RefaultBytes is the memory that was reclaimed and read in again, since the cgroup was
	// created.
	RefaultBytes *uint64 `json:"refaultBytes,omitzero"`
	// Events are memory.events of the pod and all below it, EventsLocal memory.events.local, of the
	// pod's own limit.
	Events      *Events    `json:"events,omitzero"`
	EventsLocal *Events    `json:"eventsLocal,omitzero"`
	PSITotals   *PSITotals `json:"psiTotals,omitzero"`
	// ReleasedBytes is the memory that a kill of every process of the pod frees.
	ReleasedBytes *Range `json:"releasedBytes,omitzero"`
	// Announced is false if the runtime has not reported the pod yet.
	Announced *bool `json:"announced,omitzero"`
	Populated *bool `json:"populated,omitzero"` // it has a live process
	Self      bool  `json:"self,omitzero"`      // the agent runs in it
	// StatusRefused: the runtime's status of the pod exceeded the agent's limit.
	StatusRefused bool           `json:"statusRefused,omitzero"`
	NodeCritical  bool           `json:"nodeCritical,omitzero"`
	QOSClass      stats.QOSClass `json:"qosClass,omitzero"`
	// Annotations reported by the runtime: kubernetes.io/config.* and jettison/*.
	Annotations      map[string]string `json:"annotations,omitzero"`
	MemoryRequest    *Range            `json:"memoryRequest,omitzero"`
	CPURequestMillis *Range            `json:"cpuRequestMillis,omitzero"`
	Cgroup           string            `json:"cgroup,omitzero"` // path, for information only
	IO               *IO               `json:"io,omitzero"`
	// used since the cgroup was created
	CPUNanoseconds *uint64 `json:"cpuNanoseconds,omitzero"`
	// all of the pod, including those of dead containers
	Logs *Usage `json:"logs,omitzero"`
	// Files are the kubelet's files that the pod's containers write to. ExitedLayers are the
	// writable layers of exited containers.
	Files        *Usage `json:"files,omitzero"`
	ExitedLayers *Usage `json:"exitedLayers,omitzero"`
	// Unnamed are deleted files that the pod's processes keep open.
	Unnamed *Unnamed `json:"unnamed,omitzero"`
	// MemoryVolumes are the names of the pod's tmpfs volumes.
	MemoryVolumes []string `json:"memoryVolumes,omitzero"`
}

// Unnamed has the usage by the file system of a signal. Signals of one file system have equal
// values.
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

// PSITotals are the nanoseconds that a pod stalled since its cgroup was created.
type PSITotals struct {
	CPU    *Totals `json:"cpu,omitzero"`
	Memory *Totals `json:"memory,omitzero"`
	IO     *Totals `json:"io,omitzero"`
}

// Totals are the values of one resource, in nanoseconds.
type Totals struct {
	Some uint64 `json:"some"`
	Full uint64 `json:"full"`
}

// IO has the I/O counters of a pod since its cgroup was created.
type IO struct {
	ReadBytes  uint64 `json:"readBytes"`
	WriteBytes uint64 `json:"writeBytes"`
}

// Usage is the usage of a file system.
type Usage struct {
	UsedBytes  uint64 `json:"usedBytes"`
	InodesUsed uint64 `json:"inodesUsed"`
}

// Range is a number between two bounds; in JSON {"min": 1, "max": 2}, or a number that is both.
type Range struct{ Min, Max uint64 }
