package critest

import (
	"cmp"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stream sends the items of list in batches, and breaks off, stalls or continues forever as set by
// the test.
func stream[M, T any](r *Runtime, name string, s grpc.ServerStreamingServer[M], list func() []T,
	message func([]T) *M) error {
	err := r.enter(s.Context(), name)
	defer r.Change(func() { r.ended[name]++ })
	if err != nil {
		return err
	}
	r.mu.Lock()
	on, items, batch := r.Streams, list(), max(1, r.Batch)
	breakAfter, breaks := r.Break[name]
	stallAfter, stalls := r.Stall[name]
	repeat, broken := r.Repeat[name], r.BreakErr
	r.mu.Unlock()
	if !on {
		return status.Errorf(codes.Unimplemented, "method %s not implemented", name)
	}
	sent := 0
	for again := true; again; again = repeat && s.Context().Err() == nil {
		for part := range slices.Chunk(items, batch) {
			if breaks && sent == breakAfter {
				return cmp.Or(broken, status.Error(codes.Internal, "broken in the middle"))
			}
			if stalls && sent == stallAfter {
				<-s.Context().Done()
				return s.Context().Err()
			}
			r.mu.Lock()
			m := lie(r, name, message(part))
			r.mu.Unlock()
			if err := s.Send(m); err != nil {
				return err
			}
			sent++
		}
	}
	return nil
}

// StreamPodSandboxes implements the CRI, with the filters that the client uses.
func (r *Runtime) StreamPodSandboxes(req *runtimev1.StreamPodSandboxesRequest,
	s grpc.ServerStreamingServer[runtimev1.StreamPodSandboxesResponse]) error {
	list := func() []*runtimev1.PodSandbox { return r.sandboxes(req.GetFilter()) }
	return stream(r, "StreamPodSandboxes", s, list,
		func(part []*runtimev1.PodSandbox) *runtimev1.StreamPodSandboxesResponse {
			return &runtimev1.StreamPodSandboxesResponse{PodSandboxes: part}
		})
}

// StreamContainers implements the CRI, with the filters that the client uses.
func (r *Runtime) StreamContainers(req *runtimev1.StreamContainersRequest,
	s grpc.ServerStreamingServer[runtimev1.StreamContainersResponse]) error {
	list := func() []*runtimev1.Container { return r.containers(req.GetFilter()) }
	return stream(r, "StreamContainers", s, list,
		func(part []*runtimev1.Container) *runtimev1.StreamContainersResponse {
			return &runtimev1.StreamContainersResponse{Containers: part}
		})
}

// StreamImages implements the CRI.
func (r *Runtime) StreamImages(_ *runtimev1.StreamImagesRequest,
	s grpc.ServerStreamingServer[runtimev1.StreamImagesResponse]) error {
	return stream(r, "StreamImages", s, r.images,
		func(part []*runtimev1.Image) *runtimev1.StreamImagesResponse {
			return &runtimev1.StreamImagesResponse{Images: part}
		})
}
