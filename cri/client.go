package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Errors that callers branch on. They come wrapped, with the endpoint and the runtime's own words.
var (
	// ErrNotCRI: something answers on the socket, but not with runtime.v1.RuntimeService.
	ErrNotCRI = errors.New("no CRI v1 runtime service there")
	// ErrNotFound: the runtime knows no such sandbox or container.
	ErrNotFound = errors.New("not found")
)

// Deadlines of calls. Both are far beyond what a healthy runtime takes (cri-kernel facts: lists below 1 ms, a stop of three
// containers 130 ms), and short enough that a hung one costs a wait, not the agent.
const (
	listTimeout = 10 * time.Second
	stopTimeout = 60 * time.Second
)

// maxMessage is the receive limit: a node with thousands of dead containers answers lists of more than gRPC's 4 MiB.
const maxMessage = 16 << 20

// Client is a connection to one runtime. It connects when first used and again after the runtime restarted. Safe for use by
// several goroutines.
type Client struct {
	endpoint string
	conn     *grpc.ClientConn
	runtime  runtimev1.RuntimeServiceClient
}

// Dial makes a client for an endpoint as the kubelet writes it: unix:///run/containerd/containerd.sock. An absolute path
// alone is taken as one. It does not connect yet.
func Dial(endpoint string) (*Client, error) {
	target, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// A runtime that restarts is back within seconds: grpc's default backoff of up to two minutes would miss it.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		// 32 KiB each by default; what the agent sends is small, and its memory is a budget.
		grpc.WithWriteBufferSize(4<<10), grpc.WithReadBufferSize(16<<10),
	)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	return &Client{endpoint: target, conn: conn, runtime: runtimev1.NewRuntimeServiceClient(conn)}, nil
}

// ParseEndpoint returns an endpoint in its full form, unix:///PATH. Also taken are unix:/PATH and /PATH alone, as the kubelet
// takes them (k8s.io/cri-client pkg/util/util_unix.go).
func ParseEndpoint(endpoint string) (string, error) {
	path := endpoint
	for _, scheme := range []string{"unix://", "unix:"} {
		if rest, ok := strings.CutPrefix(endpoint, scheme); ok {
			path = rest
			break
		}
	}
	if !strings.HasPrefix(path, "/") || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("endpoint %q: want unix:///PATH/TO/SOCKET", endpoint)
	}
	return "unix://" + path, nil
}

// Endpoint is the socket's address.
func (c *Client) Endpoint() string { return c.endpoint }

// Close ends the connection and every call in flight.
func (c *Client) Close() error { return c.conn.Close() }

// Version is what the runtime calls itself.
type Version struct{ Name, Version string }

// Version asks the runtime for its name and version. It is the first call to make: it tells a missing runtime from
// something that is no CRI (ErrNotCRI).
func (c *Client) Version(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	res, err := c.runtime.Version(ctx, &runtimev1.VersionRequest{})
	if err != nil {
		return Version{}, c.wrap("ask version of", err)
	}
	return Version{Name: res.RuntimeName, Version: res.RuntimeVersion}, nil
}

// StopPodSandbox has the runtime kill what is left of a pod's containers and tear its sandbox down. It may be repeated: a
// sandbox that is stopped, or gone, is no error (runtime/v1 api.proto).
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	_, err := c.runtime.StopPodSandbox(ctx, &runtimev1.StopPodSandboxRequest{PodSandboxId: id})
	if err = c.wrap("stop pod sandbox "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// SandboxesOf lists the ids of a pod's sandboxes that were made before an instant, in any state.
func (c *Client) SandboxesOf(ctx context.Context, uid string, before time.Time) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	res, err := c.runtime.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{})
	if err != nil {
		return nil, c.wrap("list pod sandboxes of", err)
	}
	for _, s := range res.Items {
		if s.GetMetadata().GetUid() == uid && time.Unix(0, s.CreatedAt).Before(before) {
			ids = append(ids, s.Id)
		}
	}
	return ids, nil
}

// Running counts the containers of a sandbox that the runtime calls running. After a kill from outside it may still do so
// for a while, even after StopPodSandbox returned (containerd 2.4).
func (c *Client) Running(ctx context.Context, sandboxID string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	res, err := c.runtime.ListContainers(ctx, &runtimev1.ListContainersRequest{Filter: &runtimev1.ContainerFilter{
		PodSandboxId: sandboxID,
		State:        &runtimev1.ContainerStateValue{State: runtimev1.ContainerState_CONTAINER_RUNNING},
	}})
	return len(res.GetContainers()), c.wrap("list running containers of", err)
}

// wrap makes an error that says what was asked, of whom, and what was the matter.
func (c *Client) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("%s runtime %s: %w", verb, c.endpoint, err)
	}
	cause := errors.New(s.Message())
	switch s.Code() {
	case codes.NotFound:
		cause = fmt.Errorf("%w: %s", ErrNotFound, s.Message())
	case codes.Unimplemented:
		cause = fmt.Errorf("%w: %s", ErrNotCRI, s.Message())
	case codes.DeadlineExceeded:
		cause = fmt.Errorf("%w: %s", context.DeadlineExceeded, s.Message())
	case codes.Canceled:
		cause = fmt.Errorf("%w: %s", context.Canceled, s.Message())
	case codes.Unavailable:
		// grpc reports a peer that does not speak HTTP/2 so: the preface came back as something else.
		if m := s.Message(); strings.Contains(m, "error reading server preface") || strings.Contains(m, "frame too large") {
			cause = fmt.Errorf("%w: %s", ErrNotCRI, m)
		}
	}
	return fmt.Errorf("%s runtime %s: %w", verb, c.endpoint, cause)
}
