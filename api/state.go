package api

import (
	"time"

	"jettison/stats"
)

// State is what the agent knows and does at one moment: the answer to GET /v1/state.
type State struct {
	Time       time.Time        `json:"time"`
	Version    string           `json:"version"` // of the agent
	Runtime    RuntimeState     `json:"runtime"`
	Kubelet    bool             `json:"kubelet"` // a kubelet was found on this node
	Disk       string           `json:"disk"`    // act or observe: what signals of disks do
	DryRun     bool             `json:"dryRun"`
	Conditions []ConditionState `json:"conditions"` // all, sorted by type
	Signals    []SignalState    `json:"signals"`    // in the order of the thresholds
	Met        []MetState       `json:"thresholdsMet"`
	Pods       PodCount         `json:"pods"`
	Underway   []UnderwayState  `json:"underway"` // by the time they began
	SetAside   []AsideState     `json:"setAside"` // by UID
	Evicted    []Evicted        `json:"evicted"`  // the last 32, oldest first
	// Stopped says why evictions are held back. Empty: they are not.
	Stopped string `json:"stopped,omitempty"`
	// Errors say what cannot be read, by source.
	Errors map[string]string `json:"errors"`
	// Looks counts the cheap looks since the agent started.
	Looks uint64 `json:"looks"`
	// Load is what the node does and has; nil: the agent is older than this field.
	Load *LoadState `json:"load,omitempty"`
	// Headroom is what a hard threshold of memory.available should leave.
	Headroom HeadroomState `json:"headroom"`
	// AtOwnLimit are the pods that have hit a memory limit of their own within the last ten seconds,
	// by UID.
	AtOwnLimit []LimitState `json:"atOwnLimit"`
	// Unexplained says why no pod goes for a disk that is short: what pods hold does not explain it.
	// Empty: there is no such disk.
	Unexplained string `json:"unexplained,omitempty"`
	// Gate is what the gate in the runtime has answered; nil: the agent has none.
	Gate *GateState `json:"gate,omitempty"`
	// Config is the configuration that holds; nil: the agent is older than this field.
	Config *ConfigState `json:"config,omitempty"`
}

// ConfigState is the configuration that holds.
type ConfigState struct {
	From string `json:"from"` // files, drop-ins, the kubelet, or "defaults"
	// EndpointFrom says why the runtime's endpoint is that one, for people: FILE:LINE, a variable, or
	// how it was found.
	EndpointFrom string    `json:"endpointFrom"`
	Read         time.Time `json:"read"` // when it was
	// Reloads counts how often it was read again since the start, and taken; Failed how often what was
	// read was not taken.
	Reloads uint64 `json:"reloads"`
	Failed  uint64 `json:"failedReloads"`
	// Error says why the newest was not taken, so that the one before holds. Empty: it was.
	Error string `json:"error,omitempty"`
	// NextStart are fields that are another at the next start, by what was read last.
	NextStart []string `json:"nextStart,omitempty"`
}

// GateState is what the runtime was answered since the agent started, when it asked whether a pod
// may start.
type GateState struct {
	// Asked: the runtime asks. Else it has no plugin interface, or the agent is not connected to it,
	// and all pods start.
	Asked bool `json:"asked"`
	// Enforced: pods that the node does not take are refused. Else, beside a kubelet or in a dry run,
	// they are counted and logged.
	Enforced bool   `json:"enforced"`
	Admitted uint64 `json:"admitted"` // sandboxes
	Refused  uint64 `json:"refused"`  // likewise
	Observed uint64 `json:"observed"` // that would have been refused
	HeldOff  uint64 `json:"heldOff"`  // of evicted pods, containers included
	Unknown  uint64 `json:"unknown"`  // that were let in because the node was not known
	// Reasons counts Refused and Observed by the first reason of each, in the kubelet's words.
	Reasons map[string]uint64 `json:"reasons,omitempty"`
	// Answers is how long the runtime waited for the agent, from when a question was read to when its
	// answer was written.
	Answers LatencyState `json:"answers"`
	// Making are the critical pods for which others are being stopped, in the order in which that
	// began. Kept are those for which there is room, which nobody else gets until they run or Until is
	// over, by UID.
	Making []MakingState `json:"making,omitempty"`
	Kept   []KeptState   `json:"kept,omitempty"`
	// Holds are evicted pods that are kept out when they come back, at most 100.
	Holds []HoldState `json:"holds,omitempty"`
	// RoomMade counts how often others were stopped for a critical pod and there was room then,
	// RoomFailed how often there was none, or nobody could be stopped.
	RoomMade   uint64 `json:"roomMade"`
	RoomFailed uint64 `json:"roomFailed"`
}

// HoldState is a pod that was evicted and is kept out. Without a UID it is what its owner makes in
// its place.
type HoldState struct {
	UID   string     `json:"uid,omitempty"`
	Owner *HoldOwner `json:"owner,omitempty"` // nil: none brings it back, or no object tells
	Until time.Time  `json:"until"`           // or for as long as what it was evicted for is short
	// that it, or the pod in whose place it came, was evicted lately
	Times  int    `json:"times"`
	Reason string `json:"reason"`
}

// HoldOwner is what brings a pod back to its node under another UID.
type HoldOwner struct {
	Kind      string `json:"kind"` // of the controller: DaemonSet, StatefulSet and the like
	UID       string `json:"uid"`  // of the controller
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"` // name of the pod that was evicted
}

// MakingState is a critical pod for which room is being made.
type MakingState struct {
	Pod   stats.PodReference `json:"pod"`
	Began time.Time          `json:"began"`
	// Victims are the pods that are stopped for it. It may wait for evictions beside them that were
	// under way already.
	Victims []stats.PodReference `json:"victims"`
	Message string               `json:"message"` // why the pod was refused when it asked
}

// KeptState is a critical pod for which room is kept.
type KeptState struct {
	Pod   stats.PodReference `json:"pod"`
	Until time.Time          `json:"until"`
}

// LatencyState is how long something took.
type LatencyState struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50Nanoseconds"` // 19 % too long at most, as P99
	P99   time.Duration `json:"p99Nanoseconds"`
	Max   time.Duration `json:"maxNanoseconds"`
}

// RuntimeState is how the container runtime answers.
type RuntimeState struct {
	Endpoint string `json:"endpoint"`
	Lost     bool   `json:"lost"` // it did not answer last time
}

// Condition is the type of a condition of the node, as v1.NodeCondition has it: MemoryPressure and
// the like.
type Condition string

// ConditionState is a condition of the node.
type ConditionState struct {
	Type   Condition `json:"type"`
	Status bool      `json:"status"`
	Reason string    `json:"reason"` // the kubelet's
	// nil: none since the agent started
	LastTransitionTime *time.Time `json:"lastTransitionTime,omitempty"`
}

// SignalState is what was last observed of a signal that has a threshold.
type SignalState struct {
	Signal stats.Signal `json:"signal"`
	// Observed is false while the signal cannot be read: Available, Capacity and Time mean nothing
	// then.
	Observed bool `json:"observed"`
	// Available and Capacity are in the signal's unit: bytes, inodes or tasks, and millionths of time
	// for a pressure signal.
	Available uint64     `json:"available"`
	Capacity  uint64     `json:"capacity"`
	Time      *time.Time `json:"time,omitempty"`   // when it was read; nil: not known
	Reason    string     `json:"reason,omitempty"` // why it is not observed
	// memory.available<100Mi, with " for 30s" after a soft one
	Threshold []string `json:"thresholds"`
	// Limits are what these thresholds come to on this node, in the same order and the signal's unit.
	// Absent: it is not observed.
	Limits []uint64 `json:"limits,omitempty"`
}

// MetState is a threshold that is met.
type MetState struct {
	Signal    stats.Signal `json:"signal"`
	Observed  string       `json:"observed"`  // as people write it: 98Mi
	Threshold string       `json:"threshold"` // likewise
	Since     time.Time    `json:"since"`
	Message   string       `json:"message"` // of the node event EvictionThresholdMet
}

// PodCount is how many pods are known.
type PodCount struct {
	Runtime int `json:"runtime"` // that the runtime listed
	Objects int `json:"objects"` // that a client, a manifest or the kubelet told of
	Clients int `json:"clients"` // of those, that only clients told of
	Kubelet int `json:"kubelet"` // of those, that the kubelet told of, and no manifest
	// that the runtime listed, and whose status was larger than the agent takes
	Refused int `json:"refused"`
	// RefusedObjects are those of clients beside these: each is of another pod than the runtime has by
	// its UID.
	RefusedObjects int `json:"refusedObjects"`
	// KubeletSynced is when the kubelet told all its pods last; nil: it never has, for its local pods
	// API is not served.
	KubeletSynced *time.Time `json:"kubeletSynced,omitempty"`
	// ClientHeard is when a client put or deleted pods last, what changed nothing included;
	// ClientSynced when one last put all that there are (replace=true). nil: none has since the agent
	// started.
	ClientHeard  *time.Time `json:"clientHeard,omitempty"`
	ClientSynced *time.Time `json:"clientSynced,omitempty"`
	// Stale are those of Clients, all of them, once no client was heard for StaleAfter; else 0. They
	// count all the same: a client that is away does not make a pod go.
	Stale int `json:"stale"`
	// UnknownPriority is nil as long as the runtime has not told its pods.
	UnknownPriority *UnknownPriority `json:"unknownPriority,omitempty"`
}

// StaleAfter is how long a client may be silent before what it said of pods may be out of date. One
// that puts no pods (an empty list, without replace=true) is heard.
const StaleAfter = 5 * time.Minute

// UnknownPriority counts pods that the runtime runs and whose priority nobody has told: neither an
// object nor an annotation that counts.
type UnknownPriority struct {
	Pods int `json:"pods"`
	// Unprotected are those of them that nothing else protects. A critical one among them is evicted
	// like any other pod.
	Unprotected int `json:"unprotected"`
}

// UnderwayState is an eviction that is not over.
type UnderwayState struct {
	Pod                stats.PodReference `json:"pod"`
	Signal             stats.Signal       `json:"signal"`
	GracePeriodSeconds int64              `json:"gracePeriodSeconds"`
	Message            string             `json:"message"`
	Began              time.Time          `json:"began"`
	Dead               bool               `json:"dead"`    // no process is left
	Cleaned            bool               `json:"cleaned"` // the runtime has cleaned up
}

// AsideState is a pod that was killed and did not die.
type AsideState struct {
	UID   string    `json:"uid"`
	Until time.Time `json:"until"` // it is ranked last until then
}

// Evicted is one eviction whose effect is known.
type Evicted struct {
	Time      time.Time          `json:"time"` // when it began
	Pod       stats.PodReference `json:"pod"`
	Signal    stats.Signal       `json:"signal"`
	Reason    string             `json:"reason"`    // of the pod's status: Evicted
	Message   string             `json:"message"`   // of the pod's status
	Explained string             `json:"explained"` // why this pod
	Back      bool               `json:"back"`      // the threshold was not met any more
}

// HeadroomState is the advice on hard thresholds for memory.available.
type HeadroomState struct {
	// that processes here can take together
	FillBytesPerSecond uint64 `json:"fillBytesPerSecond"`
	// from a crossing to the kill, at worst
	React time.Duration `json:"reactNanoseconds"`
	// from a kill until the memory is back, at worst
	Release time.Duration `json:"releaseNanoseconds"`
	// the smallest safe threshold; 0: nothing was measured
	NeededBytes uint64 `json:"neededBytes"`
	// the hard one that is configured; 0: none
	ThresholdBytes uint64 `json:"thresholdBytes"`
}

// LimitState is a pod that is at a memory limit of its own.
type LimitState struct {
	Pod   stats.PodReference `json:"pod"`
	Since time.Time          `json:"since"` // the first hit of those in a row
}

// LoadState is what the node does and has, as last read. Sizes are in bytes. What is nil could not
// be read, or this kernel has it not.
type LoadState struct {
	Time     time.Time   `json:"time"` // of the memory's
	CPUs     int         `json:"cpus"`
	Memory   MemoryLoad  `json:"memory"`
	Swap     SwapLoad    `json:"swap"`
	Pods     PodsLoad    `json:"pods"`
	Pressure PressureSet `json:"pressure"`
}

// MemoryLoad is the node's memory. WorkingSetBytes is as the kubelet counts it, AvailableBytes the
// kernel's estimate (MemAvailable).
type MemoryLoad struct {
	CapacityBytes   *uint64 `json:"capacityBytes,omitempty"`
	WorkingSetBytes *uint64 `json:"workingSetBytes,omitempty"`
	AvailableBytes  *uint64 `json:"availableBytes,omitempty"`
}

// SwapLoad is the node's swap: one without has a total of 0.
type SwapLoad struct {
	TotalBytes *uint64 `json:"totalBytes,omitempty"`
	FreeBytes  *uint64 `json:"freeBytes,omitempty"`
}

// PodsLoad is what all pods have together.
type PodsLoad struct {
	WorkingSetBytes *uint64 `json:"workingSetBytes,omitempty"`
	SwapBytes       *uint64 `json:"swapBytes,omitempty"`
	Tasks           *uint64 `json:"tasks,omitempty"`
}

// PressureSet is pressure stall information of the whole node, by resource. nil: the kernel has
// none.
type PressureSet struct {
	CPU    *PressureState `json:"cpu,omitempty"`
	Memory *PressureState `json:"memory,omitempty"`
	IO     *PressureState `json:"io,omitempty"`
}

// PressureState is one resource's: shares of time in which at least one task stalled (some), or all
// (full). nil: the kernel has it not.
type PressureState struct {
	Some *StallState `json:"some,omitempty"`
	Full *StallState `json:"full,omitempty"`
}

// StallState are the kernel's averages over 10, 60 and 300 seconds, in per cent.
type StallState struct {
	Avg10  float64 `json:"avg10"`
	Avg60  float64 `json:"avg60"`
	Avg300 float64 `json:"avg300"`
}
