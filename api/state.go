package api

import (
	"time"

	"jettison/stats"
)

// State is a snapshot of the agent: the answer to GET /v1/state.
type State struct {
	Time       time.Time            `json:"time"`
	Version    string               `json:"version"` // of the agent
	Runtime    RuntimeState         `json:"runtime"`
	Kubelet    bool                 `json:"kubelet"` // a kubelet was found on this node
	Disk       string               `json:"disk"`    // act or observe: the mode of disk signals
	DryRun     bool                 `json:"dryRun"`
	Conditions []ConditionState     `json:"conditions"` // all, sorted by type
	Signals    []SignalState        `json:"signals"`    // in the order of the thresholds
	Met        []MetState           `json:"thresholdsMet"`
	Pods       PodCount             `json:"pods"`
	InProgress []EvictionInProgress `json:"underway"` // in the order in which they began
	SetAside   []AsideState         `json:"setAside"` // by UID
	Evicted    []Evicted            `json:"evicted"`  // the last 32, oldest first
	// BreakerOpen is the reason why the circuit breaker is open. Empty: it is closed.
	BreakerOpen string `json:"stopped,omitempty"`
	// Errors holds the errors of sources that cannot be read, by source.
	Errors map[string]string `json:"errors"`
	// Looks counts the cheap looks since the agent started.
	Looks uint64 `json:"looks"`
	// Load is the load of the node; nil: the agent is older than this field.
	Load *LoadState `json:"load,omitempty"`
	// Headroom is the advice on the hard threshold of memory.available.
	Headroom HeadroomState `json:"headroom"`
	// AtOwnLimit lists the pods that have hit a memory limit of the pod or one of its containers
	// within the last ten seconds, by UID.
	AtOwnLimit []LimitState `json:"atOwnLimit"`
	// Unexplained is the reason why the agent evicts no pod for a disk that is short: the disk usage
	// of pods does not explain the shortage. Empty: no such disk.
	Unexplained string `json:"unexplained,omitempty"`
	// Gate is the state of the gate; nil: the agent runs without one.
	Gate *GateState `json:"gate,omitempty"`
	// Config is the active configuration; nil: the agent is older than this field.
	Config *ConfigState `json:"config,omitempty"`
}

// ConfigState describes the active configuration.
type ConfigState struct {
	From string `json:"from"` // files, drop-ins, the kubelet, or "defaults"
	// EndpointFrom is the origin of the runtime's endpoint, for people: FILE:LINE, an environment
	// variable, or the way of detection.
	EndpointFrom string    `json:"endpointFrom"`
	Read         time.Time `json:"read"` // when it was read
	// Reloads counts the applied reloads since the start, Failed the rejected ones.
	Reloads uint64 `json:"reloads"`
	Failed  uint64 `json:"failedReloads"`
	// Error is the reason why the latest reload was rejected. Empty: it was applied.
	Error string `json:"error,omitempty"`
	// NextStart lists the fields with changes that take effect at the next start.
	NextStart []string `json:"nextStart,omitempty"`
}

// GateState holds the decisions of the gate on starting pods since the agent started.
type GateState struct {
	// Asked: the runtime is connected to the gate. Otherwise it has no plugin interface, or the agent
	// is not connected to it, and all pods start.
	Asked bool `json:"asked"`
	// Enforced: pods that the node does not admit are rejected. Otherwise, on a node with a kubelet
	// or in a dry run, the agent only counts and logs them.
	Enforced bool   `json:"enforced"`
	Admitted uint64 `json:"admitted"` // sandboxes
	Refused  uint64 `json:"refused"`  // sandboxes
	Observed uint64 `json:"observed"` // sandboxes that would have been rejected
	HeldOff  uint64 `json:"heldOff"`  // starts of evicted pods, containers included
	Unknown  uint64 `json:"unknown"`  // admitted because the state of the node was unknown
	// Reasons counts Refused and Observed by the first reason of each, in the kubelet's words.
	Reasons map[string]uint64 `json:"reasons,omitempty"`
	// Answers is the time that the agent took per request, from reading it to writing the answer.
	Answers LatencyState `json:"answers"`
	// Preempting lists the preemptions in progress, in the order in which they began. Reserved lists,
	// by UID, the critical pods with reserved resources. A reservation ends when the pod runs or at
	// Until.
	Preempting []PreemptionState  `json:"making,omitempty"`
	Reserved   []ReservationState `json:"kept,omitempty"`
	// Holds lists evicted pods in their hold-off, at most 100.
	Holds []HoldState `json:"holds,omitempty"`
	// Preempted counts the successful preemptions, PreemptFailed the preemptions that freed too
	// little or found no victim.
	Preempted     uint64 `json:"roomMade"`
	PreemptFailed uint64 `json:"roomFailed"`
}

// HoldState is an evicted pod in its hold-off. Without a UID the entry stands for the replacement
// that the pod's owner creates.
type HoldState struct {
	UID string `json:"uid,omitempty"`
	// Pod is the pod with this UID; zero: the agent has no name for it
	Pod   stats.PodReference `json:"pod,omitzero"`
	Owner *HoldOwner         `json:"owner,omitempty"` // nil: no owner recreates it, or no pod object names one
	Until time.Time          `json:"until"`           // extended while the signal of its eviction is short
	// recent evictions of the pod, and of the pods that it replaced
	Times  int    `json:"times"`
	Reason string `json:"reason"`
}

// HoldOwner is a controller that recreates a pod on its node under another UID.
type HoldOwner struct {
	Kind      string `json:"kind"` // of the controller: DaemonSet, StatefulSet and the like
	UID       string `json:"uid"`  // of the controller
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"` // name of the pod that was evicted
}

// PreemptionState is a preemption in progress for a critical pod.
type PreemptionState struct {
	Pod   stats.PodReference `json:"pod"`
	Began time.Time          `json:"began"`
	// Victims are the pods that the agent stops for the critical pod. The agent may also wait for
	// evictions that were already in progress.
	Victims []stats.PodReference `json:"victims"`
	Message string               `json:"message"` // why the pod was rejected before the preemption
}

// ReservationState is a critical pod with resources that are reserved for it.
type ReservationState struct {
	Pod   stats.PodReference `json:"pod"`
	Until time.Time          `json:"until"`
}

// LatencyState summarizes durations.
type LatencyState struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50Nanoseconds"` // up to 19 % too long, like P99
	P99   time.Duration `json:"p99Nanoseconds"`
	Max   time.Duration `json:"maxNanoseconds"`
}

// RuntimeState is the state of the connection to the container runtime.
type RuntimeState struct {
	Endpoint string `json:"endpoint"`
	Lost     bool   `json:"lost"` // the last request was not answered
}

// Condition is the type of a condition of the node, as in v1.NodeCondition: MemoryPressure and the
// like.
type Condition string

// ConditionState is a condition of the node.
type ConditionState struct {
	Type   Condition `json:"type"`
	Status bool      `json:"status"`
	Reason string    `json:"reason"` // the kubelet's
	// nil: no transition since the agent started
	LastTransitionTime *time.Time `json:"lastTransitionTime,omitempty"`
}

// SignalState is the last observation of a signal that has a threshold.
type SignalState struct {
	Signal stats.Signal `json:"signal"`
	// Observed is false while the signal cannot be read. Available, Capacity and Time are then
	// undefined.
	Observed bool `json:"observed"`
	// Available and Capacity are in the signal's unit: bytes, inodes or tasks, and millionths of time
	// for a pressure signal.
	Available uint64     `json:"available"`
	Capacity  uint64     `json:"capacity"`
	Time      *time.Time `json:"time,omitempty"`   // when it was read; nil: unknown
	Reason    string     `json:"reason,omitempty"` // why it is not observed
	// memory.available<100Mi, with " for 30s" after a soft one
	Threshold []string `json:"thresholds"`
	// Limits are the amounts of these thresholds on this node, in the same order and the signal's
	// unit. Absent: the signal is not observed.
	Limits []uint64 `json:"limits,omitempty"`
}

// MetState is a threshold that is met.
type MetState struct {
	Signal    stats.Signal `json:"signal"`
	Observed  string       `json:"observed"`  // for people: 98Mi
	Threshold string       `json:"threshold"` // for people
	Since     time.Time    `json:"since"`
	Message   string       `json:"message"` // of the node event EvictionThresholdMet
}

// PodCount holds the numbers of pods that the agent knows.
type PodCount struct {
	Runtime int `json:"runtime"` // listed by the runtime
	Objects int `json:"objects"` // pod objects from a client, a manifest or the kubelet
	Clients int `json:"clients"` // of Objects: provided only by clients
	Kubelet int `json:"kubelet"` // of Objects: from the kubelet, without a manifest
	// Refused counts pods listed by the runtime with a status above the agent's size limit.
	Refused int `json:"refused"`
	// RefusedObjects counts pod objects of clients that the agent ignores, not included in the other
	// counts: the runtime has another pod with the UID.
	RefusedObjects int `json:"refusedObjects"`
	// KubeletSynced is the time when the kubelet last provided all its pods; nil: never, because its
	// local pods API is not served.
	KubeletSynced *time.Time `json:"kubeletSynced,omitempty"`
	// ClientHeard is the time when a client last put or deleted pods, even without a change.
	// ClientSynced is the time when a client last put all pods (replace=true). nil: never since the
	// agent started.
	ClientHeard  *time.Time `json:"clientHeard,omitempty"`
	ClientSynced *time.Time `json:"clientSynced,omitempty"`
	// Stale is equal to Clients once ClientHeard is older than StaleAfter, otherwise 0. The agent
	// keeps using stale pod objects: it does not evict a pod because a client is unreachable.
	Stale int `json:"stale"`
	// UnknownPriority is nil until the runtime has listed its pods.
	UnknownPriority *UnknownPriority `json:"unknownPriority,omitempty"`
}

// StaleAfter is the time without a request by a client after which its pod objects are stale. A
// request with an empty list and without replace=true keeps them fresh.
const StaleAfter = 5 * time.Minute

// UnknownPriority counts running pods of unknown priority: neither a pod object nor a trusted
// annotation provides it.
type UnknownPriority struct {
	Pods int `json:"pods"`
	// Unprotected counts the part of Pods without any protection. A critical pod among them is
	// evicted like any other pod.
	Unprotected int `json:"unprotected"`
}

// EvictionInProgress is an eviction in progress.
type EvictionInProgress struct {
	Pod                stats.PodReference `json:"pod"`
	Signal             stats.Signal       `json:"signal"`
	GracePeriodSeconds int64              `json:"gracePeriodSeconds"`
	Message            string             `json:"message"`
	Began              time.Time          `json:"began"`
	Dead               bool               `json:"dead"`    // no process is left
	Cleaned            bool               `json:"cleaned"` // the runtime has cleaned up
}

// AsideState is a pod that is set aside: it survived its kill.
type AsideState struct {
	UID string `json:"uid"`
	// Pod is the pod with this UID; zero: the agent has no name for it
	Pod   stats.PodReference `json:"pod,omitzero"`
	Until time.Time          `json:"until"` // the pod is ranked last until then
}

// Evicted is one eviction with a known outcome.
type Evicted struct {
	Time      time.Time          `json:"time"` // when it began
	Pod       stats.PodReference `json:"pod"`
	Signal    stats.Signal       `json:"signal"`
	Reason    string             `json:"reason"`    // of the pod's status: Evicted
	Message   string             `json:"message"`   // of the pod's status
	Explained string             `json:"explained"` // why this pod was chosen
	Back      bool               `json:"back"`      // recovered: the threshold was no longer met
}

// HeadroomState is the advice on hard thresholds for memory.available.
type HeadroomState struct {
	// allocation rate that the node's processes can reach together
	FillBytesPerSecond uint64 `json:"fillBytesPerSecond"`
	// longest time from a crossing to the kill
	React time.Duration `json:"reactNanoseconds"`
	// longest time from a kill until the memory is free
	Release time.Duration `json:"releaseNanoseconds"`
	// the smallest safe threshold; 0: nothing was measured
	NeededBytes uint64 `json:"neededBytes"`
	// the configured hard threshold; 0: none
	ThresholdBytes uint64 `json:"thresholdBytes"`
}

// LimitState is a pod that is at a memory limit of the pod or one of its containers.
type LimitState struct {
	Pod   stats.PodReference `json:"pod"`
	Since time.Time          `json:"since"` // first hit of the current series
}

// LoadState is the last measured load of the node. Sizes are in bytes. A nil field could not be
// read, or the kernel does not provide it.
type LoadState struct {
	Time     time.Time   `json:"time"` // when Memory was read
	CPUs     int         `json:"cpus"`
	Memory   MemoryLoad  `json:"memory"`
	Swap     SwapLoad    `json:"swap"`
	Pods     PodsLoad    `json:"pods"`
	Pressure PressureSet `json:"pressure"`
}

// MemoryLoad is the node's memory. WorkingSetBytes is computed like the kubelet's, AvailableBytes
// is the kernel's estimate (MemAvailable).
type MemoryLoad struct {
	CapacityBytes   *uint64 `json:"capacityBytes,omitempty"` // without huge pages
	WorkingSetBytes *uint64 `json:"workingSetBytes,omitempty"`
	AvailableBytes  *uint64 `json:"availableBytes,omitempty"`
}

// SwapLoad is the node's swap. Without swap TotalBytes is 0.
type SwapLoad struct {
	TotalBytes *uint64 `json:"totalBytes,omitempty"`
	FreeBytes  *uint64 `json:"freeBytes,omitempty"`
}

// PodsLoad is the usage of all pods together.
type PodsLoad struct {
	WorkingSetBytes *uint64 `json:"workingSetBytes,omitempty"`
	SwapBytes       *uint64 `json:"swapBytes,omitempty"`
	Tasks           *uint64 `json:"tasks,omitempty"`
}

// PressureSet is pressure stall information of the whole node, by resource. nil: the kernel does
// not provide it.
type PressureSet struct {
	CPU    *PressureState `json:"cpu,omitempty"`
	Memory *PressureState `json:"memory,omitempty"`
	IO     *PressureState `json:"io,omitempty"`
}

// PressureState is the pressure of one resource: shares of time in which at least one task stalled
// (some), or all (full). nil: the kernel does not provide it.
type PressureState struct {
	Some *StallState `json:"some,omitempty"`
	Full *StallState `json:"full,omitempty"`
}

// StallState holds the kernel's averages over 10, 60 and 300 seconds, in percent.
type StallState struct {
	Avg10  float64 `json:"avg10"`
	Avg60  float64 `json:"avg60"`
	Avg300 float64 `json:"avg300"`
}
