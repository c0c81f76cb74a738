package cri

import (
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

func dial(t *testing.T, endpoint string) *Client {
	t.Helper()
	c, err := Dial(endpoint, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// node returns a fake with one pod of two sandboxes and three containers.
func node(t *testing.T) *critest.Runtime {
	r := critest.Start(t)
	r.Sandboxes = []*runtimev1.PodSandbox{
		{Id: "s1", Metadata: &runtimev1.PodSandboxMetadata{Uid: "u", Name: "web", Namespace: "default", Attempt: 1}, CreatedAt: 2e9, Annotations: map[string]string{"a": "b", "jettison/a": "b"}},
		{Id: "s0", Metadata: &runtimev1.PodSandboxMetadata{Uid: "u", Name: "web", Namespace: "default"}, State: runtimev1.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 1e9},
	}
	r.Containers = []*runtimev1.Container{
		{Id: "c1", PodSandboxId: "s1", Metadata: &runtimev1.ContainerMetadata{Name: "app"}, State: runtimev1.ContainerState_CONTAINER_RUNNING},
		{Id: "c2", PodSandboxId: "s1", Metadata: &runtimev1.ContainerMetadata{Name: "new"}, State: runtimev1.ContainerState_CONTAINER_CREATED},
		{Id: "c0", PodSandboxId: "s0", Metadata: &runtimev1.ContainerMetadata{Name: "app"}, State: runtimev1.ContainerState_CONTAINER_EXITED},
	}
	r.Info["s1"] = `{"pid":1,"config":{"linux":{"cgroup_parent":"/kubepods/burstable/podu"}},"runtimeSpec":{"linux":{"cgroupsPath":"/x/s1"}}}`
	r.Info["s0"] = `{"runtimeSpec":{"linux":{"cgroupsPath":"kubepods-podu.slice:cri-containerd:s0"}}}`
	r.Info["c1"] = `{"runtimeSpec":{"process":{"oomScoreAdj":934},"linux":{"resources":{"memory":{"limit":4096}}}}}`
	r.Info["c2"] = `no JSON`
	return r
}

func TestList(t *testing.T) {
	r := node(t)
	l := NewLister(dial(t, r.Endpoint()))
	got, err := l.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s1, s0 := got.Sandboxes[0], got.Sandboxes[1]
	if !s1.Ready || s1.UID != "u" || s1.CgroupParent != "/kubepods/burstable/podu" || s1.Annotations["jettison/a"] != "b" || len(s1.Annotations) != 1 || !s1.CreatedAt.Equal(time.Unix(2, 0)) {
		t.Errorf("sandbox s1 = %+v, want it ready with its details", s1)
	}
	if s0.Ready || s0.CgroupParent != "kubepods-podu.slice" {
		t.Errorf("sandbox s0 = %+v, want it not ready with its cgroup", s0)
	}
	if len(got.Containers) != 3 || got.Containers[2].State != Exited || got.Containers[2].Running {
		t.Fatalf("want three containers, the last one dead: %+v", got.Containers)
	}
	c1, c2 := got.Containers[0], got.Containers[1]
	if !c1.Running || c1.OOMScoreAdj == nil || *c1.OOMScoreAdj != 934 || c1.MemoryLimit == nil || *c1.MemoryLimit != 4096 {
		t.Errorf("container c1 = %+v, want it running with its details", c1)
	}
	if c2.Running || c2.OOMScoreAdj != nil || c2.MemoryLimit != nil {
		t.Errorf("container c2 without verbose status = %+v, want no details", c2)
	}
}

// Details that do not change are requested once, and dropped with their object.
func TestDetailsAreRequestedOnce(t *testing.T) {
	r := node(t)
	l := NewLister(dial(t, r.Endpoint()))
	for range 3 {
		if _, err := l.List(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s, c := r.Calls("PodSandboxStatus"), r.Calls("ContainerStatus"); s != 2 || c != 2 {
		t.Errorf("status calls = %d for sandboxes and %d for containers, want 2 and 2", s, c)
	}
	r.Change(func() { r.Sandboxes, r.Containers = nil, nil })
	if _, err := l.List(t.Context()); err != nil || len(l.sandboxes)+len(l.containers) != 0 {
		t.Errorf("cache holds %d sandboxes and %d containers, want none; error %v", len(l.sandboxes), len(l.containers), err)
	}
}

// A sandbox that disappears between the list and its status is no error, and neither is a failed
// status.
func TestDetailsThatFailAreAbsent(t *testing.T) {
	r := node(t)
	r.Fail["PodSandboxStatus"] = status.Error(codes.NotFound, "gone")
	r.Fail["ContainerStatus"] = status.Error(codes.Internal, "broken")
	l := NewLister(dial(t, r.Endpoint()))
	got, err := l.List(t.Context())
	if err != nil || got.Sandboxes[0].CgroupParent != "" || got.Containers[0].OOMScoreAdj != nil {
		t.Fatalf("List() = %+v, %v, want no details and no error", got, err)
	}
	r.Change(func() { clear(r.Fail) })
	if got, err = l.List(t.Context()); err != nil || got.Containers[0].OOMScoreAdj == nil {
		t.Errorf("a failed status is not requested again: %+v, %v", got.Containers[0], err)
	}
}

// A hung runtime delays the caller until its deadline, and does not block other calls.
func TestHungRuntimeCostsOnlyTheDeadline(t *testing.T) {
	r := node(t)
	r.Hang["ListPodSandbox"] = true
	c := dial(t, r.Endpoint())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := NewLister(c).List(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("List() error = %v, want DeadlineExceeded", err)
	}
	if _, err := c.Version(t.Context()); err != nil {
		t.Errorf("Version() error while a list hangs = %v", err)
	}
}

// If the caller's deadline passes while details are requested, List returns the known ones.
func TestDetailsThatHangAreAbsent(t *testing.T) {
	r := node(t)
	r.Hang["ContainerStatus"] = true
	got, err := hurriedList(t, NewLister(dial(t, r.Endpoint())), r, "ContainerStatus")
	if err != nil || len(got.Containers) != 3 || got.Sandboxes[0].CgroupParent == "" {
		t.Errorf("List() = %+v, %v, want three containers and the sandbox details", got, err)
	}
}

// hurriedList lists with a deadline that passes during a hanging call. It retries with more time on
// a busy machine.
func hurriedList(t *testing.T, l *Lister, r *critest.Runtime, call string) (Listing, error) {
	t.Helper()
	for wait := 200 * time.Millisecond; ; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		got, err := l.List(ctx)
		cancel()
		if r.Calls(call) > 0 || wait > time.Minute {
			return got, err
		}
	}
}

func TestClientReconnectsAfterRestart(t *testing.T) {
	r := node(t)
	c := dial(t, r.Endpoint())
	if _, err := c.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	if _, err := c.Version(t.Context()); err == nil {
		t.Fatal("Version() succeeded with a stopped runtime")
	}
	r.Restart(t)
	for ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second); ; {
		_, err := c.Version(ctx)
		if err == nil {
			cancel()
			return
		}
		if ctx.Err() != nil {
			cancel()
			t.Fatal(err)
		}
	}
}

func TestStop(t *testing.T) {
	r := node(t)
	c := dial(t, r.Endpoint())
	if err := c.StopPodSandbox(t.Context(), "s1"); err != nil || r.Sandboxes[0].State != runtimev1.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("StopPodSandbox() error = %v, want none and a sandbox that is not ready", err)
	}
	if err := c.StopPodSandbox(t.Context(), "gone"); err != nil {
		t.Errorf("StopPodSandbox() error for a missing sandbox = %v", err)
	}
	if n, err := c.Running(t.Context(), "s1"); n != 1 || err != nil {
		t.Errorf("Running() = %d, %v, want 1", n, err)
	}
	of, err := c.SandboxesOf(t.Context(), "u")
	if err != nil || len(of) != 2 || of[0].ID != "s1" || of[1].ID != "s0" {
		t.Errorf("SandboxesOf(u) = %v, %v, want s1 and s0", of, err)
	}
}

// Grace periods are converted to seconds, rounded up, at least 0, without an overflow of the
// timeout.
func TestStopContainer(t *testing.T) {
	r := node(t)
	c := dial(t, r.Endpoint())
	for _, grace := range []time.Duration{-time.Hour, 0, 1, time.Second, time.Second + 1, math.MaxInt64} {
		if err := c.StopContainer(t.Context(), "c1", grace); err != nil {
			t.Errorf("StopContainer() error with grace period %v = %v", grace, err)
		}
	}
	var got []int64
	r.Change(func() {
		for _, s := range r.Stops {
			got = append(got, s.GetTimeout())
		}
	})
	if want := []int64{0, 0, 1, 1, 2, 365 * 24 * 3600}; !slices.Equal(got, want) {
		t.Errorf("timeouts in seconds = %v, want %v", got, want)
	}
	if err := c.StopContainer(t.Context(), "gone", time.Second); err != nil {
		t.Errorf("StopContainer() error for a missing container = %v", err)
	}
	r.Change(func() { r.Fail["StopContainer"] = status.Error(codes.Unknown, "no") })
	if err := c.StopContainer(t.Context(), "c1", 0); err == nil || !strings.Contains(err.Error(), "stop container c1 at runtime "+r.Endpoint()) {
		t.Errorf("error = %v, want the runtime's message and the operation", err)
	}
	r.Change(func() { r.Hang["StopContainer"] = true })
	c.timeouts.change = 50 * time.Millisecond
	if err := c.StopContainer(t.Context(), "c1", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("StopContainer() error with a hung runtime = %v", err)
	}
}

func TestContainersOfASandbox(t *testing.T) {
	r := critest.Start(t)
	for i, state := range []runtimev1.ContainerState{0, 1, 2, 3} {
		r.Containers = append(r.Containers, &runtimev1.Container{
			Id: state.String(), PodSandboxId: "s", State: state, Metadata: &runtimev1.ContainerMetadata{Name: "n" + strconv.Itoa(i)},
		})
	}
	other := &runtimev1.Container{Id: "other", PodSandboxId: "t", State: runtimev1.ContainerState_CONTAINER_RUNNING}
	r.Answer["ListContainers"] = func(m any) any { // a runtime that does not filter
		res := m.(*runtimev1.ListContainersResponse)
		res.Containers = append(res.Containers, other)
		return res
	}
	c := dial(t, r.Endpoint())
	got, err := c.ContainersOf(t.Context(), "s")
	var states []string
	for _, one := range got {
		states = append(states, one.Name+" "+one.State.String())
	}
	if want := []string{"n0 created", "n1 running", "n3 unknown"}; err != nil || !slices.Equal(states, want) {
		t.Errorf("ContainersOf() = %v, %v, want %v", states, err, want)
	}
}

func TestRemovePodSandbox(t *testing.T) {
	r := node(t)
	c := dial(t, r.Endpoint())
	for range 2 {
		if err := c.RemovePodSandbox(t.Context(), "s1"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.ContainersOf(t.Context(), "s1"); len(got) != 0 || err != nil {
		t.Errorf("containers of a removed sandbox = %v, %v, want none", got, err)
	}
	r.Change(func() { r.Fail["RemovePodSandbox"] = status.Error(codes.Unknown, "container is still running") })
	if err := c.RemovePodSandbox(t.Context(), "s0"); err == nil || !strings.Contains(err.Error(), "still running") {
		t.Errorf("error = %v, want the runtime's message and the operation", err)
	}
}

// A server that is no CRI runtime is distinguished from one that does not answer.
func TestNotCRI(t *testing.T) {
	socket := func(serve func(net.Listener)) string {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go serve(l)
		return "unix://" + path
	}
	server := grpc.NewServer()
	t.Cleanup(server.Stop)
	for name, c := range map[string]struct {
		endpoint string
		notCRI   bool
		text     string
	}{
		// It may be a hung runtime, which must not be reported as ErrNotCRI.
		"one that accepts and says nothing": {socket(func(net.Listener) {}), false, "closed network connection"},
		"another gRPC service":              {socket(func(l net.Listener) { _ = server.Serve(l) }), true, "unknown service runtime.v1.RuntimeService"},
		"a web server": {socket(func(l net.Listener) {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
				conn.Close()
			}
		}), false, ""},
		"nothing": {"unix:///nowhere/at/all.sock", false, "no such file"},
	} {
		_, err := patient(dial(t, c.endpoint)).Version(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.text) || c.notCRI && !errors.Is(err, ErrNotCRI) || !c.notCRI && c.text != "" && errors.Is(err, ErrNotCRI) {
			t.Errorf("Version() error for %s = %v, want %q, ErrNotCRI: %v", name, err, c.text, c.notCRI)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for _, bad := range []string{"", "run/x.sock", "tcp://127.0.0.1:1", "unix://x.sock", "npipe:////./pipe/x"} {
		if c, err := Dial(bad, ""); err == nil {
			c.Close()
			t.Errorf("Dial(%q) succeeded, want an error", bad)
		}
	}
	for _, good := range []string{"/run/x.sock", "unix:/run/x.sock", "unix:///run/x.sock"} {
		if c := dial(t, good); c.Endpoint() != "unix:///run/x.sock" {
			t.Errorf("endpoint of a client of %q = %s, want unix:///run/x.sock", good, c.Endpoint())
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
