package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// timeouts holds the timeouts of calls. Each covers the whole call, including streams and
// fallbacks.
type timeouts struct {
	list   time.Duration // lists with all details, and other calls answered from memory
	status time.Duration // one status; in a List it limits each status
	usage  time.Duration // calls for which the runtime may have to measure
	stop   time.Duration
	// calls that make a runtime kill or delete; a grace period is added
	change time.Duration
}

// defaults are far above the times of a healthy runtime (cri-kernel facts: lists and statuses below
// 1 ms, the stats of a thousand containers 1.5 s, a stop of three containers 130 ms; an older CRI-O
// walks the disk for ImageFsInfo, and any CRI-O waits 3.7 s for the exit code of a container whose
// monitor process was killed). They are short enough that a hung runtime only delays the agent.
// change is the kubelet's runtimeRequestTimeout.
var defaults = timeouts{list: 10 * time.Second, status: 5 * time.Second, usage: 30 * time.Second,
	stop:   60 * time.Second,
	change: 2 * time.Minute}

// Client is a connection to one runtime. It connects at first use and reconnects after a restart of
// the runtime. It is safe for concurrent use. Every call has its own timeout, and ends earlier if
// its context ends.
//
// Data from the runtime is returned unchecked: names and IDs may contain any bytes, including NUL
// and slashes, and paths may point anywhere. Lists omit items without an ID and repeated IDs.
// Impossible sizes, limits and times (negative, or zero where the CRI means "not specified") are
// absent.
type Client struct {
	link      *link
	runtime   runtimev1.RuntimeServiceClient
	imageLink *link // equal to link without a separate endpoint
	images    runtimev1.ImageServiceClient
	timeouts  timeouts
	limits    limits

	sandbox, container, image listHints // one for each list
}

// Dial returns a client for an endpoint in the kubelet's form,
// unix:///run/containerd/containerd.sock, or an absolute path. imageEndpoint is a separate endpoint
// of the image service (the kubelet's imageServiceEndpoint); empty: the runtime's. Dial does not
// connect.
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

// Endpoint returns the runtime's socket.
func (c *Client) Endpoint() string { return c.link.endpoint }

// Timed sets a function that is called after each call of the runtime with the name of the method
// (ListPodSandbox) and its duration. Several goroutines may call f at the same time.
func (c *Client) Timed(f func(method string, took time.Duration)) {
	c.link.timed.Store(&f)
	c.imageLink.timed.Store(&f)
}

// Close closes the connections and ends every call in flight.
func (c *Client) Close() error {
	if c.imageLink == c.link {
		return c.link.close()
	}
	return errors.Join(c.link.close(), c.imageLink.close())
}

// listSandboxes lists the sandboxes that match a filter (nil: all), each once, within the caller's
// deadline. It returns those that keep selects; nil: all.
func (c *Client) listSandboxes(ctx context.Context, filter *runtimev1.PodSandboxFilter,
	keep func(*PodSandbox) bool) ([]PodSandbox, error) {
	texts, sources, seen := interner{}, map[string]map[string]string{}, map[string]bool{}
	var m runtimev1.PodSandbox
	out, err := (&listCall[PodSandbox]{
		link: c.link, hints: &c.sandbox, all: filter == nil, limits: c.limits,
		streamName:   runtimev1.RuntimeService_StreamPodSandboxes_FullMethodName,
		streamed:     &runtimev1.StreamPodSandboxesResponse{},
		plainName:    runtimev1.RuntimeService_ListPodSandbox_FullMethodName,
		plain:        &runtimev1.ListPodSandboxResponse{},
		request:      &runtimev1.StreamPodSandboxesRequest{Filter: filter},
		plainRequest: &runtimev1.ListPodSandboxRequest{Filter: filter},
		item: func(text []byte) (s PodSandbox, taken bool, err error) {
			if err = proto.Unmarshal(text, &m); err != nil || m.Id == "" || seen[m.Id] {
				return s, false, err
			}
			seen[m.Id] = true
			s = sandboxOf(&m)
			texts.intern(&s.Namespace, &s.RuntimeHandler)
			if !s.Ready {
				s.Annotations = relevantAnnotations(s.Annotations, sources)
			}
			return s, keep == nil || keep(&s), nil
		},
	}).list(ctx)
	return out, c.link.wrap("list pod sandboxes of", err)
}

// listContainers lists the containers that match a filter (nil: all), each once, within the
// caller's deadline. It returns those that keep selects; nil: all.
func (c *Client) listContainers(ctx context.Context, filter *runtimev1.ContainerFilter,
	keep func(*Container) bool) ([]Container, error) {
	texts, seen := interner{}, map[string]bool{}
	var m runtimev1.Container
	out, err := (&listCall[Container]{
		link: c.link, hints: &c.container, all: filter == nil, limits: c.limits,
		streamName:   runtimev1.RuntimeService_StreamContainers_FullMethodName,
		streamed:     &runtimev1.StreamContainersResponse{},
		plainName:    runtimev1.RuntimeService_ListContainers_FullMethodName,
		plain:        &runtimev1.ListContainersResponse{},
		request:      &runtimev1.StreamContainersRequest{Filter: filter},
		plainRequest: &runtimev1.ListContainersRequest{Filter: filter},
		item: func(text []byte) (one Container, taken bool, err error) {
			if err = proto.Unmarshal(text, &m); err != nil || m.Id == "" || seen[m.Id] {
				return one, false, err
			}
			seen[m.Id] = true
			one = containerOf(&m)
			if keep != nil && !keep(&one) {
				return one, false, nil
			}
			texts.intern(&one.SandboxID, &one.PodUID, &one.Name, &one.ImageID, &one.ImageRef, &one.Image)
			return one, true, nil
		},
	}).list(ctx)
	return out, c.link.wrap("list containers of", err)
}

// interner holds strings that many items of a list share, so that each is in memory once.
type interner map[string]string

func (w interner) intern(refs ...*string) {
	for _, text := range refs {
		if shared, ok := w[*text]; ok {
			*text = shared
		} else if *text != "" {
			w[*text] = *text
		}
	}
}

// newestFirst orders creation times. An unknown one may be the newest.
func newestFirst(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return -1
	case b.IsZero():
		return 1
	}
	return b.Compare(a)
}

// timeAt converts a time of the CRI, in nanoseconds since 1970. It returns the zero Time if the
// runtime reports no time.
func timeAt(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}
