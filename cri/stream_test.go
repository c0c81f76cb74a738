package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

// calls are all calls of a Client, by the methods of the runtime that they call (the list, and the
// stream if it exists).
var calls = []struct {
	plain, stream string
	do            func(context.Context, *Client) error
}{
	{"Version", "", func(ctx context.Context, c *Client) error { _, err := c.Version(ctx); return err }},
	{"Status", "", func(ctx context.Context, c *Client) error { _, err := c.Status(ctx); return err }},
	{"RuntimeConfig", "", func(ctx context.Context, c *Client) error { _, err := c.CgroupDriver(ctx); return err }},
	{"StopPodSandbox", "", func(ctx context.Context, c *Client) error { return c.StopPodSandbox(ctx, "s1") }},
	{"ContainerStatus", "", func(ctx context.Context, c *Client) error { _, err := c.ContainerStatus(ctx, "c1"); return err }},
	{"ImageFsInfo", "", func(ctx context.Context, c *Client) error { _, err := c.ImageFsInfo(ctx); return err }},
	{"ListContainerStats", "", func(ctx context.Context, c *Client) error { _, err := c.ListContainerStats(ctx); return err }},
	{"ContainerStats", "", func(ctx context.Context, c *Client) error { _, err := c.ContainerStats(ctx, "c1"); return err }},
	{"ListImages", "StreamImages", func(ctx context.Context, c *Client) error { _, err := c.ListImages(ctx); return err }},
	{"ListContainers", "StreamContainers", func(ctx context.Context, c *Client) error { _, err := c.Running(ctx, "s1"); return err }},
	{"ListPodSandbox", "StreamPodSandboxes", func(ctx context.Context, c *Client) error {
		_, err := c.SandboxesOf(ctx, "u")
		return err
	}},
	{"ListPodSandbox", "StreamPodSandboxes", func(ctx context.Context, c *Client) error { _, err := NewLister(c).List(ctx); return err }},
	{"ListContainers", "StreamContainers", func(ctx context.Context, c *Client) error { _, err := NewLister(c).List(ctx); return err }},
}

// patience is the time that a busy machine may need for a quick call. Callers here set no deadline.
const patience = 30 * time.Second

// patient sets timeouts that only a permanently hung call reaches.
func patient(c *Client) *Client {
	c.timeouts = timeouts{list: patience, status: patience, usage: patience, stop: patience, change: patience}
	return c
}

// hasty sets timeouts that a test can wait for.
func hasty(c *Client) *Client {
	c.timeouts = timeouts{list: 50 * time.Millisecond, status: 50 * time.Millisecond, usage: 50 * time.Millisecond, stop: 50 * time.Millisecond}
	return c
}

// No call waits for a runtime longer than its timeout, even without a deadline of the caller.
func TestEveryCallHasATimeout(t *testing.T) {
	for _, call := range calls {
		for _, name := range []string{call.plain, call.stream} {
			if name == "" {
				continue
			}
			r := node(t)
			r.Streams = name == call.stream
			r.Hang[name] = true
			start := time.Now()
			if err := call.do(t.Context(), hasty(dial(t, r.Endpoint()))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error of %s = %v, want DeadlineExceeded", name, err)
			}
			if took := time.Since(start); took > patience || r.Calls(name) > 1 {
				t.Errorf("%s: %d calls took %v, want one within the timeout", name, r.Calls(name), took)
			}
		}
	}
}

// The same for a socket that accepts no connection, such as that of a stopped process.
func TestSilentSocketCostsTheTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, call := range calls {
		start := time.Now()
		if err := call.do(t.Context(), hasty(dial(t, path))); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > patience {
			t.Errorf("error of %s = %v after %v, want a timeout", call.plain, err, time.Since(start))
		}
	}
}

// A slow answer within the timeout is accepted.
func TestSlowAnswerWithinTimeout(t *testing.T) {
	for _, call := range calls {
		r := node(t)
		r.Delay[call.plain] = 20 * time.Millisecond
		if err := call.do(t.Context(), dial(t, r.Endpoint())); err != nil {
			t.Errorf("error of a slow %s = %v", call.plain, err)
		}
	}
}

// many returns a runtime with streams, n containers and n images.
func many(t *testing.T, n int) *critest.Runtime {
	r := critest.Start(t)
	r.Streams = true
	for i := range n {
		r.Containers = append(r.Containers, &runtimev1.Container{Id: fmt.Sprint("c", i), PodSandboxId: "s", State: runtimev1.ContainerState_CONTAINER_EXITED})
		r.Images = append(r.Images, &runtimev1.Image{Id: fmt.Sprint("i", i)})
	}
	r.Sandboxes = []*runtimev1.PodSandbox{{Id: "s"}}
	return r
}

func TestStreamedLists(t *testing.T) {
	for _, batch := range []int{1, 3, 100} {
		r := many(t, 10)
		r.Batch = batch
		c := dial(t, r.Endpoint())
		got, err := NewLister(c).List(t.Context())
		images, imagesErr := c.ListImages(t.Context())
		if err != nil || imagesErr != nil || len(got.Containers) != 10 || len(got.Sandboxes) != 1 || len(images) != 10 {
			t.Errorf("%d items per message: %d sandboxes, %d containers, %d images, %v, %v", batch, len(got.Sandboxes), len(got.Containers), len(images), err, imagesErr)
		}
		if got.Containers[9].ID != "c9" {
			t.Errorf("containers are not in order: %+v", got.Containers)
		}
		if n := r.Calls("ListPodSandbox") + r.Calls("ListContainers") + r.Calls("ListImages"); n != 0 {
			t.Errorf("list calls in addition to the streams = %d, want none", n)
		}
	}
}

// The lack of streams is cached until the runtime may be another one.
func TestMissingStreamIsCachedUntilRestart(t *testing.T) {
	r := many(t, 3)
	r.Streams = false
	c := dial(t, r.Endpoint())
	expect := func(when string, streams, lists int) {
		t.Helper()
		if images, err := c.ListImages(t.Context()); err != nil || len(images) != 3 {
			t.Fatalf("%s: listed %d images, error %v, want 3", when, len(images), err)
		}
		if s, l := r.Calls("StreamImages"), r.Calls("ListImages"); s != streams || l != lists {
			t.Fatalf("%s: %d streams and %d lists, want %d and %d", when, s, l, streams, lists)
		}
	}
	expect("at first", 1, 1)
	expect("again", 1, 2)
	r.Change(func() { r.Streams = true; r.Fail["Version"] = status.Error(codes.Internal, "no such luck") })
	_, _ = c.Version(t.Context())
	expect("after a call that failed otherwise", 1, 3)
	r.Change(func() { r.Fail["Version"] = status.Error(codes.Unavailable, "restarting") })
	_, _ = c.Version(t.Context())
	expect("after a call that failed with Unavailable", 2, 3)

	r.Change(func() { r.Streams = false; clear(r.Fail) })
	expect("after a downgrade", 3, 4)
	r.Stop()
	r.Change(func() { r.Streams = true })
	r.Restart(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for r.Calls("StreamImages") < 4 { // a list that was in progress when the runtime came back is not streamed yet
		if _, err := c.ListImages(ctx); ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	expect("after a restart", 5, r.Calls("ListImages"))
}

// The lack of streams is cached per runtime and per list.
func TestMissingStreamIsCachedPerList(t *testing.T) {
	r := many(t, 3)
	r.Fail["StreamContainers"] = status.Error(codes.Unimplemented, "unknown method StreamContainers")
	c := dial(t, r.Endpoint())
	for range 2 {
		if got, err := NewLister(c).List(t.Context()); err != nil || len(got.Containers) != 3 {
			t.Fatalf("List() = %+v, %v, not as expected", got, err)
		}
	}
	if s, l, p := r.Calls("StreamContainers"), r.Calls("ListContainers"), r.Calls("StreamPodSandboxes"); s != 1 || l != 2 || p != 2 {
		t.Errorf("%d streams and %d lists of containers, %d streams of sandboxes", s, l, p)
	}
}

// A stream that breaks off is an error, never a partial list, and never a reason to request the
// list instead: Unimplemented within a stream does not mean that the runtime lacks it.
func TestBrokenStreamIsAnError(t *testing.T) {
	for _, after := range []int{0, 1, 9} {
		r := many(t, 10)
		r.Break["StreamImages"] = after
		if after > 0 {
			r.BreakErr = status.Error(codes.Unimplemented, "broken in the middle")
		}
		images, err := dial(t, r.Endpoint()).ListImages(t.Context())
		if err == nil || images != nil || !strings.Contains(err.Error(), "broken in the middle") || r.Calls("ListImages") != 0 {
			t.Errorf("stream broken after %d messages: %d images, error %v", after, len(images), err)
		}
	}
	r := many(t, 10)
	r.Stall["StreamImages"] = 2
	r.Answer["StreamImages"] = func(m any) any {
		go r.Stop()
		return m
	}
	if images, err := dial(t, r.Endpoint()).ListImages(t.Context()); err == nil || images != nil {
		t.Errorf("the runtime died: %d images, %v", len(images), err)
	}
}

// A stream that does not end costs the timeout, and is cancelled.
func TestStalledStreamCostsTheTimeout(t *testing.T) {
	r := many(t, 10)
	r.Stall["StreamContainers"] = 4
	c := hasty(dial(t, r.Endpoint()))
	got, err := NewLister(c).List(t.Context())
	if !errors.Is(err, context.DeadlineExceeded) || len(got.Containers) != 0 {
		t.Errorf("list of a stalled stream: %d containers, error %v", len(got.Containers), err)
	}
	ended(t, r, "StreamContainers")
}

// An endless stream is cancelled at the limit of its size, long before it fills the memory.
func TestEndlessStreamIsLimited(t *testing.T) {
	for name, change := range map[string]func(*critest.Runtime, *Client){
		"items": func(_ *critest.Runtime, c *Client) { c.limits.items = 100 },
		"bytes": func(_ *critest.Runtime, c *Client) { c.limits.bytes = 1000 },
		"messages without an item": func(r *critest.Runtime, c *Client) {
			c.limits.items = 100
			r.Answer["StreamImages"] = func(any) any { return &runtimev1.StreamImagesResponse{} }
		},
	} {
		r := many(t, 10)
		r.Repeat["StreamImages"] = true
		c := dial(t, r.Endpoint())
		change(r, c)
		images, err := c.ListImages(t.Context())
		if !errors.Is(err, ErrTooLarge) || images != nil || !strings.Contains(err.Error(), "unused images") {
			t.Errorf("%s: %d images, error %v, want ErrTooLarge", name, len(images), err)
		}
		ended(t, r, "StreamImages")
	}
}

// A list in one message has the same limit of items.
func TestListInOneMessageIsLimited(t *testing.T) {
	r := many(t, 10)
	r.Streams = false
	c := dial(t, r.Endpoint())
	c.limits.items = 9
	if images, err := c.ListImages(t.Context()); !errors.Is(err, ErrTooLarge) || images != nil {
		t.Errorf("list above the limit: %d images, error %v", len(images), err)
	}
}

// ended waits until the runtime has no open stream of a method.
func ended(t *testing.T, r *critest.Runtime, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tick := time.NewTicker(time.Millisecond); r.Open(name) != 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d streams of %s are still open", r.Open(name), name)
		}
	}
}

// The error for an answer above the receive limit contains a remedy, for a list and for one message
// of a stream.
func TestTooLargeErrorHasRemedy(t *testing.T) {
	for _, streams := range []bool{false, true} {
		r := many(t, 1)
		r.Streams = streams
		r.Images[0].Username = strings.Repeat("x", maxMessage)
		_, err := dial(t, r.Endpoint()).ListImages(t.Context())
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "remove dead containers and unused images") {
			t.Errorf("error with streams %v = %v, want ErrTooLarge with a remedy", streams, err)
		}
	}
	r := many(t, 1)
	r.Fail["Version"] = status.Error(codes.ResourceExhausted, "too many requests")
	if _, err := dial(t, r.Endpoint()).Version(t.Context()); err == nil || errors.Is(err, ErrTooLarge) {
		t.Errorf("error of an overloaded runtime = %v, want another than ErrTooLarge", err)
	}
}
