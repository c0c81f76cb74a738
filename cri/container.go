package cri

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// uidLabel is the label in which a kubelet stores the UID of a container's pod
// (pkg/kubelet/types/labels.go).
const uidLabel = "io.kubernetes.pod.uid"

// ContainerState is the state of a container.
type ContainerState int

// States, with the numbers of the CRI. Unknown also stands for states that this client does not
// know.
const (
	Created ContainerState = iota
	Running
	Exited
	Unknown
)

func (s ContainerState) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	}
	return "unknown"
}

// Container is a container in any state. Listings share its maps, slices and pointers: never write
// through them.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	Attempt   uint32 // number of earlier containers of this name in this pod
	State     ContainerState
	Running   bool // State is Running
	CreatedAt time.Time
	PodUID    string // from the kubelet's label; empty: no label
	// ImageID is the Image.ID of the container's image on the node. ImageRef is the same ID or a name
	// with a digest, and Image is the requested reference. Runtimes differ: containerd 2.4 lists the
	// ID in all three.
	ImageID, ImageRef, Image string

	// Refused: the verbose status exceeds the limit of this client, for example because of a large
	// environment. Fields that only the verbose status contains are absent.
	Refused bool

	// The other fields come from the verbose status and may be absent. For an exited container that
	// status is requested only while its sandbox is ready, with low priority.

	// OOMScoreAdj as configured; nil: not reported. The kubelet encodes QoS class and memory request
	// in it (pkg/kubelet/qos/policy.go).
	OOMScoreAdj *int64
	// Limits that the kubelet sent to the runtime. nil: not set.
	MemoryLimit *uint64 // bytes
	// relative weight, 1024 per requested CPU; the kubelet writes 2 for a container without a request
	CPUShares *uint64
	// cgroup v2 file to its value: "memory.high" to "1073741824"
	Unified map[string]string
	// LogPath is the log file on the node; empty: unknown.
	LogPath string
	// Root is the mount point of its root in the runtime's mount namespace; empty: unknown, or not
	// reported (containerd).
	Root string
	// Detailed: a status has answered, so that an unknown Root stays unknown for long.
	Detailed bool
	// ImageVolumes are the references or IDs of images mounted as volumes, each once.
	ImageVolumes []string
	// PID of the container's first process, in the node's PID namespace. 0: unknown, or no process.
	// The PID may have been reused.
	PID       int
	StartedAt time.Time // zero: not started, or unknown
	// Ended describes the end of an exited container; nil: not exited, or the status was not
	// requested.
	Ended *End
}

// End describes the end of a container.
type End struct {
	Code   int32
	Reason string    // from the runtime: OOMKilled, Error, Completed
	At     time.Time // zero: unknown
}

// ContainerStatus requests one container in any state, without the fields that only the verbose
// status contains (SandboxID, PID), because a tenant can make the verbose status expensive. It
// returns ErrNotFound for an unknown container.
func (c *Client) ContainerStatus(ctx context.Context, id string) (Container, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.status)
	defer cancel()
	verb := "get status of container " + id + " of"
	res, err := c.containerStatus(ctx, id, false)
	if err != nil {
		return Container{}, c.link.wrap(verb, err)
	}
	if res.GetStatus() == nil {
		return Container{}, fmt.Errorf("%s runtime %s: answer has no status", verb, c.link.endpoint)
	}
	out := containerStatusOf(res)
	out.ID = id
	return out, nil
}

// containerStatus requests one status of at most statusLimit bytes.
func (c *Client) containerStatus(ctx context.Context, id string,
	verbose bool) (*runtimev1.ContainerStatusResponse, error) {
	defer c.link.turn.wait(ctx, patienceForTurn)()
	return c.runtime.ContainerStatus(ctx, &runtimev1.ContainerStatusRequest{ContainerId: id,
		Verbose: verbose},
		grpc.MaxCallRecvMsgSize(statusLimit(verbose)))
}

func containerStatusOf(res *runtimev1.ContainerStatusResponse) Container {
	s := res.GetStatus()
	out := Container{
		ID: s.GetId(), Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(),
		State: stateOf(s.GetState()), CreatedAt: timeAt(s.GetCreatedAt()),
		PodUID:  s.GetLabels()[uidLabel],
		ImageID: s.GetImageId(), ImageRef: s.GetImageRef(), Image: s.GetImage().GetImage(),
	}
	out.Running = out.State == Running
	containerDetailOf(res).fill(&out)
	out.Detailed = true
	return out
}

func containerOf(c *runtimev1.Container) Container {
	out := Container{
		ID: c.GetId(), SandboxID: c.GetPodSandboxId(), Name: c.GetMetadata().GetName(),
		Attempt: c.GetMetadata().GetAttempt(),
		State:   stateOf(c.GetState()), CreatedAt: timeAt(c.GetCreatedAt()),
		PodUID:  c.GetLabels()[uidLabel],
		ImageID: c.GetImageId(), ImageRef: c.GetImageRef(), Image: c.GetImage().GetImage(),
	}
	out.Running = out.State == Running
	return out
}

func stateOf(s runtimev1.ContainerState) ContainerState {
	if s < runtimev1.ContainerState_CONTAINER_CREATED ||
		s > runtimev1.ContainerState_CONTAINER_UNKNOWN {
		return Unknown
	}
	return ContainerState(s)
}

// containerDetail holds the fields that a status adds to a list.
type containerDetail struct {
	oomScoreAdj  *int64
	resources    resources
	logPath      string
	root         string
	imageVolumes []string
	pid          int
	startedAt    time.Time
	ended        *End
}

func containerDetailOf(res *runtimev1.ContainerStatusResponse) containerDetail {
	v := parseVerbose(res.GetInfo())
	s := res.GetStatus()
	d := containerDetail{
		oomScoreAdj: v.RuntimeSpec.Process.OOMScoreAdj,
		resources:   v.containerResources(s.GetResources().GetLinux()),
		logPath:     s.GetLogPath(), root: v.root(), pid: v.pid(), startedAt: timeAt(s.GetStartedAt()),
	}
	if d.oomScoreAdj == nil && v.Config.Linux.Resources != nil {
		d.oomScoreAdj = v.Config.Linux.Resources.OOMScoreAdj
	}
	// In the plain status 0 means "not specified", and a kubelet never sets 0 (containerd 2.4
	// internal/cri/server/helpers.go, copyResourcesToStatus).
	if adj := s.GetResources().GetLinux().GetOomScoreAdj(); d.oomScoreAdj == nil && adj != 0 {
		d.oomScoreAdj = &adj
	}
	if s.GetState() == runtimev1.ContainerState_CONTAINER_EXITED {
		d.ended = &End{Code: s.GetExitCode(), Reason: s.GetReason(), At: timeAt(s.GetFinishedAt())}
	}
	known := map[string]bool{"": true}
	for _, m := range s.GetMounts() {
		if image := m.GetImage().GetImage(); !known[image] {
			known[image] = true
			d.imageVolumes = append(d.imageVolumes, image)
		}
	}
	return d
}

func (d containerDetail) fill(c *Container) {
	c.OOMScoreAdj, c.LogPath, c.ImageVolumes, c.StartedAt = d.oomScoreAdj, d.logPath, d.imageVolumes,
		d.startedAt
	c.Root = d.root
	c.MemoryLimit, c.CPUShares, c.Unified = d.resources.memory, d.resources.cpuShares,
		d.resources.unified
	if c.State == Exited {
		c.Ended = d.ended
	} else {
		c.PID = d.pid
	}
}
