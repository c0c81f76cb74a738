package cri

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// uidLabel is what a kubelet says a container's pod by (pkg/kubelet/types/labels.go).
const uidLabel = "io.kubernetes.pod.uid"

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

// Container is one container of any state. Its maps, slices and pointers are shared between
// listings: never write through them.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	Attempt   uint32 // how many there were before it, of this name in this pod
	State     ContainerState
	Running   bool // State is Running
	CreatedAt time.Time
	PodUID    string // of its pod, as a kubelet has labelled it; empty: it is not
	// ImageID is the Image.ID of its image on the node. ImageRef is the same or a digested name, and
	// Image the reference asked for: what a runtime writes there differs (containerd 2.4 lists the id
	// in all three).
	ImageID, ImageRef, Image string

	// Refused: its verbose status is larger than this client takes, as its environment can make it.
	// What only that one tells is absent.
	Refused bool

	// The rest comes from the verbose status and may be absent. Of one that has exited it is asked for
	// at leisure, while its sandbox is ready.

	// OOMScoreAdj as asked for; nil: the runtime did not say. The kubelet writes QoS class and memory
	// request into it (pkg/kubelet/qos/policy.go).
	OOMScoreAdj *int64
	// Limits as the kubelet told them to the runtime. nil: none was set.
	MemoryLimit *uint64 // bytes
	// relative weight, 1024 a CPU requested; the kubelet writes 2 for none
	CPUShares *uint64
	// cgroup v2 file to what is written into it: "memory.high" to "1073741824"
	Unified map[string]string
	// LogPath is the log file on the node; empty: unknown.
	LogPath string
	// ImageVolumes are the references or ids of images that it has as volumes, each once.
	ImageVolumes []string
	// PID of its first process on the node. 0: unknown, or none. It may have been given to another
	// process since.
	PID       int
	StartedAt time.Time // zero: not started, or unknown
	// Ended is how one that has exited did; nil: it has not, or its status was not asked for.
	Ended *End
}

// End is how a container ended.
type End struct {
	Code   int32
	Reason string    // in the runtime's words: OOMKilled, Error, Completed
	At     time.Time // zero: unknown
}

// ContainerStatus asks for one container of any state, with its details but for those that only the
// verbose status tells (SandboxID, PID): that one costs a runtime much where a tenant has filled
// it. One that the runtime does not know is ErrNotFound.
func (c *Client) ContainerStatus(ctx context.Context, id string) (Container, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.status)
	defer cancel()
	verb := "ask status of container " + id + " of"
	res, err := c.containerStatus(ctx, id, false)
	if err != nil {
		return Container{}, c.link.wrap(verb, err)
	}
	if res.GetStatus() == nil {
		return Container{}, fmt.Errorf("%s runtime %s: no status in its answer", verb, c.link.endpoint)
	}
	out := containerStatusOf(res)
	out.ID = id
	return out, nil
}

// containerStatus asks for one status, which may have no more than statusLimit.
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
		State: stateOf(s.GetState()), CreatedAt: at(s.GetCreatedAt()), PodUID: s.GetLabels()[uidLabel],
		ImageID: s.GetImageId(), ImageRef: s.GetImageRef(), Image: s.GetImage().GetImage(),
	}
	out.Running = out.State == Running
	containerDetailOf(res).fill(&out)
	return out
}

func containerOf(c *runtimev1.Container) Container {
	out := Container{
		ID: c.GetId(), SandboxID: c.GetPodSandboxId(), Name: c.GetMetadata().GetName(),
		Attempt: c.GetMetadata().GetAttempt(),
		State:   stateOf(c.GetState()), CreatedAt: at(c.GetCreatedAt()), PodUID: c.GetLabels()[uidLabel],
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

// containerDetail is what the verbose status adds to a list.
type containerDetail struct {
	oomScoreAdj  *int64
	resources    resources
	logPath      string
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
		logPath:     s.GetLogPath(), pid: v.pid(), startedAt: at(s.GetStartedAt()),
	}
	if d.oomScoreAdj == nil && v.Config.Linux.Resources != nil {
		d.oomScoreAdj = v.Config.Linux.Resources.OOMScoreAdj
	}
	// In the plain status 0 is "not specified"; a kubelet gives none (containerd 2.4
	// internal/cri/server/helpers.go, copyResourcesToStatus).
	if adj := s.GetResources().GetLinux().GetOomScoreAdj(); d.oomScoreAdj == nil && adj != 0 {
		d.oomScoreAdj = &adj
	}
	if s.GetState() == runtimev1.ContainerState_CONTAINER_EXITED {
		d.ended = &End{Code: s.GetExitCode(), Reason: s.GetReason(), At: at(s.GetFinishedAt())}
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
	c.MemoryLimit, c.CPUShares, c.Unified = d.resources.memory, d.resources.cpuShares,
		d.resources.unified
	if c.State == Exited {
		c.Ended = d.ended
	} else {
		c.PID = d.pid
	}
}
