package cri

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// answers serves the output of handle to every call. grpc: the call is made with gRPC.
func answers(t *testing.T, handle func(w http.ResponseWriter, grpc bool)) *Client {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
		handle(w, strings.HasPrefix(q.Header.Get("User-Agent"), "grpc-go"))
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	c := dial(t, path)
	c.image.noStream.Store(c.link.epoch.Load() + 1)
	return c
}

// message returns a list of n images, as gRPC sends it.
func message(t *testing.T, n, bytes int) []byte {
	var m runtimev1.ListImagesResponse
	for i := range n {
		m.Images = append(m.Images, &runtimev1.Image{Id: fmt.Sprint("i", i), Username: strings.Repeat("x", bytes)})
	}
	text, err := proto.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// A large list is decoded item by item while it arrives; a small one is decoded as a whole.
func TestALargeListIsTakenWhileItComes(t *testing.T) {
	small, large := message(t, 10, 0), message(t, 1100, 1000)
	var text atomic.Pointer[[]byte]
	var asked atomic.Int32
	c := answers(t, func(w http.ResponseWriter, grpc bool) {
		if grpc {
			asked.Add(1)
		}
		_, _ = w.Write(*text.Load())
		w.Header().Set("Grpc-Status", "0")
	})
	for i, step := range []struct {
		text []byte
		n    int
		grpc int32 // calls so far
	}{{large, 1100, 0}, {large, 1100, 0}, {small, 10, 0}, {small, 10, 1}, {large, 1100, 2}, {large, 1100, 2}} {
		text.Store(&step.text)
		images, err := c.ListImages(t.Context())
		if err != nil || len(images) != step.n || images[step.n-1].ID != fmt.Sprint("i", step.n-1) || asked.Load() != step.grpc {
			t.Errorf("%d: %d images, %d calls by gRPC, want %d, %d: %v", i, len(images), asked.Load(), step.n, step.grpc, err)
		}
	}
}

// A rejection is not requested again: a runtime that is slow to find its answer too large leaves
// the rest of the time for the list in parts.
func TestRejectionIsNotRetried(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"at once":        func(w http.ResponseWriter) { w.Header().Del("Trailer") },
		"after a header": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		for _, c := range []struct {
			status, message string
			want            error
			text            string
		}{
			{"8", "grpc: trying to send message larger than max (17777216 vs. 16777216)", ErrTooLarge, "(17777216 vs."},
			{"5", "no f%C3%BCr %25 100%", ErrNotFound, "no f%C3%BCr %25 100%"},
			{"5", "no f%C3%BCr %25", ErrNotFound, "no für %"},
			{"12", "unknown service", ErrNotCRI, "unknown service"},
			{"0", "", nil, "has no message"},
		} {
			client := answers(t, func(w http.ResponseWriter, grpc bool) {
				if grpc {
					t.Errorf("%s: the call with status %s was repeated with gRPC", name, c.status)
				}
				begin(w)
				w.Header().Set("Grpc-Status", c.status)
				w.Header().Set("Grpc-Message", c.message)
			})
			images, err := client.ListImages(t.Context())
			if err == nil || images != nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("list with rejection %s = %d images, %v, want error %v with %q", name, len(images), err, c.want, c.text)
			}
		}
	}
}

// If all containers exceed the limit of the runtime, and it is slow to find that, they are listed
// in parts.
func TestSlowRejectionLeavesTimeForParts(t *testing.T) {
	t.Parallel()
	r := node(t)
	c := dial(t, r.Endpoint())
	c.timeouts.list = 2 * time.Second
	r.Delay["ListContainers"] = c.timeouts.list * 6 / 10
	r.Fail["ListContainers"] = status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17777216 vs. 16777216)")
	count := 0
	err := c.AllContainers(t.Context(), nil, ContainerCallbacks{
		Again:     func() { r.Change(func() { clear(r.Delay); clear(r.Fail) }) },
		Container: func(*Container) { count++ }, Sandbox: func(*PodSandbox) {},
	})
	if err != nil || count == 0 {
		t.Errorf("AllContainers() passed %d containers, error %v, want some and none", count, err)
	}
}

// A list that makes progress is complete after several timeouts. One that stops, or takes maxSlow
// timeouts, ends with DeadlineExceeded.
func TestSlowListIsComplete(t *testing.T) {
	t.Parallel()
	const n, piece = 5000, 4 * minProgress
	large := message(t, n, 1000) // 20 pieces
	for name, c := range map[string]struct {
		pause   time.Duration // after each piece
		stop    int           // bytes sent before the server hangs; 0: all
		timeout time.Duration
		want    error
	}{
		"slow":     {150 * time.Millisecond, 0, time.Second, nil},
		"hangs":    {0, 2 * piece, 50 * time.Millisecond, context.DeadlineExceeded},
		"too slow": {100 * time.Millisecond, 0, 130 * time.Millisecond, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := answers(t, func(w http.ResponseWriter, _ bool) {
				for rest, sent := large, 0; len(rest) > 0; {
					n := min(piece, len(rest))
					if _, err := w.Write(rest[:n]); err != nil || c.stop > 0 && sent >= c.stop {
						<-t.Context().Done()
						return
					}
					w.(http.Flusher).Flush()
					rest, sent = rest[n:], sent+n
					<-time.After(c.pause)
				}
				w.Header().Set("Grpc-Status", "0")
			})
			client.timeouts.list = c.timeout
			images, err := client.ListImages(t.Context())
			if !errors.Is(err, c.want) || err == nil && len(images) != n {
				t.Errorf("list = %d images, error %v, want %d or error %v", len(images), err, n, c.want)
			}
		})
	}
}

// A compressed message is requested again with gRPC, which can decompress it.
func TestCompressedAnswerIsRetriedWithGRPC(t *testing.T) {
	text := message(t, 3, 0)
	asked := 0
	client := answers(t, func(w http.ResponseWriter, grpc bool) {
		if asked++; !grpc {
			_, _ = w.Write([]byte{1, 0, 0, 0, 0})
		} else {
			_, _ = w.Write(text)
		}
		w.Header().Set("Grpc-Status", "0")
	})
	if images, err := client.ListImages(t.Context()); err != nil || len(images) != 3 || asked != 2 {
		t.Errorf("list = %d images after %d calls, error %v, want 3 after 2", len(images), asked, err)
	}
}

// A large list that breaks off or ends with an error is an error and never a partial list.
func TestLargeListIsCompleteOrAnError(t *testing.T) {
	large := message(t, 1100, 1000)
	bad := append([]byte{}, large...)
	bad[len(bad)-1003] = 0x0f // an invalid tag in the last image
	longer := append([]byte{}, large...)
	binary.BigEndian.PutUint32(longer[1:], uint32(len(large)))
	for name, c := range map[string]struct {
		text []byte
		end  func(w http.ResponseWriter)
		want string
	}{
		"ends early":    {longer, func(w http.ResponseWriter) { w.Header().Set("Grpc-Status", "0") }, "broke off after"},
		"is cut off":    {large[:len(large)/2], func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "broke off after"},
		"goes on":       {append(append([]byte{}, large...), 1), func(w http.ResponseWriter) { w.Header().Set("Grpc-Status", "0") }, "continues after its message"},
		"has no status": {large, func(http.ResponseWriter) {}, "has no status"},
		"is malformed":  {bad, func(w http.ResponseWriter) { w.Header().Set("Grpc-Status", "0") }, "malformed"},
		"fails at its end": {large, func(w http.ResponseWriter) {
			w.Header().Set("Grpc-Status", "13")
			w.Header().Set("Grpc-Message", "no more")
		}, "no more"},
	} {
		client := answers(t, func(w http.ResponseWriter, grpc bool) {
			if grpc {
				t.Errorf("the list that %s was repeated with gRPC", name)
			}
			_, _ = w.Write(c.text)
			w.(http.Flusher).Flush()
			c.end(w)
		})
		if images, err := client.ListImages(t.Context()); err == nil || images != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("list that %s = %d images, %v, want error %q", name, len(images), err, c.want)
		}
	}
}
