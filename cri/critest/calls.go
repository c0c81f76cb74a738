package critest

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The methods sandboxes, containers and images return copies, because answers are encoded after the
// lock is released. The caller holds mu.

func (r *Runtime) sandboxes(f *runtimev1.PodSandboxFilter) (out []*runtimev1.PodSandbox) {
	for _, s := range r.Sandboxes {
		labelled := true
		for key, value := range f.GetLabelSelector() {
			got, has := s.GetLabels()[key]
			labelled = labelled && has && got == value
		}
		if labelled && (f.GetId() == "" || f.GetId() == s.GetId()) &&
			(f.GetState() == nil || f.GetState().State == s.GetState()) {
			out = append(out, proto.CloneOf(s))
		}
	}
	return out
}

func (r *Runtime) images() []*runtimev1.Image { return clones(r.Images) }

func (r *Runtime) containers(f *runtimev1.ContainerFilter) (out []*runtimev1.Container) {
	for _, c := range r.Containers {
		if f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.GetPodSandboxId() ||
			f.GetState() != nil && f.GetState().State != c.GetState() {
			continue
		}
		out = append(out, proto.CloneOf(c))
	}
	return out
}

func clones[M proto.Message](from []M) (out []M) {
	for _, m := range from {
		out = append(out, proto.CloneOf(m))
	}
	return out
}

// Version implements the CRI.
func (r *Runtime) Version(ctx context.Context,
	_ *runtimev1.VersionRequest) (*runtimev1.VersionResponse, error) {
	return unary(ctx, r, "Version", func() (*runtimev1.VersionResponse, error) {
		return &runtimev1.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}, nil
	})
}

// Status implements the CRI.
func (r *Runtime) Status(ctx context.Context,
	_ *runtimev1.StatusRequest) (*runtimev1.StatusResponse, error) {
	return unary(ctx, r, "Status", func() (*runtimev1.StatusResponse, error) {
		return &runtimev1.StatusResponse{Status: &runtimev1.RuntimeStatus{Conditions: clones(
			r.Conditions)},
			Info: map[string]string{"config": r.Config}}, nil
	})
}

// RuntimeConfig implements the CRI.
func (r *Runtime) RuntimeConfig(ctx context.Context,
	_ *runtimev1.RuntimeConfigRequest) (*runtimev1.RuntimeConfigResponse, error) {
	return unary(ctx, r, "RuntimeConfig", func() (*runtimev1.RuntimeConfigResponse, error) {
		return &runtimev1.RuntimeConfigResponse{Linux: &runtimev1.LinuxRuntimeConfiguration{CgroupDriver: r.CgroupDriver}}, nil
	})
}

// ListPodSandbox implements the CRI, with the filters that the client uses.
func (r *Runtime) ListPodSandbox(ctx context.Context,
	req *runtimev1.ListPodSandboxRequest) (*runtimev1.ListPodSandboxResponse, error) {
	return unary(ctx, r, "ListPodSandbox", func() (*runtimev1.ListPodSandboxResponse, error) {
		return &runtimev1.ListPodSandboxResponse{Items: r.sandboxes(req.GetFilter())}, nil
	})
}

// ListContainers implements the CRI, with the filters that the client uses.
func (r *Runtime) ListContainers(ctx context.Context,
	req *runtimev1.ListContainersRequest) (*runtimev1.ListContainersResponse, error) {
	return unary(ctx, r, "ListContainers", func() (*runtimev1.ListContainersResponse, error) {
		return &runtimev1.ListContainersResponse{Containers: r.containers(req.GetFilter())}, nil
	})
}

// PodSandboxStatus implements the CRI.
func (r *Runtime) PodSandboxStatus(ctx context.Context,
	req *runtimev1.PodSandboxStatusRequest) (*runtimev1.PodSandboxStatusResponse, error) {
	return unary(ctx, r, "PodSandboxStatus", func() (*runtimev1.PodSandboxStatusResponse, error) {
		for _, s := range r.Sandboxes {
			if s.GetId() != req.GetPodSandboxId() {
				continue
			}
			if err := r.FailOn[s.Id]; err != nil {
				return nil, err
			}
			out := proto.CloneOf(r.SandboxStatuses[s.Id])
			if out == nil {
				out = &runtimev1.PodSandboxStatus{
					Id: s.Id, Metadata: proto.CloneOf(s.Metadata), State: s.State, CreatedAt: s.CreatedAt,
					RuntimeHandler: s.RuntimeHandler,
					Annotations:    maps.Clone(s.Annotations), Labels: maps.Clone(s.Labels),
				}
			}
			return &runtimev1.PodSandboxStatusResponse{Status: out, Info: r.info(s.Id, req.GetVerbose())},
				nil
		}
		return nil, status.Errorf(codes.NotFound, "sandbox %s", req.GetPodSandboxId())
	})
}

// ContainerStatus implements the CRI.
func (r *Runtime) ContainerStatus(ctx context.Context,
	req *runtimev1.ContainerStatusRequest) (*runtimev1.ContainerStatusResponse, error) {
	return unary(ctx, r, "ContainerStatus", func() (*runtimev1.ContainerStatusResponse, error) {
		for _, c := range r.Containers {
			if c.GetId() != req.GetContainerId() {
				continue
			}
			if err := r.FailOn[c.Id]; err != nil {
				return nil, err
			}
			out := proto.CloneOf(r.ContainerStatuses[c.Id])
			if out == nil {
				out = &runtimev1.ContainerStatus{
					Id: c.Id, Metadata: proto.CloneOf(c.Metadata), State: c.State, CreatedAt: c.CreatedAt,
					Image: proto.CloneOf(c.Image), ImageRef: c.ImageRef, ImageId: c.ImageId,
				}
			}
			return &runtimev1.ContainerStatusResponse{Status: out, Info: r.info(c.Id, req.GetVerbose())}, nil
		}
		return nil, status.Errorf(codes.NotFound, "container %s", req.GetContainerId())
	})
}

// info returns the verbose info of a status, if requested. The caller holds mu.
func (r *Runtime) info(id string, verbose bool) map[string]string {
	if !verbose {
		return nil
	}
	return map[string]string{"info": r.Info[id]}
}

// ListContainerStats implements the CRI.
func (r *Runtime) ListContainerStats(ctx context.Context,
	_ *runtimev1.ListContainerStatsRequest) (*runtimev1.ListContainerStatsResponse, error) {
	return unary(ctx, r, "ListContainerStats", func() (*runtimev1.ListContainerStatsResponse, error) {
		return &runtimev1.ListContainerStatsResponse{Stats: clones(r.Stats)}, nil
	})
}

// ContainerStats implements the CRI. Like CRI-O, it returns no stats of an unknown container.
func (r *Runtime) ContainerStats(ctx context.Context,
	req *runtimev1.ContainerStatsRequest) (*runtimev1.ContainerStatsResponse, error) {
	return unary(ctx, r, "ContainerStats", func() (*runtimev1.ContainerStatsResponse, error) {
		for _, s := range r.Stats {
			if s.GetAttributes().GetId() == req.GetContainerId() {
				return &runtimev1.ContainerStatsResponse{Stats: proto.CloneOf(s)}, nil
			}
		}
		for _, c := range r.Containers {
			if c.GetId() == req.GetContainerId() {
				return &runtimev1.ContainerStatsResponse{Stats: &runtimev1.ContainerStats{
					Attributes: &runtimev1.ContainerAttributes{Id: c.GetId()}}}, nil
			}
		}
		return &runtimev1.ContainerStatsResponse{}, nil
	})
}

// StopPodSandbox implements the CRI.
func (r *Runtime) StopPodSandbox(ctx context.Context,
	req *runtimev1.StopPodSandboxRequest) (*runtimev1.StopPodSandboxResponse, error) {
	return unary(ctx, r, "StopPodSandbox", func() (*runtimev1.StopPodSandboxResponse, error) {
		for _, s := range r.Sandboxes {
			if s.GetId() == req.GetPodSandboxId() {
				s.State = runtimev1.PodSandboxState_SANDBOX_NOTREADY
				return &runtimev1.StopPodSandboxResponse{}, nil
			}
		}
		return nil, status.Errorf(codes.NotFound, "sandbox %s", req.GetPodSandboxId())
	})
}

// StopContainer implements the CRI. It ends the container immediately, regardless of the grace
// period. To delay the answer, set Delay.
func (r *Runtime) StopContainer(ctx context.Context,
	req *runtimev1.StopContainerRequest) (*runtimev1.StopContainerResponse, error) {
	r.Change(func() { r.Stops = append(r.Stops, proto.CloneOf(req)) })
	return unary(ctx, r, "StopContainer", func() (*runtimev1.StopContainerResponse, error) {
		for _, c := range r.Containers {
			if c.GetId() == req.GetContainerId() {
				c.State = runtimev1.ContainerState_CONTAINER_EXITED
				return &runtimev1.StopContainerResponse{}, nil
			}
		}
		return nil, status.Errorf(codes.NotFound, "container %s", req.GetContainerId())
	})
}

// ReopenContainerLog implements the CRI. It creates no file. To create one, set Answer.
func (r *Runtime) ReopenContainerLog(ctx context.Context,
	req *runtimev1.ReopenContainerLogRequest) (*runtimev1.ReopenContainerLogResponse, error) {
	return unary(ctx, r, "ReopenContainerLog", func() (*runtimev1.ReopenContainerLogResponse, error) {
		for _, c := range r.Containers {
			switch {
			case c.GetId() != req.GetContainerId():
			case c.GetState() != runtimev1.ContainerState_CONTAINER_RUNNING:
				return nil, status.Errorf(codes.Unknown, "container %s is not running", c.GetId())
			default:
				r.Reopens = append(r.Reopens, c.GetId())
				return &runtimev1.ReopenContainerLogResponse{}, nil
			}
		}
		return nil, status.Errorf(codes.NotFound, "container %s", req.GetContainerId())
	})
}

// RemovePodSandbox implements the CRI.
func (r *Runtime) RemovePodSandbox(ctx context.Context,
	req *runtimev1.RemovePodSandboxRequest) (*runtimev1.RemovePodSandboxResponse, error) {
	return unary(ctx, r, "RemovePodSandbox", func() (*runtimev1.RemovePodSandboxResponse, error) {
		id, before := req.GetPodSandboxId(), len(r.Sandboxes)
		r.Sandboxes = slices.DeleteFunc(r.Sandboxes,
			func(s *runtimev1.PodSandbox) bool { return s.GetId() == id })
		if len(r.Sandboxes) == before {
			return nil, status.Errorf(codes.NotFound, "sandbox %s", id)
		}
		r.Removed = append(r.Removed, "sandbox "+id)
		r.Containers = slices.DeleteFunc(r.Containers,
			func(c *runtimev1.Container) bool { return c.GetPodSandboxId() == id })
		return &runtimev1.RemovePodSandboxResponse{}, nil
	})
}

// ListImages implements the CRI.
func (r *Runtime) ListImages(ctx context.Context,
	_ *runtimev1.ListImagesRequest) (*runtimev1.ListImagesResponse, error) {
	return unary(ctx, r, "ListImages", func() (*runtimev1.ListImagesResponse, error) {
		return &runtimev1.ListImagesResponse{Images: r.images()}, nil
	})
}

// ImageFsInfo implements the CRI.
func (r *Runtime) ImageFsInfo(ctx context.Context,
	_ *runtimev1.ImageFsInfoRequest) (*runtimev1.ImageFsInfoResponse, error) {
	return unary(ctx, r, "ImageFsInfo", func() (*runtimev1.ImageFsInfoResponse, error) {
		return &runtimev1.ImageFsInfoResponse{ImageFilesystems: clones(r.ImageFs),
			ContainerFilesystems: clones(r.ContainerFs)}, nil
	})
}
