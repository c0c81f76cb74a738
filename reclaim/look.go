package reclaim

import (
	"time"

	"jettison/stats"
)

// Look is what was seen of a node at one time. Plan only reads it.
type Look struct {
	Trigger    Trigger
	Containers []Container
	Sandboxes  []Sandbox
	Images     []Image
	LogDir     []string    // names in the pod log directory
	Links      []Link      // symbolic links to containers' logs that lead nowhere
	Cgroups    []PodCgroup // of pods, with processes or without
	// UIDs of pods of which volumes were put aside to be removed, whatever became of the pods since
	Aside []string
	Left  []Left // what was seen and is none of these: it stays, and the plan says so

	// Pods are those that clients or manifests name, by UID. Any other is gone once PodsSynced; while
	// that is false no pod is.
	Pods       map[string]Phase
	PodsSynced bool

	Records Records // of images, as the plan before left them
	// IDs or references beyond those of containers: image volumes, the runtime's sandbox image
	ImagesInUse  []string
	ImageFs      stats.Opt[ImageFsSize] // absent: not known, and no image is removed for space
	PutOff       time.Duration          // for how long images have been put off for young sandboxes
	AgentStarted time.Time              // zero: not known, and no image is removed for its age
}

// Trigger is why there is a plan.
type Trigger uint8

// The triggers.
const (
	Periodic     Trigger = iota
	DiskPressure         // what the periodic pass keeps for convenience goes too
)

// String is "periodic" or "diskPressure".
func (t Trigger) String() string {
	if t == DiskPressure {
		return "diskPressure"
	}
	return "periodic"
}

// Phase is what the clients and manifests that name a pod say of it.
type Phase uint8

// The phases.
const (
	Active     Phase = iota
	Terminated       // its containers have ended and will not run again; the pod still exists
	Evicted
	Gone // deleted and ended
)

// ContainerState is that of the CRI.
type ContainerState uint8

// The states. The zero one was not told: such a container is never touched.
const (
	StateAbsent ContainerState = iota
	Created
	Running
	Exited
	Unknown // to the runtime: it may run
)

// Container is one that the runtime lists, in any state.
type Container struct {
	ID        string
	SandboxID string
	PodUID    string // by its label; empty: it has none, and its sandbox says
	Name      string
	Attempt   uint32
	State     ContainerState
	CreatedAt time.Time
	Seen      time.Time // since when it is known, whatever the clock was set to; zero: not known
	Images    []string  // every reference to its image: ID, name, digest
}

// Sandbox is one that the runtime lists.
type Sandbox struct {
	ID              string
	PodUID          string
	Namespace, Name string
	Attempt         uint32
	NotReady        bool
	CreatedAt       time.Time
	Seen            time.Time // as a container's
}

// Link is a symbolic link to a container's log, POD_NAMESPACE_CONTAINER-ID.log (kubelet
// pkg/kubelet/kuberuntime/legacy.go), whose target is not there.
type Link struct{ Name string }

// PodCgroup is the cgroup of a pod.
type PodCgroup struct {
	Path      string // below the root of the hierarchy
	PodUID    string
	Populated bool // by the kernel's word: a process lives in it, or below
}

// Image is one that the runtime lists. One that is listed twice, by runtime handler, is one here.
type Image struct {
	ID             string
	Names          []string // tags and digests
	RuntimeHandler string   // that it was pulled for
	Pinned         bool
	Bytes          stats.Opt[uint64] // as the runtime has it: layers that images share count in each
}

// ImageFsSize is the size of the file system that images lie on.
type ImageFsSize struct{ CapacityBytes, AvailableBytes uint64 }
