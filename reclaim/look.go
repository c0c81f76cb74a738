package reclaim

import (
	"time"

	"jettison/stats"
)

// Look is a snapshot of a node. Plan does not change it.
type Look struct {
	Trigger    Trigger
	Containers []Container
	Sandboxes  []Sandbox
	Images     []Image
	LogDir     []string    // names in the pod log directory
	Links      []Link      // symbolic links to containers' logs without a target
	Cgroups    []PodCgroup // cgroups of pods, with or without processes
	// UIDs of pods with volumes that were moved aside for removal, regardless of the present state of
	// the pods
	MovedAside []string
	Left       []Left // other objects, which the plan keeps and reports

	// Pods holds the pods that clients or manifests name, by UID. Once PodsSynced is true, any other
	// pod counts as gone; before that, none does.
	Pods       map[string]Phase
	PodsSynced bool

	Records Records // of images, from the previous plan
	// IDs or references of images used other than by containers: image volumes, the runtime's sandbox
	// image
	ImagesInUse  []string
	KeepUnnamed  bool                   // a container may run from an image that has no names
	ImageFs      stats.Opt[ImageFsSize] // absent: unknown, no image is removed for space
	Postponed    time.Duration          // time for which young sandboxes have postponed image removal
	AgentStarted time.Time              // zero: unknown, no image is removed by age
}

// Trigger is the cause of a plan.
type Trigger uint8

// Triggers of plans.
const (
	Periodic     Trigger = iota
	DiskPressure         // also remove objects that the periodic pass keeps for convenience
)

// String returns "periodic" or "diskPressure".
func (t Trigger) String() string {
	if t == DiskPressure {
		return "diskPressure"
	}
	return "periodic"
}

// Phase is the state of a pod according to the clients and manifests that name it.
type Phase uint8

// Phases of pods.
const (
	Active     Phase = iota
	Terminated       // its containers have ended and will not run again; the pod still exists
	Evicted
	Gone // deleted and ended
)

// ContainerState is the state of a container in the CRI.
type ContainerState uint8

// States of containers. A container in the zero state, which means not reported, is never removed.
const (
	StateAbsent ContainerState = iota
	Created
	Running
	Exited
	Unknown // the runtime does not know the state; the container may run
)

// Container is a container that the runtime lists, in any state.
type Container struct {
	ID        string
	SandboxID string
	PodUID    string // from its label; empty: no label, use the sandbox
	Name      string
	Attempt   uint32
	State     ContainerState
	CreatedAt time.Time
	Seen      time.Time // when the agent first saw it, on a clock that is never set; zero: unknown
	Images    []string  // every reference to its image: ID, name, digest
}

// Sandbox is a sandbox that the runtime lists.
type Sandbox struct {
	ID              string
	PodUID          string
	Namespace, Name string
	Attempt         uint32
	NotReady        bool
	CreatedAt       time.Time
	Seen            time.Time // like Container.Seen
}

// Link is a symbolic link to a container's log, POD_NAMESPACE_CONTAINER-ID.log (kubelet
// pkg/kubelet/kuberuntime/legacy.go), without a target.
type Link struct{ Name string }

// PodCgroup is the cgroup of a pod.
type PodCgroup struct {
	Path      string // below the root of the hierarchy
	PodUID    string
	Populated bool // from the kernel: the cgroup or one below it has a process
}

// Image is an image that the runtime lists. Entries of one ID, such as one per runtime handler, are
// merged.
type Image struct {
	ID             string
	Names          []string // tags and digests
	RuntimeHandler string   // runtime handler that the image was pulled for
	Pinned         bool
	Bytes          stats.Opt[uint64] // from the runtime; shared layers count in each image
}

// ImageFsSize is the size of the image file system.
type ImageFsSize struct{ CapacityBytes, AvailableBytes uint64 }
