// Package critest is a fake container runtime for unit tests: a gRPC server on a unix socket. It
// serves objects that the test sets, and can hang, fail, delay or change each answer.
//
//	critest.go  Runtime: the objects and the faults of the fake
//	calls.go    calls that list and stop
//	remove.go   calls that remove
//	stream.go   streamed lists
//	recorded.go recorded answers of real runtimes
package critest

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the fake. Set its exported fields before the first call, and change them later through
// Change. Calls are named as in the CRI: "ListPodSandbox", "StreamImages".
type Runtime struct {
	runtimev1.UnimplementedRuntimeServiceServer
	runtimev1.UnimplementedImageServiceServer

	Sandboxes  []*runtimev1.PodSandbox
	Containers []*runtimev1.Container
	// verbose "info" by sandbox or container ID
	Info map[string]string
	// by ID; default: the entry in Sandboxes
	SandboxStatuses map[string]*runtimev1.PodSandboxStatus
	// by ID; default: the entry in Containers
	ContainerStatuses map[string]*runtimev1.ContainerStatus
	Images            []*runtimev1.Image
	ImageFs           []*runtimev1.FilesystemUsage
	ContainerFs       []*runtimev1.FilesystemUsage
	Stats             []*runtimev1.ContainerStats
	Conditions        []*runtimev1.RuntimeCondition
	CgroupDriver      runtimev1.CgroupDriver

	Stops []*runtimev1.StopContainerRequest // every call of StopContainer, answered or not
	// container IDs of successful ReopenContainerLog calls
	Reopens []string
	// removed objects, in order: "container c", "sandbox s", "image i"
	Removed []string
	// Unlisted are references that the runtime resolves to an image's ID, but does not list.
	Unlisted map[string]string
	Config   string // verbose "config" of the runtime's own status

	Fail map[string]error // by the name of the call: answer with this
	// errors of the status of the sandbox or container with this ID
	FailOn map[string]error
	Hang   map[string]bool          // block until the caller cancels
	HangOn map[string]bool          // block if the container with this ID is to be removed
	Delay  map[string]time.Duration // answer after this delay, unless the caller cancels
	// changes the answer, or each message of a stream; must keep its type
	Answer map[string]func(any) any

	// serve the Stream calls of cri-api 0.37; otherwise they are Unimplemented
	Streams  bool
	Batch    int             // items in a message of a stream; 0 is 1
	Break    map[string]int  // a stream fails with BreakErr after this number of messages
	Stall    map[string]int  // a stream blocks after this number of messages, until the caller cancels
	BreakErr error           // nil: an internal error
	Repeat   map[string]bool // a stream restarts at its end, until the caller cancels

	mu      sync.Mutex
	calls   map[string]int
	ended   map[string]int
	server  *grpc.Server
	socket  string
	wrapped func(net.Listener) net.Listener
}

// Start serves a fake until the test ends.
func Start(t testing.TB) *Runtime {
	t.Helper()
	return StartBehind(t, func(l net.Listener) net.Listener { return l })
}

// StartBehind serves a fake on the listener that wrap returns for the socket's, for example one of a
// multiplexer.
func StartBehind(t testing.TB, wrap func(net.Listener) net.Listener) *Runtime {
	t.Helper()
	r := &Runtime{
		Info: map[string]string{}, SandboxStatuses: map[string]*runtimev1.PodSandboxStatus{},
		ContainerStatuses: map[string]*runtimev1.ContainerStatus{},
		Conditions: []*runtimev1.RuntimeCondition{
			{Type: runtimev1.RuntimeReady, Status: true}, {Type: runtimev1.NetworkReady, Status: true},
		},
		Fail: map[string]error{}, Hang: map[string]bool{}, HangOn: map[string]bool{},
		Delay: map[string]time.Duration{}, Answer: map[string]func(any) any{},
		Break: map[string]int{}, Stall: map[string]int{}, Repeat: map[string]bool{},
		calls: map[string]int{}, ended: map[string]int{}, socket: filepath.Join(t.TempDir(), "cri.sock"),
		wrapped: wrap,
	}
	r.Restart(t)
	t.Cleanup(r.Stop)
	return r
}

// Restart serves again on the same socket, like a restarted runtime.
func (r *Runtime) Restart(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimev1.RegisterRuntimeServiceServer(server, r)
	runtimev1.RegisterImageServiceServer(server, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(r.wrapped(l)) }()
	t.Cleanup(func() { server.Stop(); <-done })
	r.server = server
}

// Stop ends the server and every call in flight.
func (r *Runtime) Stop() { r.server.Stop() }

// Endpoint returns the endpoint to dial.
func (r *Runtime) Endpoint() string { return "unix://" + r.socket }

// Change changes the fake while no call reads it.
func (r *Runtime) Change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Calls returns the number of calls of a method so far.
func (r *Runtime) Calls(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[name]
}

// Open returns the number of streams of a method that have neither ended nor been cancelled.
func (r *Runtime) Open(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[name] - r.ended[name]
}

// enter counts a call and applies the faults set by the test.
func (r *Runtime) enter(ctx context.Context, name string) error {
	r.mu.Lock()
	r.calls[name]++
	fail, hang, delay := r.Fail[name], r.Hang[name], r.Delay[name]
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return fail
}

// unary answers a call with the result of make, which it calls while it holds mu, changed by
// Answer.
func unary[M any](ctx context.Context, r *Runtime, name string, make func() (M, error)) (M, error) {
	if err := r.enter(ctx, name); err != nil {
		var none M
		return none, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := make()
	if err != nil {
		return m, err
	}
	return lie(r, name, m), nil
}

// lie applies Answer to an answer. The caller holds mu.
func lie[M any](r *Runtime, name string, m M) M {
	if f := r.Answer[name]; f != nil {
		return f(m).(M)
	}
	return m
}
