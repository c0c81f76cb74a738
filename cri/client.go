package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// timeouts are the deadlines of calls; each is one for the call as a whole, streams and fallbacks
// included.
type timeouts struct {
	list   time.Duration // lists, with all their details, and what else a runtime answers from memory
	status time.Duration // one status; within a List it bounds each
	usage  time.Duration // what a runtime may have to measure first
	stop   time.Duration
	// what a runtime has to kill or delete for, beyond the grace period it was given
	change time.Duration
}

// defaults are far beyond what a healthy runtime takes (cri-kernel facts: lists and statuses below
// 1 ms, the stats of a thousand containers 1.5 s, a stop of three containers 130 ms; an older CRI-O
// walks the disk for ImageFsInfo), and short enough that a hung one costs a wait, not the agent.
// change is the kubelet's runtimeRequestTimeout.
var defaults = timeouts{list: 10 * time.Second, status: 3 * time.Second, usage: 30 * time.Second,
	stop:   60 * time.Second,
	change: 2 * time.Minute}

// Client is a connection to one runtime. It connects when first used and again after the runtime
// restarted. Safe for use by several goroutines. Every call has a deadline of its own, and ends
// earlier with its context.
//
// What a runtime answers is passed on as data, and not to be trusted further than the runtime is:
// names and ids may hold anything, NUL and slashes included, and paths may lead anywhere. Items
// without an id, and all but the first of an id, are left out of lists. Sizes, limits and times
// that cannot be (negative, and zero where the CRI means "not specified") are absent.
type Client struct {
	link      *link
	runtime   runtimev1.RuntimeServiceClient
	imageLink *link // the same as link where no other endpoint is given
	images    runtimev1.ImageServiceClient
	timeouts  timeouts
	limits    limits

	sandbox, container, image learnt // of their lists
}

// Dial makes a client for an endpoint as the kubelet writes it:
// unix:///run/containerd/containerd.sock. An absolute path alone is taken as one. The image service
// may listen on an endpoint of its own (the kubelet's imageServiceEndpoint); empty means the
// runtime's. It does not connect yet.
func Dial(runtimeEndpoint, imageEndpoint string) (*Client, error) {
	l, err := newLink(runtimeEndpoint)
	if err != nil {
		return nil, err
	}
	c := &Client{
		link: l, runtime: runtimev1.NewRuntimeServiceClient(l.conn), imageLink: l, timeouts: defaults,
		limits: listLimits,
	}
	if imageEndpoint != "" {
		full, err := ParseEndpoint(imageEndpoint)
		if err == nil && full != l.endpoint {
			c.imageLink, err = newLink(full)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("image service: %w", err), l.close())
		}
	}
	c.images = runtimev1.NewImageServiceClient(c.imageLink.conn)
	return c, nil
}

// Endpoint is the runtime's socket.
func (c *Client) Endpoint() string { return c.link.endpoint }

// Timed has a function called after each call of the runtime, with its name (ListPodSandbox) and
// how long it took. It is called from any goroutine.
func (c *Client) Timed(f func(method string, took time.Duration)) {
	c.link.timed.Store(&f)
	c.imageLink.timed.Store(&f)
}

// Close ends the connections and every call in flight.
func (c *Client) Close() error {
	if c.imageLink == c.link {
		return c.link.close()
	}
	return errors.Join(c.link.close(), c.imageLink.close())
}

// listSandboxes lists the sandboxes that a filter lets through (nil: all), once each, within the
// caller's deadline. keep says which are kept; nil: all.
func (c *Client) listSandboxes(ctx context.Context, filter *runtimev1.PodSandboxFilter,
	keep func(*PodSandbox) bool) ([]PodSandbox, error) {
	words, sources, seen := words{}, map[string]map[string]string{}, map[string]bool{}
	var m runtimev1.PodSandbox
	out, err := (&twin[PodSandbox]{
		link: c.link, learnt: &c.sandbox, all: filter == nil, limits: c.limits,
		streamName: runtimev1.RuntimeService_StreamPodSandboxes_FullMethodName,
		streamed:   &runtimev1.StreamPodSandboxesResponse{},
		plainName:  runtimev1.RuntimeService_ListPodSandbox_FullMethodName,
		plain:      &runtimev1.ListPodSandboxResponse{},
		request:    &runtimev1.StreamPodSandboxesRequest{Filter: filter},
		whole:      &runtimev1.ListPodSandboxRequest{Filter: filter},
		item: func(text []byte) (s PodSandbox, taken bool, err error) {
			if err = proto.Unmarshal(text, &m); err != nil || m.Id == "" || seen[m.Id] {
				return s, false, err
			}
			seen[m.Id] = true
			s = sandboxOf(&m)
			words.share(&s.Namespace, &s.RuntimeHandler)
			if !s.Ready {
				s.Annotations = deciding(s.Annotations, sources)
			}
			return s, keep == nil || keep(&s), nil
		},
	}).list(ctx)
	return out, c.link.wrap("list pod sandboxes of", err)
}

// listContainers lists the containers that a filter lets through (nil: all), once each, within the
// caller's deadline. keep says which are kept; nil: all.
func (c *Client) listContainers(ctx context.Context, filter *runtimev1.ContainerFilter,
	keep func(*Container) bool) ([]Container, error) {
	words, seen := words{}, map[string]bool{}
	var m runtimev1.Container
	out, err := (&twin[Container]{
		link: c.link, learnt: &c.container, all: filter == nil, limits: c.limits,
		streamName: runtimev1.RuntimeService_StreamContainers_FullMethodName,
		streamed:   &runtimev1.StreamContainersResponse{},
		plainName:  runtimev1.RuntimeService_ListContainers_FullMethodName,
		plain:      &runtimev1.ListContainersResponse{},
		request:    &runtimev1.StreamContainersRequest{Filter: filter},
		whole:      &runtimev1.ListContainersRequest{Filter: filter},
		item: func(text []byte) (one Container, taken bool, err error) {
			if err = proto.Unmarshal(text, &m); err != nil || m.Id == "" || seen[m.Id] {
				return one, false, err
			}
			seen[m.Id] = true
			one = containerOf(&m)
			if keep != nil && !keep(&one) {
				return one, false, nil
			}
			words.share(&one.SandboxID, &one.PodUID, &one.Name, &one.ImageID, &one.ImageRef, &one.Image)
			return one, true, nil
		},
	}).list(ctx)
	return out, c.link.wrap("list containers of", err)
}

// words are texts that many items of a list have, kept once.
type words map[string]string

func (w words) share(texts ...*string) {
	for _, text := range texts {
		if one, known := w[*text]; known {
			*text = one
		} else if *text != "" {
			w[*text] = *text
		}
	}
}

// at is an instant of the CRI, in nanoseconds since 1970; the zero Time where the runtime did not
// say.
func at(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
