package cri

import (
	"context"
	"fmt"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerState is where a container is in its life.
type ContainerState int

// The states of the CRI, and its numbers. Unknown is also what this client does not know.
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

// Container is one container of any state. Its maps, slices and pointers are shared between listings: never write through
// them.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	Attempt   uint32 // how many there were before it, of this name in this pod
	State     ContainerState
	Running   bool // State is Running
	CreatedAt time.Time
	// Labels and Annotations are the container's own: of the pod's they hold the few that the kubelet copies.
	Labels, Annotations map[string]string
	// ImageID is the Image.ID of its image on the node. ImageRef is the same or a digested name, and Image the reference
	// asked for: what a runtime writes there differs (containerd 2.4 lists the id in all three).
	ImageID, ImageRef, Image string

	// The rest comes from the verbose status, asked for unless the container has exited, and may be absent.

	// OOMScoreAdj as asked for; nil: the runtime did not say. The kubelet writes QoS class and memory request into it
	// (pkg/kubelet/qos/policy.go).
	OOMScoreAdj *int64
	// Limits as in LinuxResources.
	MemoryLimit *uint64
	CPUShares   *uint64
	CPUQuota    *int64
	CPUPeriod   *int64
	Unified     map[string]string
	// LogPath is the log file on the node; empty: unknown.
	LogPath string
	Mounts  []Mount
	// PID of its first process on the node. 0: unknown, or none. It may have been given to another process since.
	PID       int
	StartedAt time.Time // zero: not started, or unknown
}

// Mount is a part of the node, or of an image, that a container sees.
type Mount struct {
	HostPath      string // empty where Image is set
	ContainerPath string
	Readonly      bool
	Image         string // reference or id of an image volume
}

// ContainerStatus is one container with how it ended.
type ContainerStatus struct {
	Container
	FinishedAt      time.Time // zero: it has not
	ExitCode        int32     // 0 until it has finished; 128+N: killed by signal N; CRI-O writes -1 for unknown
	Reason, Message string    // of its state: "Completed", "Error", "OOMKilled" (racy), or the runtime's own
}

// ContainerStatus asks for one container of any state, with all its details. One that the runtime does not know is
// ErrNotFound.
func (c *Client) ContainerStatus(ctx context.Context, id string) (ContainerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.status)
	defer cancel()
	verb := "ask status of container " + id + " of"
	res, err := c.runtime.ContainerStatus(ctx, &runtimev1.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return ContainerStatus{}, c.link.wrap(verb, err)
	}
	if res.GetStatus() == nil {
		return ContainerStatus{}, fmt.Errorf("%s runtime %s: no status in its answer", verb, c.link.endpoint)
	}
	out := containerStatusOf(res)
	out.ID = id
	return out, nil
}

func containerStatusOf(res *runtimev1.ContainerStatusResponse) ContainerStatus {
	s := res.GetStatus()
	out := ContainerStatus{
		Container: Container{
			ID: s.GetId(), SandboxID: parseVerbose(res.GetInfo()).SandboxID, Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(),
			State: stateOf(s.GetState()), CreatedAt: at(s.GetCreatedAt()), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
			ImageID: s.GetImageId(), ImageRef: s.GetImageRef(), Image: s.GetImage().GetImage(),
		},
		FinishedAt: at(s.GetFinishedAt()), ExitCode: s.GetExitCode(), Reason: s.GetReason(), Message: s.GetMessage(),
	}
	out.Running = out.State == Running
	containerDetailOf(res).fill(&out.Container)
	return out
}

func containerOf(c *runtimev1.Container) Container {
	out := Container{
		ID: c.GetId(), SandboxID: c.GetPodSandboxId(), Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
		State: stateOf(c.GetState()), CreatedAt: at(c.GetCreatedAt()), Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		ImageID: c.GetImageId(), ImageRef: c.GetImageRef(), Image: c.GetImage().GetImage(),
	}
	out.Running = out.State == Running
	return out
}

func stateOf(s runtimev1.ContainerState) ContainerState {
	if s < runtimev1.ContainerState_CONTAINER_CREATED || s > runtimev1.ContainerState_CONTAINER_UNKNOWN {
		return Unknown
	}
	return ContainerState(s)
}

// containerDetail is what the verbose status adds to a list.
type containerDetail struct {
	oomScoreAdj *int64
	resources   LinuxResources
	logPath     string
	mounts      []Mount
	pid         int
	startedAt   time.Time
}

func containerDetailOf(res *runtimev1.ContainerStatusResponse) containerDetail {
	v := parseVerbose(res.GetInfo())
	s := res.GetStatus()
	d := containerDetail{
		oomScoreAdj: v.RuntimeSpec.Process.OOMScoreAdj, resources: v.containerResources(s.GetResources().GetLinux()),
		logPath: s.GetLogPath(), pid: v.pid(), startedAt: at(s.GetStartedAt()),
	}
	if d.oomScoreAdj == nil && v.Config.Linux.Resources != nil {
		d.oomScoreAdj = v.Config.Linux.Resources.OOMScoreAdj
	}
	for _, m := range s.GetMounts() {
		d.mounts = append(d.mounts, Mount{HostPath: m.GetHostPath(), ContainerPath: m.GetContainerPath(), Readonly: m.GetReadonly(), Image: m.GetImage().GetImage()})
	}
	return d
}

func (d containerDetail) fill(c *Container) {
	c.OOMScoreAdj, c.LogPath, c.Mounts, c.StartedAt = d.oomScoreAdj, d.logPath, d.mounts, d.startedAt
	c.MemoryLimit, c.CPUShares, c.CPUQuota, c.CPUPeriod, c.Unified =
		d.resources.MemoryLimit, d.resources.CPUShares, d.resources.CPUQuota, d.resources.CPUPeriod, d.resources.Unified
	if c.State != Exited {
		c.PID = d.pid
	}
}
