package cri

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/soheilhy/cmux"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

// crioSandbox returns a verbose status of CRI-O: the OCI spec, with the resources of the whole pod
// as JSON in annotations.
func crioSandbox(annotations string) string {
	return `{"image":"pause","pid":7,"runtimeSpec":{"annotations":{"io.kubernetes.cri-o.SandboxName":"p",` + annotations +
		`"io.kubernetes.cri-o.TTY":"false"},"linux":{"cgroupsPath":"kubepods-burstable-podu.slice:crio:s"}}}`
}

// CRI-O serves gRPC and HTTP/1 on one socket with a multiplexer, which compares the content type of
// a connection's first request with "application/grpc" (cri-o cmd/crio/main.go, 1.37).
func TestCRIOMultiplexer(t *testing.T) {
	r := critest.StartBehind(t, func(l net.Listener) net.Listener {
		mux := cmux.New(l)
		grpc := mux.MatchWithWriters(cmux.HTTP2MatchHeaderFieldSendSettings("content-type", "application/grpc"))
		mux.Match(cmux.HTTP1Fast())
		done := make(chan struct{})
		go func() { defer close(done); _ = mux.Serve() }()
		t.Cleanup(func() { _ = l.Close(); <-done })
		return grpc
	})
	r.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", State: runtimev1.PodSandboxState_SANDBOX_READY}}
	r.Streams = true
	l := NewLister(dial(t, r.Endpoint()))
	for i, transport := range []string{"one that decodes while it receives", "gRPC"} {
		got, err := l.List(t.Context())
		if err != nil || len(got.Sandboxes) != 1 {
			t.Errorf("list %d, by the transport %s, behind CRI-O's multiplexer: %d sandboxes, %v, want 1", i, transport, len(got.Sandboxes), err)
		}
	}
}

// CRI-O has no config in its verbose status. A pod's overhead and resources are in annotations of
// the OCI spec, under an old or a new name. CRI-O adds the pod's own annotations after them, so an
// annotation that the pod has too is ignored.
func TestCRIOPodResources(t *testing.T) {
	const (
		overhead    = `"io.kubernetes.cri-o.PodLinuxOverhead":"{\"cpu_period\":100000,\"memory_limit_in_bytes\":4096}",`
		resources   = `"io.kubernetes.cri-o.PodLinuxResources":"{\"cpu_shares\":512,\"memory_limit_in_bytes\":8192}",`
		newOverhead = `"pod-linux-overhead.crio.io":"{\"memory_limit_in_bytes\":4096}",`
	)
	many := map[string]string{"pod-linux-overhead.crio.io": strings.Repeat("x", maxText+1)}
	for i := range 2 * maxEntries {
		many[fmt.Sprint("io.kubernetes.", i)] = ""
	}
	for _, c := range []struct {
		what, info              string
		own                     map[string]string
		overhead, memory, share int // -1: absent
	}{
		{"both", crioSandbox(overhead + resources), nil, 4096, 8192, 512},
		{"by the new name", crioSandbox(newOverhead), nil, 4096, -1, -1},
		{"none", crioSandbox(`"io.kubernetes.cri-o.PodLinuxOverhead":"{}","io.kubernetes.cri-o.PodLinuxResources":"{}",`), nil, 0, -1, -1},
		{"a kubelet that says nothing", crioSandbox(`"io.kubernetes.cri-o.PodLinuxOverhead":"null",`), nil, -1, -1, -1},
		{"an older one", crioSandbox(""), nil, -1, -1, -1},
		{"the pod's own word", crioSandbox(overhead + resources), map[string]string{"io.kubernetes.cri-o.PodLinuxOverhead": "x"}, -1, 8192, 512},
		{"its own by the other name", crioSandbox(strings.Replace(newOverhead, "4096", "1", 1) + overhead), map[string]string{"pod-linux-overhead.crio.io": ""}, 4096, -1, -1},
		{"among many, and long", crioSandbox(newOverhead), many, -1, -1, -1},
		{"no JSON", crioSandbox(`"io.kubernetes.cri-o.PodLinuxOverhead":"{",`), nil, -1, -1, -1},
		{"another type", crioSandbox(`"io.kubernetes.cri-o.PodLinuxOverhead":{"memory_limit_in_bytes":4096},`), nil, -1, -1, -1},
		{"less than nothing", crioSandbox(`"io.kubernetes.cri-o.PodLinuxOverhead":"{\"memory_limit_in_bytes\":-1}",`), nil, -1, -1, -1},
	} {
		r := critest.Start(t)
		r.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", State: runtimev1.PodSandboxState_SANDBOX_READY, Annotations: c.own}}
		r.Info["s"] = c.info
		l, err := NewLister(dial(t, r.Endpoint())).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := l.Sandboxes[0]
		got := fmt.Sprint(told(s.Overhead), told(s.MemoryLimit), told(s.CPUShares))
		if want := fmt.Sprint(c.overhead, c.memory, c.share); got != want || s.PID != 7 || s.CgroupParent != "kubepods-burstable-podu.slice" {
			t.Errorf("%s: overhead, limit and shares are %s, want %s; %+v", c.what, got, want, s)
		}
	}
}

func told(v *uint64) int {
	if v == nil {
		return -1
	}
	return int(*v)
}
