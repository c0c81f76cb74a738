package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// timeouts are the deadlines of calls; each is one for the call as a whole, streams and fallbacks included.
type timeouts struct {
	list   time.Duration // lists, with all their details, and what else a runtime answers from memory
	status time.Duration // one status; within a List it bounds each
	usage  time.Duration // what a runtime may have to measure first
	stop   time.Duration
}

// defaults are far beyond what a healthy runtime takes (cri-kernel facts: lists and statuses below 1 ms, the stats of a
// thousand containers 1.5 s, a stop of three containers 130 ms; an older CRI-O walks the disk for ImageFsInfo), and short
// enough that a hung one costs a wait, not the agent.
var defaults = timeouts{list: 10 * time.Second, status: 3 * time.Second, usage: 30 * time.Second, stop: 60 * time.Second}

// Client is a connection to one runtime. It connects when first used and again after the runtime restarted. Safe for use by
// several goroutines. Every call has a deadline of its own, and ends earlier with its context.
//
// What a runtime answers is passed on as data, and not to be trusted further than the runtime is: names and ids may hold
// anything, NUL and slashes included, and paths may lead anywhere. Items without an id, and all but the first of an id, are
// left out of lists. Sizes, limits and times that cannot be (negative, and zero where the CRI means "not specified") are
// absent.
type Client struct {
	link      *link
	runtime   runtimev1.RuntimeServiceClient
	imageLink *link // the same as link where no other endpoint is given
	images    runtimev1.ImageServiceClient
	timeouts  timeouts
	limits    limits

	noSandboxStream, noContainerStream, noImageStream absence
}

// Dial makes a client for an endpoint as the kubelet writes it: unix:///run/containerd/containerd.sock. An absolute path
// alone is taken as one. It does not connect yet.
func Dial(endpoint string) (*Client, error) { return DialWithImages(endpoint, "") }

// DialWithImages makes a client for a runtime whose image service listens on an endpoint of its own (the kubelet's
// imageServiceEndpoint). An empty one means the runtime's. It does not connect yet.
func DialWithImages(runtimeEndpoint, imageEndpoint string) (*Client, error) {
	l, err := newLink(runtimeEndpoint)
	if err != nil {
		return nil, err
	}
	c := &Client{link: l, runtime: runtimev1.NewRuntimeServiceClient(l.conn), imageLink: l, timeouts: defaults, limits: listLimits}
	if imageEndpoint != "" {
		full, err := ParseEndpoint(imageEndpoint)
		if err == nil && full != l.endpoint {
			c.imageLink, err = newLink(full)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("image service: %w", err), l.conn.Close())
		}
	}
	c.images = runtimev1.NewImageServiceClient(c.imageLink.conn)
	return c, nil
}

// Endpoint is the runtime's socket.
func (c *Client) Endpoint() string { return c.link.endpoint }

// ImageEndpoint is the socket of the runtime's image service.
func (c *Client) ImageEndpoint() string { return c.imageLink.endpoint }

// Close ends the connections and every call in flight.
func (c *Client) Close() error {
	if c.imageLink == c.link {
		return c.link.conn.Close()
	}
	return errors.Join(c.link.conn.Close(), c.imageLink.conn.Close())
}

// StopPodSandbox has the runtime kill what is left of a pod's containers and tear its sandbox down. It may be repeated: a
// sandbox that is stopped, or gone, is no error (runtime/v1 api.proto).
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.stop)
	defer cancel()
	_, err := c.runtime.StopPodSandbox(ctx, &runtimev1.StopPodSandboxRequest{PodSandboxId: id})
	if err = c.link.wrap("stop pod sandbox "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// SandboxesOf lists the ids of a pod's sandboxes that were made before an instant, in any state.
func (c *Client) SandboxesOf(ctx context.Context, uid string, before time.Time) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	sandboxes, err := c.listSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes {
		if s.GetMetadata().GetUid() == uid && time.Unix(0, s.GetCreatedAt()).Before(before) {
			ids = append(ids, s.GetId())
		}
	}
	return ids, nil
}

// Running counts the containers of a sandbox that the runtime calls running. After a kill from outside it may still do so
// for a while, even after StopPodSandbox returned (containerd 2.4).
func (c *Client) Running(ctx context.Context, sandboxID string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	containers, err := c.listContainers(ctx, &runtimev1.ContainerFilter{
		PodSandboxId: sandboxID,
		State:        &runtimev1.ContainerStateValue{State: runtimev1.ContainerState_CONTAINER_RUNNING},
	})
	n := 0
	for _, c := range containers { // a runtime may not have filtered
		if c.GetPodSandboxId() == sandboxID && c.GetState() == runtimev1.ContainerState_CONTAINER_RUNNING {
			n++
		}
	}
	return n, err
}

// listSandboxes lists all sandboxes, once each, within the caller's deadline.
func (c *Client) listSandboxes(ctx context.Context) ([]*runtimev1.PodSandbox, error) {
	items, err := twin[runtimev1.StreamPodSandboxesResponse, *runtimev1.PodSandbox]{
		link: c.link, absent: &c.noSandboxStream, limits: c.limits,
		stream: func(ctx context.Context) (grpc.ServerStreamingClient[runtimev1.StreamPodSandboxesResponse], error) {
			return c.runtime.StreamPodSandboxes(ctx, &runtimev1.StreamPodSandboxesRequest{})
		},
		items: (*runtimev1.StreamPodSandboxesResponse).GetPodSandboxes,
		plain: func(ctx context.Context) ([]*runtimev1.PodSandbox, error) {
			res, err := c.runtime.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{})
			return res.GetItems(), err
		},
	}.list(ctx)
	return once(items), c.link.wrap("list pod sandboxes of", err)
}

// listContainers lists the containers that a filter lets through (nil: all), once each, within the caller's deadline.
func (c *Client) listContainers(ctx context.Context, filter *runtimev1.ContainerFilter) ([]*runtimev1.Container, error) {
	items, err := twin[runtimev1.StreamContainersResponse, *runtimev1.Container]{
		link: c.link, absent: &c.noContainerStream, limits: c.limits,
		stream: func(ctx context.Context) (grpc.ServerStreamingClient[runtimev1.StreamContainersResponse], error) {
			return c.runtime.StreamContainers(ctx, &runtimev1.StreamContainersRequest{Filter: filter})
		},
		items: (*runtimev1.StreamContainersResponse).GetContainers,
		plain: func(ctx context.Context) ([]*runtimev1.Container, error) {
			res, err := c.runtime.ListContainers(ctx, &runtimev1.ListContainersRequest{Filter: filter})
			return res.GetContainers(), err
		},
	}.list(ctx)
	return once(items), c.link.wrap("list containers of", err)
}

// once leaves out what has no id, and all but the first of an id.
func once[T interface{ GetId() string }](items []T) []T {
	seen := make(map[string]bool, len(items))
	out := items[:0]
	for _, item := range items {
		if id := item.GetId(); id != "" && !seen[id] {
			seen[id] = true
			out = append(out, item)
		}
	}
	return out
}

// at is an instant of the CRI, in nanoseconds since 1970; the zero Time where the runtime did not say.
func at(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
