// Package critest is a container runtime for unit tests: a gRPC server on a unix socket that holds what the test puts in,
// and can hang, fail and lie per call.
package critest

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the fake. Its exported fields may be changed while mu is held through Change.
type Runtime struct {
	runtimev1.UnimplementedRuntimeServiceServer

	Sandboxes  []*runtimev1.PodSandbox
	Containers []*runtimev1.Container
	Info       map[string]string // verbose "info" by sandbox or container id
	Fail       map[string]error  // by the name of the call: answer with this
	Hang       map[string]bool   // by the name of the call: answer when the caller gives up

	mu     sync.Mutex
	calls  map[string]int
	server *grpc.Server
	socket string
}

// Start serves a fake until the test ends.
func Start(t testing.TB) *Runtime {
	t.Helper()
	r := &Runtime{Info: map[string]string{}, Fail: map[string]error{}, Hang: map[string]bool{}, calls: map[string]int{}, socket: filepath.Join(t.TempDir(), "cri.sock")}
	r.Restart(t)
	t.Cleanup(r.Stop)
	return r
}

// Restart serves anew on the same socket, as a runtime that was restarted does.
func (r *Runtime) Restart(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimev1.RegisterRuntimeServiceServer(server, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	r.server = server
}

// Stop ends the server and every call in flight.
func (r *Runtime) Stop() { r.server.Stop() }

// Endpoint is what to dial.
func (r *Runtime) Endpoint() string { return "unix://" + r.socket }

// Change changes the fake while no call looks at it.
func (r *Runtime) Change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Calls counts the calls of a name so far.
func (r *Runtime) Calls(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[name]
}

// enter counts a call and does what the test asked for.
func (r *Runtime) enter(ctx context.Context, name string) error {
	r.mu.Lock()
	r.calls[name]++
	fail, hang := r.Fail[name], r.Hang[name]
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return fail
}

// Version implements the CRI.
func (r *Runtime) Version(ctx context.Context, _ *runtimev1.VersionRequest) (*runtimev1.VersionResponse, error) {
	return &runtimev1.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}, r.enter(ctx, "Version")
}

// ListPodSandbox implements the CRI.
func (r *Runtime) ListPodSandbox(ctx context.Context, _ *runtimev1.ListPodSandboxRequest) (*runtimev1.ListPodSandboxResponse, error) {
	if err := r.enter(ctx, "ListPodSandbox"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &runtimev1.ListPodSandboxResponse{}
	for _, s := range r.Sandboxes { // copies: an answer is written out after the lock is gone
		res.Items = append(res.Items, proto.CloneOf(s))
	}
	return res, nil
}

// ListContainers implements the CRI, with the filters that are used.
func (r *Runtime) ListContainers(ctx context.Context, req *runtimev1.ListContainersRequest) (*runtimev1.ListContainersResponse, error) {
	if err := r.enter(ctx, "ListContainers"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &runtimev1.ListContainersResponse{}
	for _, c := range r.Containers {
		f := req.GetFilter()
		if f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.PodSandboxId || f.GetState() != nil && f.GetState().State != c.State {
			continue
		}
		res.Containers = append(res.Containers, proto.CloneOf(c))
	}
	return res, nil
}

// PodSandboxStatus implements the CRI.
func (r *Runtime) PodSandboxStatus(ctx context.Context, req *runtimev1.PodSandboxStatusRequest) (*runtimev1.PodSandboxStatusResponse, error) {
	if err := r.enter(ctx, "PodSandboxStatus"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.Sandboxes {
		if s.Id == req.PodSandboxId {
			return &runtimev1.PodSandboxStatusResponse{Info: map[string]string{"info": r.Info[s.Id]}}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "sandbox %s", req.PodSandboxId)
}

// ContainerStatus implements the CRI.
func (r *Runtime) ContainerStatus(ctx context.Context, req *runtimev1.ContainerStatusRequest) (*runtimev1.ContainerStatusResponse, error) {
	if err := r.enter(ctx, "ContainerStatus"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.Containers {
		if c.Id == req.ContainerId {
			return &runtimev1.ContainerStatusResponse{Status: &runtimev1.ContainerStatus{}, Info: map[string]string{"info": r.Info[c.Id]}}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "container %s", req.ContainerId)
}

// StopPodSandbox implements the CRI.
func (r *Runtime) StopPodSandbox(ctx context.Context, req *runtimev1.StopPodSandboxRequest) (*runtimev1.StopPodSandboxResponse, error) {
	if err := r.enter(ctx, "StopPodSandbox"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.Sandboxes {
		if s.Id == req.PodSandboxId {
			s.State = runtimev1.PodSandboxState_SANDBOX_NOTREADY
			return &runtimev1.StopPodSandboxResponse{}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "sandbox %s", req.PodSandboxId)
}
