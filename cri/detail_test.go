package cri

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cri/critest"
)

func TestSandboxDetails(t *testing.T) {
	r := node(t)
	r.Sandboxes[0].RuntimeHandler = "kata"
	r.Info["s1"] = containerdSandbox
	r.Info["s0"] = `{"pid":77,"resources":{"linux":{"cpu_shares":512}},"config":{"linux":{"overhead":{"memory_limit_in_bytes":4096},` +
		`"resources":{"cpu_shares":256,"memory_limit_in_bytes":8192}}}}`
	got, err := NewLister(dial(t, r.Endpoint())).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s1, s0 := got.Sandboxes[0], got.Sandboxes[1]
	if s1.RuntimeHandler != "kata" || s1.CgroupParent != "/kubepods/burstable/podu" || s1.PID != 4242 {
		t.Errorf("sandbox s1 = %+v, want its details", s1)
	}
	if s0.PID != 0 {
		t.Errorf("sandbox s0 that is not ready = %+v, want no PID", s0)
	}
	if s0.CPUShares == nil || *s0.CPUShares != 256 || s0.MemoryLimit == nil || *s0.MemoryLimit != 8192 || s0.Overhead == nil || *s0.Overhead != 4096 {
		t.Errorf("sandbox s0 = %+v, want its resources", s0)
	}
}

// An exited container counts in its pod's request: its cached details stay, and missing ones are
// requested once, with low priority, while its sandbox is ready.
func TestExitedContainerDetailsAreRequestedOnce(t *testing.T) {
	r := critest.Start(t)
	r.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", State: runtimev1.PodSandboxState_SANDBOX_READY}, {Id: "gone", State: runtimev1.PodSandboxState_SANDBOX_NOTREADY}}
	dead := func(id, sandbox string) *runtimev1.Container {
		r.Info[id] = crioContainer
		return &runtimev1.Container{Id: id, PodSandboxId: sandbox, State: runtimev1.ContainerState_CONTAINER_EXITED}
	}
	for i := range refreshMax + 5 {
		r.Containers = append(r.Containers, dead(fmt.Sprint("c", i), "s"))
	}
	r.Containers = append(r.Containers, dead("of a dead sandbox", "gone"),
		&runtimev1.Container{Id: "alive", PodSandboxId: "gone", State: runtimev1.ContainerState_CONTAINER_RUNNING})
	r.Info["alive"] = crioContainer
	l := NewLister(dial(t, r.Endpoint()))
	now := time.Unix(1e6, 0)
	l.now = func() time.Time { return now }
	for i, want := range []struct{ calls, known int }{{refreshMax + 1, refreshMax + 1}, {refreshMax + 6, refreshMax + 6}, {refreshMax + 6, refreshMax + 6}} {
		got, err := l.List(t.Context())
		known := 0
		for _, c := range got.Containers {
			if c.OOMScoreAdj != nil {
				known++
			}
		}
		if calls := r.Calls("ContainerStatus"); err != nil || calls != want.calls || known != want.known {
			t.Errorf("list %d: %d status calls, %d details known, want %+v, %v", i, calls, known, want, err)
		}
		now = now.Add(time.Second)
	}
	r.Change(func() { r.Containers[len(r.Containers)-1].State = runtimev1.ContainerState_CONTAINER_EXITED })
	got, err := l.List(t.Context())
	if c := got.Containers[len(got.Containers)-1]; err != nil || c.State != Exited || c.OOMScoreAdj == nil || c.PID != 0 {
		t.Errorf("cached details of an exited container are lost: %+v, %v", c, err)
	}
}

func TestContainerDetails(t *testing.T) {
	r := node(t)
	r.Containers[0].Image, r.Containers[0].ImageRef, r.Containers[0].ImageId = &runtimev1.ImageSpec{Image: "a:1"}, "a@sha256:1", "sha256:1"
	r.Containers[0].Labels, r.Containers[0].Annotations, r.Containers[0].CreatedAt = map[string]string{"io.kubernetes.pod.uid": "1", "l": "1"}, map[string]string{"a": "1"}, 3
	r.Containers[0].Metadata.Attempt = 5
	r.ContainerStatuses["c1"] = &runtimev1.ContainerStatus{
		LogPath: "/var/log/pods/x/0.log", StartedAt: 4,
		Mounts:    []*runtimev1.Mount{{HostPath: "/h", ContainerPath: "/c", Readonly: true}, {ContainerPath: "/i", Image: &runtimev1.ImageSpec{Image: "sha256:2"}}},
		Resources: &runtimev1.ContainerResources{Linux: &runtimev1.LinuxContainerResources{MemoryLimitInBytes: 8192, CpuQuota: -1, Unified: map[string]string{"memory.high": "1"}}},
	}
	r.Info["c1"] = crioContainer
	r.Info["c0"] = crioContainer
	got, err := NewLister(dial(t, r.Endpoint())).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	adj, memory, shares := int64(934), uint64(8192), uint64(512)
	want := Container{
		ID: "c1", SandboxID: "s1", Name: "app", Attempt: 5, State: Running, Running: true, CreatedAt: time.Unix(0, 3),
		PodUID: "1", ImageID: "sha256:1", ImageRef: "a@sha256:1", Image: "a:1",
		OOMScoreAdj: &adj, MemoryLimit: &memory, CPUShares: &shares, Unified: map[string]string{"memory.high": "1"}, Detailed: true,
		LogPath: "/var/log/pods/x/0.log", ImageVolumes: []string{"sha256:2"},
		PID: 4343, StartedAt: time.Unix(0, 4),
	}
	if !reflect.DeepEqual(got.Containers[0], want) {
		t.Errorf("container = %+v\nwant        %+v", got.Containers[0], want)
	}
	if dead := got.Containers[2]; dead.State != Exited || dead.PID != 0 || dead.OOMScoreAdj != nil || r.Calls("ContainerStatus") != 2 {
		t.Errorf("details of a dead container were requested: %+v", dead)
	}
}

func TestContainerStatus(t *testing.T) {
	r := node(t)
	r.ContainerStatuses["c0"] = &runtimev1.ContainerStatus{
		State: runtimev1.ContainerState_CONTAINER_EXITED, Metadata: &runtimev1.ContainerMetadata{Name: "app", Attempt: 2},
		CreatedAt: 1, StartedAt: 2, FinishedAt: 3, ExitCode: 137, Reason: "OOMKilled", Message: "too much",
	}
	r.ContainerStatuses["c0"].Resources = &runtimev1.ContainerResources{Linux: &runtimev1.LinuxContainerResources{CpuShares: 512}}
	c := dial(t, r.Endpoint())
	got, err := c.ContainerStatus(t.Context(), "c0")
	if err != nil || got.ID != "c0" || got.State != Exited || got.Running || got.Attempt != 2 || got.PID != 0 || *got.CPUShares != 512 {
		t.Errorf("answer = %+v, error %v, not as expected", got, err)
	}
	if got, err = c.ContainerStatus(t.Context(), "c1"); err != nil || got.State != Running {
		t.Errorf("status of a running container = %+v, %v", got, err)
	}
	if _, err = c.ContainerStatus(t.Context(), "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("error for a missing container = %v, want ErrNotFound", err)
	}
	r.Change(func() {
		r.Answer["ContainerStatus"] = func(any) any { return &runtimev1.ContainerStatusResponse{} }
	})
	if _, err = c.ContainerStatus(t.Context(), "c1"); err == nil {
		t.Error("ContainerStatus() accepted an empty answer")
	}
}

func TestContainerStateString(t *testing.T) {
	for state, want := range map[runtimev1.ContainerState]string{0: "created", 1: "running", 2: "exited", 3: "unknown", 4: "unknown", -1: "unknown"} {
		if got := stateOf(state).String(); got != want {
			t.Errorf("name of state %d = %s, want %s", state, got, want)
		}
	}
}

// Of repeated IDs the first item is listed. Items without an ID are omitted.
func TestDuplicatesAreOmitted(t *testing.T) {
	r := node(t)
	r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: "s1"}, &runtimev1.PodSandbox{})
	r.Containers = append(r.Containers, &runtimev1.Container{Id: "c1"}, &runtimev1.Container{})
	got, err := NewLister(dial(t, r.Endpoint())).List(t.Context())
	if err != nil || len(got.Sandboxes) != 2 || len(got.Containers) != 3 || got.Containers[0].Name != "app" {
		t.Errorf("answer = %+v, error %v, not as expected", got, err)
	}
}

// The details of a container are requested again after its start, and not while it keeps running.
func TestStartRefreshesDetails(t *testing.T) {
	r := node(t)
	l := NewLister(dial(t, r.Endpoint()))
	list := func() Listing {
		t.Helper()
		got, err := l.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	list()
	r.Change(func() {
		r.Containers[1].State = runtimev1.ContainerState_CONTAINER_RUNNING
		r.Info["c2"] = crioContainer
	})
	if got := list(); got.Containers[1].PID != 4343 || r.Calls("ContainerStatus") != 3 {
		t.Errorf("container after its start = %+v after %d status calls", got.Containers[1], r.Calls("ContainerStatus"))
	}
	r.Change(func() { r.Containers[1].State = runtimev1.ContainerState_CONTAINER_EXITED })
	if got := list(); got.Containers[1].PID != 0 || r.Calls("ContainerStatus") != 3 {
		t.Errorf("container after its end = %+v after %d status calls", got.Containers[1], r.Calls("ContainerStatus"))
	}
	r.Change(func() { r.Sandboxes[0].State = runtimev1.PodSandboxState_SANDBOX_NOTREADY })
	if got := list(); got.Sandboxes[0].PID != 0 || got.Sandboxes[0].CgroupParent == "" || r.Calls("PodSandboxStatus") != 2 {
		t.Errorf("sandbox after its end = %+v", got.Sandboxes[0])
	}
}

// Details are refreshed, the oldest first, and a limited number per List.
func TestDetailsAreRefreshed(t *testing.T) {
	r := critest.Start(t)
	for i := range refreshMax + 5 {
		id := fmt.Sprint("c", i)
		r.Containers = append(r.Containers, &runtimev1.Container{Id: id, State: runtimev1.ContainerState_CONTAINER_RUNNING})
		r.Info[id] = `{"runtimeSpec":{"linux":{"resources":{"memory":{"limit":4096}}}}}`
	}
	l := NewLister(dial(t, r.Endpoint()))
	now := time.Unix(1e6, 0)
	l.now = func() time.Time { return now }
	list := func(after time.Duration, calls int) Listing {
		t.Helper()
		now = now.Add(after)
		before := r.Calls("ContainerStatus")
		got, err := l.List(t.Context())
		if n := r.Calls("ContainerStatus") - before; err != nil || n != calls {
			t.Fatalf("status calls = %d, want %d; error %v", n, calls, err)
		}
		return got
	}
	limits := func(l Listing) (n int) {
		for _, c := range l.Containers {
			if c.MemoryLimit != nil && *c.MemoryLimit == 8192 {
				n++
			}
		}
		return n
	}
	list(0, refreshMax+5)
	r.Change(func() {
		for id := range r.Info {
			r.Info[id] = `{"runtimeSpec":{"linux":{"resources":{"memory":{"limit":8192}}}}}`
		}
	})
	if got := list(59*time.Second, 0); limits(got) != 0 {
		t.Errorf("limits refreshed within the minute = %d, want none", limits(got))
	}
	if got := list(time.Second, refreshMax); limits(got) != refreshMax {
		t.Errorf("limits refreshed by the first List = %d, not as expected", limits(got))
	}
	if got := list(time.Second, 5); limits(got) != refreshMax+5 {
		t.Errorf("limits refreshed in the end = %d, want all", limits(got))
	}
	r.Change(func() { r.Fail["ContainerStatus"] = status.Error(codes.Internal, "broken") })
	if got := list(time.Minute, refreshMax); limits(got) != refreshMax+5 {
		t.Errorf("failed refreshes lost the details of %d containers", refreshMax+5-limits(got))
	}
}

// If the runtime reports changes, the next List refreshes changed containers, and others when their
// details are five minutes old; without such reports when they are a minute old. A failed status is
// requested again soon.
func TestReportedChangesRefreshDetails(t *testing.T) {
	r := critest.Start(t)
	for _, id := range []string{"a", "b"} {
		r.Containers = append(r.Containers, &runtimev1.Container{Id: id, State: runtimev1.ContainerState_CONTAINER_RUNNING})
		r.Info[id] = crioContainer
	}
	l := NewLister(dial(t, r.Endpoint()))
	start := time.Unix(1e6, 0)
	now := start
	l.now = func() time.Time { return now }
	for i, c := range []struct {
		at      time.Duration
		told    bool
		changed map[string]bool
		want    int
	}{
		{0, true, nil, 2},
		{refreshAge - time.Second, true, map[string]bool{"a": true}, 1}, // and fails
		{refreshAge, true, nil, 0},
		{refreshAge - time.Second + retryAge, true, nil, 1},
		{2 * refreshAge, true, map[string]bool{"b": true, "gone": true}, 1},
		{2*refreshAge + time.Second, true, nil, 0},
		{refreshAge + retryAge + refreshTold, true, nil, 1}, // a
		{2*refreshAge + refreshTold, true, nil, 1},          // b
		{4*refreshAge + refreshTold, false, nil, 2},
	} {
		now = start.Add(c.at)
		before := r.Calls("ContainerStatus")
		if r.Change(func() { r.Fail = nil }); i == 1 {
			r.Change(func() { r.Fail = map[string]error{"ContainerStatus": status.Error(codes.Unavailable, "busy")} })
		}
		l.SetEvents(c.told, c.changed)
		if _, err := l.List(t.Context()); err != nil || r.Calls("ContainerStatus")-before != c.want {
			t.Errorf("list %d at %v: %d status calls, want %d; error %v", i, c.at, r.Calls("ContainerStatus")-before, c.want, err)
		}
	}
}

// Containers that change before each List, or that an object contradicts all the time, delay no other refresh
// for long.
func TestRepeatedChangesDelayNoOtherRefresh(t *testing.T) {
	r := critest.Start(t)
	changed := map[string]bool{}
	for i := range 2*refreshMax + 1 {
		id := fmt.Sprint("c", i)
		r.Containers = append(r.Containers, &runtimev1.Container{Id: id, State: runtimev1.ContainerState_CONTAINER_RUNNING})
		r.Info[id] = `{"runtimeSpec":{"linux":{"resources":{"memory":{"limit":4096}}}}}`
		if i < 2*refreshMax {
			changed[id] = true
		}
	}
	l := NewLister(dial(t, r.Endpoint()))
	start := time.Unix(1e6, 0)
	now := start
	l.now = func() time.Time { return now }
	if _, err := l.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Change(func() {
		for id := range r.Info {
			r.Info[id] = `{"runtimeSpec":{"linux":{"resources":{"memory":{"limit":8192}}}}}`
		}
	})
	for _, c := range []struct {
		after   time.Duration
		changed int
		other   bool
	}{{10 * time.Second, refreshMax, false}, {20 * time.Second, 2 * refreshMax, false}, {5 * time.Minute, 2 * refreshMax, true}} {
		for now.Sub(start) < c.after {
			now = now.Add(10 * time.Second)
			l.SetEvents(false, changed)
			got, err := l.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if now.Sub(start) < c.after {
				continue
			}
			n, other := 0, false
			for _, one := range got.Containers {
				if *one.MemoryLimit == 8192 {
					if changed[one.ID] {
						n++
					} else {
						other = true
					}
				}
			}
			if n != c.changed || other != c.other {
				t.Errorf("after %v, %d changed containers were read again and another one %v, want %d and %v", c.after, n, other, c.changed, c.other)
			}
		}
	}
}

// The details of a sandbox are refreshed when they are ten minutes old, and not before.
func TestSandboxDetailsAreRefreshedRarely(t *testing.T) {
	r := critest.Start(t)
	r.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", State: runtimev1.PodSandboxState_SANDBOX_READY}}
	l := NewLister(dial(t, r.Endpoint()))
	now := time.Unix(1e6, 0)
	l.now = func() time.Time { return now }
	for i, want := range []int{1, 1, 2} {
		now = time.Unix(1e6, 0).Add([]time.Duration{0, refreshSandbox - time.Second, refreshSandbox}[i])
		if _, err := l.List(t.Context()); err != nil || r.Calls("PodSandboxStatus") != want {
			t.Errorf("list %d: %d calls, want %d, %v", i, r.Calls("PodSandboxStatus"), want, err)
		}
	}
}

// A status that hangs costs its timeout, is delayed for a while, and is then requested after the
// others.
func TestHungStatusDoesNotBlockOthers(t *testing.T) {
	r := critest.Start(t)
	for _, id := range []string{"hung", "c1", "c2"} {
		r.Containers = append(r.Containers, &runtimev1.Container{Id: id, State: runtimev1.ContainerState_CONTAINER_RUNNING})
		r.Info[id] = crioContainer
	}
	c := dial(t, r.Endpoint())
	l := NewLister(c)
	now := time.Unix(1e6, 0)
	l.now = func() time.Time { return now }
	known := func(hang bool, after time.Duration) (ids []string) {
		t.Helper()
		r.Change(func() { r.Hang["ContainerStatus"] = hang })
		if c.timeouts = defaults; hang {
			c.timeouts.status = 200 * time.Millisecond
		}
		now = now.Add(after)
		got, err := l.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.Containers {
			if c.PID != 0 {
				ids = append(ids, c.ID)
			}
		}
		return ids
	}
	if ids := known(true, 0); len(ids) != 0 || r.Calls("ContainerStatus") != 1 {
		t.Errorf("first list: details of %v known after %d status calls", ids, r.Calls("ContainerStatus"))
	}
	if ids := known(false, time.Second); !slices.Equal(ids, []string{"c1", "c2"}) || r.Calls("ContainerStatus") != 3 {
		t.Errorf("next list: details of %v known after %d status calls", ids, r.Calls("ContainerStatus"))
	}
	if ids := known(false, retryAge); len(ids) != 3 {
		t.Errorf("later list: details of %v known", ids)
	}
}

// Details for which the caller's time did not suffice are requested first by the next List.
func TestCallerDeadlineIsNoTimeout(t *testing.T) {
	r := node(t)
	r.Hang["PodSandboxStatus"] = true
	l := NewLister(dial(t, r.Endpoint()))
	if got, err := hurriedList(t, l, r, "PodSandboxStatus"); err != nil || got.Sandboxes[0].CgroupParent != "" {
		t.Fatalf("answer = %+v, error %v, not as expected", got, err)
	}
	r.Change(func() { clear(r.Hang) })
	if got, err := l.List(t.Context()); err != nil || got.Sandboxes[0].CgroupParent == "" {
		t.Errorf("answer = %+v, error %v, not as expected", got, err)
	}
}

// Containers with the same values for files of their cgroups share one map.
func TestEqualUnifiedIsShared(t *testing.T) {
	r := node(t)
	for _, c := range []string{"c1", "c2"} {
		r.ContainerStatuses[c] = &runtimev1.ContainerStatus{Resources: &runtimev1.ContainerResources{
			Linux: &runtimev1.LinuxContainerResources{Unified: map[string]string{"memory.oom.group": "1"}}}}
	}
	got, err := NewLister(dial(t, r.Endpoint())).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, b := got.Containers[0].Unified, got.Containers[1].Unified
	if len(a) != 1 || a["memory.oom.group"] != "1" {
		t.Fatalf("unified = %v, want memory.oom.group 1", a)
	}
	if reflect.ValueOf(a).Pointer() != reflect.ValueOf(b).Pointer() {
		t.Errorf("two containers have maps of their own with %v, want one", b)
	}
}
