package critest

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer implements the CRI: it ends a running container, like a runtime.
func (r *Runtime) RemoveContainer(ctx context.Context,
	req *runtimev1.RemoveContainerRequest) (*runtimev1.RemoveContainerResponse, error) {
	r.mu.Lock()
	hangs := r.HangOn[req.GetContainerId()]
	r.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	return unary(ctx, r, "RemoveContainer", func() (*runtimev1.RemoveContainerResponse, error) {
		r.Removed = append(r.Removed, "container "+req.GetContainerId())
		r.Containers = slices.DeleteFunc(r.Containers,
			func(c *runtimev1.Container) bool { return c.GetId() == req.GetContainerId() })
		return &runtimev1.RemoveContainerResponse{}, nil
	})
}

// ImageStatus implements the CRI. It finds images by ID and by name.
func (r *Runtime) ImageStatus(ctx context.Context,
	req *runtimev1.ImageStatusRequest) (*runtimev1.ImageStatusResponse, error) {
	return unary(ctx, r, "ImageStatus", func() (*runtimev1.ImageStatusResponse, error) {
		if err := r.FailOn[req.GetImage().GetImage()]; err != nil {
			return nil, err
		}
		return &runtimev1.ImageStatusResponse{Image: proto.CloneOf(r.image(req.GetImage().GetImage()))},
			nil
	})
}

// RemoveImage implements the CRI for any image, pinned or in use.
func (r *Runtime) RemoveImage(ctx context.Context,
	req *runtimev1.RemoveImageRequest) (*runtimev1.RemoveImageResponse, error) {
	return unary(ctx, r, "RemoveImage", func() (*runtimev1.RemoveImageResponse, error) {
		gone := r.image(req.GetImage().GetImage())
		if gone == nil {
			return nil, status.Errorf(codes.NotFound, "image %s", req.GetImage().GetImage())
		}
		r.Removed = append(r.Removed, "image "+gone.GetId())
		r.Images = slices.DeleteFunc(r.Images,
			func(i *runtimev1.Image) bool { return i.GetId() == gone.GetId() })
		return &runtimev1.RemoveImageResponse{}, nil
	})
}

// image finds an image by its ID, one of its names, or an unlisted name. The caller holds mu.
func (r *Runtime) image(ref string) *runtimev1.Image {
	for _, i := range r.Images {
		if i.GetId() == ref || slices.Contains(i.GetRepoTags(), ref) ||
			slices.Contains(i.GetRepoDigests(), ref) {
			return i
		}
	}
	if id := r.Unlisted[ref]; id != "" {
		return r.image(id)
	}
	return nil
}
