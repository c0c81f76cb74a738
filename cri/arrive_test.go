package cri

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// answers serves what handle writes to every call. grpc: it is gRPC that asks.
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

// message is a list of n images, as gRPC sends it.
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

// A large list is taken while it comes, for as long as it is large; one that is not, as ever.
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

// One that breaks, or whose call has failed after all, is an error and never half a list.
func TestALargeListIsWholeOrAnError(t *testing.T) {
	large := message(t, 1100, 1000)
	bad := append([]byte{}, large...)
	bad[len(bad)-1003] = 0x0f // the last image's tag for its user is none that there is
	longer := append([]byte{}, large...)
	binary.BigEndian.PutUint32(longer[1:], uint32(len(large)))
	for name, c := range map[string]struct {
		text []byte
		end  func(w http.ResponseWriter)
		want string
	}{
		"ends early":    {longer, func(w http.ResponseWriter) { w.Header().Set("Grpc-Status", "0") }, "broke after"},
		"is cut off":    {large[:len(large)/2], func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "broke after"},
		"goes on":       {append(append([]byte{}, large...), 1), func(w http.ResponseWriter) { w.Header().Set("Grpc-Status", "0") }, "does not end"},
		"has no status": {large, func(http.ResponseWriter) {}, "without a status"},
		"is malformed":  {bad, func(w http.ResponseWriter) { w.Header().Set("Grpc-Status", "0") }, "malformed"},
		"fails at its end": {large, func(w http.ResponseWriter) {
			w.Header().Set("Grpc-Status", "13")
			w.Header().Set("Grpc-Message", "no more")
		}, "no more"},
	} {
		client := answers(t, func(w http.ResponseWriter, grpc bool) {
			if grpc {
				t.Errorf("%s: asked for again", name)
			}
			_, _ = w.Write(c.text)
			w.(http.Flusher).Flush()
			c.end(w)
		})
		if images, err := client.ListImages(t.Context()); err == nil || images != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d images, %v, want %q", name, len(images), err, c.want)
		}
	}
}
