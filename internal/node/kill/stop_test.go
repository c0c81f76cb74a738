package kill

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/cri/critest"
	"jettison/eviction"
	"jettison/stats"
)

// pinned creates a pod with a container and a sandbox process, and pins it. end kills the processes of one of its cgroups.
func pinned(t *testing.T) (v *Victim, end func(cgroup string)) {
	t.Helper()
	fs, p := pod(t)
	top := filepath.Join(fs.Mount(), p.Cgroup)
	dir := filepath.Join(top, "pause")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Rmdir(dir) })
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if v, err = Pin(fs, p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v, func(name string) {
		if err := os.WriteFile(filepath.Join(top, name, "cgroup.kill"), []byte("1"), 0); err != nil {
			t.Error(err)
		}
	}
}

// obey makes the fake kill processes as a runtime does.
func obey(r *critest.Runtime, end func(string)) {
	r.Answer["StopContainer"] = func(m any) any { end("container"); return m }
	r.Answer["StopPodSandbox"] = func(m any) any { end("pause"); return m }
}

func seconds(r *critest.Runtime) (out []int64) {
	r.Change(func() {
		for _, s := range r.Stops {
			out = append(out, s.GetTimeout())
		}
	})
	return out
}

// Stop also stops the sandbox: its process lives in the pod's cgroup, and StopContainer does not end it.
func TestStopEndsContainersThenSandboxes(t *testing.T) {
	v, end := pinned(t)
	r, c := fake(t)
	obey(r, end)
	if err := v.Stop(t.Context(), c, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := seconds(r); !slices.Equal(got, []int64{600}) || r.Calls("StopPodSandbox") == 0 {
		t.Errorf("grace periods = %v with %d calls of StopPodSandbox, want [600] and some", got, r.Calls("StopPodSandbox"))
	}
	if err := v.WaitEmpty(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// With any answers of the runtime the pod is dead soon after its grace period, and not before.
func TestStopKillsWhatTheRuntimeDoesNot(t *testing.T) {
	for name, spoil := range map[string]func(*critest.Runtime){
		"hangs in StopContainer":           func(r *critest.Runtime) { r.Hang["StopContainer"] = true },
		"hangs in all lists":               func(r *critest.Runtime) { r.Hang["ListPodSandbox"], r.Hang["ListContainers"] = true, true },
		"fails":                            func(r *critest.Runtime) { r.Fail["StopContainer"] = status.Error(codes.Internal, "no") },
		"reports success and does nothing": func(*critest.Runtime) {},
		"hangs in StopPodSandbox":          func(r *critest.Runtime) { r.Hang["StopPodSandbox"] = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _ := pinned(t)
			r, c := fake(t)
			spoil(r)
			start := time.Now()
			err := v.Stop(t.Context(), c, -time.Second)
			if took := time.Since(start); err != nil || took < stopBound || took > stopBound+eviction.DieLimit {
				t.Errorf("Stop = %v after %v, want nil between %v and %v", err, took, stopBound, stopBound+eviction.DieLimit)
			}
			if v.WaitEmpty(t.Context(), 0) != nil {
				t.Error("the victim is alive after Stop")
			}
		})
	}
}

// The pod gets its grace period although a list of all containers by another caller hangs and blocks others.
func TestHangingListLeavesTheGracePeriod(t *testing.T) {
	t.Parallel()
	v, end := pinned(t)
	r, c := fake(t)
	obey(r, end)
	r.Hang["ListContainers"] = true
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 3 {
		go func() {
			_ = c.AllContainers(ctx, nil, cri.ContainerCallbacks{Container: func(*cri.Container) {}, Again: func() {}})
		}()
	}
	await(t, r, "ListContainers", 1)
	r.Change(func() { r.Hang["ListContainers"] = false })
	const grace = 6 // seconds
	err := v.Stop(t.Context(), c, grace*time.Second)
	if got := seconds(r); err != nil || v.Killed() || len(got) == 0 || got[0] < grace/2 {
		t.Errorf("grace periods = %v s, killed by the kernel %v, error %v, want about %d s and no kill", got, v.Killed(), err, grace)
	}
}

// Containers end while the runtime hangs: the calls are abandoned.
func TestStopReturnsWhenTheCgroupIsEmpty(t *testing.T) {
	v, end := pinned(t)
	r, c := fake(t)
	r.Hang["StopContainer"] = true
	done := make(chan error)
	go func() { done <- v.Stop(t.Context(), c, time.Hour) }()
	await(t, r, "StopContainer", 1)
	end("container")
	end("pause")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A hard threshold is met while the grace period of a soft one runs.
func TestKillTakesOver(t *testing.T) {
	v, _ := pinned(t)
	r, c := fake(t)
	r.Hang["StopContainer"] = true
	done := make(chan error)
	go func() { done <- v.Stop(t.Context(), c, time.Hour) }()
	await(t, r, "StopContainer", 1)
	for range 10 {
		go func() { done <- v.Kill() }()
	}
	for range 11 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	v.Close()
	if err := v.Kill(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Kill after Close = %v, want os.ErrClosed", err)
	}
}

func TestStopEndsWithItsContext(t *testing.T) {
	v, end := pinned(t)
	r, c := fake(t)
	r.Hang["StopContainer"] = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- v.Stop(ctx, c, time.Hour) }()
	await(t, r, "StopContainer", 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Stop after the context ended = %v, want context.Canceled", err)
	}
	if v.WaitEmpty(t.Context(), 0) == nil {
		t.Error("the victim is dead after the context ended, want it alive")
	}
	end("container")
}

func await(t *testing.T, r *critest.Runtime, call string, n int) {
	t.Helper()
	for r.Calls(call) < n {
		select {
		case <-t.Context().Done():
			t.Fatalf("calls of %s = %d, want %d", call, r.Calls(call), n)
		case <-time.After(time.Millisecond):
		}
	}
}

func container(id string, state runtimev1.ContainerState) *runtimev1.Container {
	return &runtimev1.Container{Id: id, PodSandboxId: "s", State: state}
}

// A client restarts a stopped container, or starts a created one: Stop stops these too, in parallel.
func TestStopHandlesNewContainers(t *testing.T) {
	r, c := fake(t)
	r.Containers = append(r.Containers, container("sidecar", 1), container("created", 0))
	r.Hang["StopContainer"] = true
	v := &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{ids: []string{"s"}, since: Now()}}
	done := make(chan error)
	go func() { done <- v.Stop(t.Context(), c, time.Minute) }()
	await(t, r, "StopContainer", 3)
	r.Change(func() {
		r.Hang["StopContainer"] = false
		r.Containers[1].State = runtimev1.ContainerState_CONTAINER_EXITED
		r.Containers[2].State = runtimev1.ContainerState_CONTAINER_EXITED
		r.Containers = append(r.Containers, container("again", 1), container("late", 0))
	})
	await(t, r, "StopContainer", 5)
	r.Change(func() { // after the container "late" was stopped, which changes nothing while it is only created
		r.Containers[0].State = runtimev1.ContainerState_CONTAINER_EXITED
		r.Containers[4].State = runtimev1.ContainerState_CONTAINER_RUNNING
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.Change(func() {
		for _, c := range r.Containers {
			if c.State != runtimev1.ContainerState_CONTAINER_EXITED {
				t.Errorf("state of container %s = %v, want exited", c.Id, c.State)
			}
		}
		if r.Sandboxes[0].State != runtimev1.PodSandboxState_SANDBOX_NOTREADY {
			t.Error("the sandbox is ready after Stop, want not ready")
		}
	})
}

// stubborn is a runtime with a container that never stops.
type stubborn struct {
	Runtime
	err   error // of StopContainer
	calls int   // of StopContainer
}

func (r *stubborn) SandboxesOf(context.Context, string) ([]cri.PodSandbox, error) {
	return []cri.PodSandbox{{ID: "s"}}, nil
}

func (r *stubborn) ContainersOf(context.Context, string) ([]cri.Container, error) {
	return []cri.Container{{ID: "c", SandboxID: "s", State: cri.Running, Running: true}}, nil
}

func (r *stubborn) StopContainer(context.Context, string, time.Duration) error {
	r.calls++
	return r.err
}

// Stop retries a container that does not end, or a runtime that fails, with pauses.
func TestStopDoesNotSpin(t *testing.T) {
	for name, stopErr := range map[string]error{"fails": errors.New("not today"), "does nothing": nil} {
		synctest.Test(t, func(t *testing.T) {
			r, v := &stubborn{err: stopErr}, &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{ids: []string{"s"}, since: Now()}}
			err := v.Stop(t.Context(), r, 0)
			if err == nil || !strings.Contains(err.Error(), "stop pod u: ") || name == "fails" && !strings.Contains(err.Error(), "not today") {
				t.Errorf("%s: Stop = %v, want an error with the pod and the cause", name, err)
			}
			if r.calls < 2 || r.calls > 10 {
				t.Errorf("%s: %d calls of StopContainer in %v, want 2 to 10", name, r.calls, stopBound)
			}
		})
	}
}

// Remove retries: containerd refuses to remove a sandbox with a running container. It does not block the others.
func TestRemoveIsRepeated(t *testing.T) {
	r, c := fake(t)
	r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: "t", Metadata: &runtimev1.PodSandboxMetadata{Uid: "u"}, CreatedAt: 2})
	r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: "later", Metadata: &runtimev1.PodSandboxMetadata{Uid: "u"}, CreatedAt: time.Now().Add(time.Hour).UnixNano()})
	r.Fail["RemovePodSandbox"] = status.Error(codes.Unknown, "container is still running")
	v := &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{ids: []string{"gone", "s"}, since: Now()}}
	done := make(chan error)
	go func() { done <- v.Remove(t.Context(), c) }()
	await(t, r, "RemovePodSandbox", 6) // each of the three, twice
	r.Change(func() { clear(r.Fail) })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.Change(func() {
		if len(r.Sandboxes) != 1 || r.Sandboxes[0].Id != "later" || len(r.Containers) != 0 {
			t.Errorf("sandboxes %v and containers %v after Remove, want only sandbox later", r.Sandboxes, r.Containers)
		}
	})
	r.Change(func() { r.Fail["ListPodSandbox"] = status.Error(codes.Unavailable, "down") })
	if err := v.Remove(t.Context(), c); err != nil {
		t.Errorf("Remove with settled sandboxes = %v, want nil without a list", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	v = &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{ids: []string{"s"}, since: Now()}}
	if err := v.Remove(ctx, c); err == nil || !strings.Contains(err.Error(), "remove leftovers of pod u") {
		t.Errorf("Remove after the context ended = %v, want an error naming pod u", err)
	}
}

// A cgroup that was replaced is not pinned, and no descriptor leaks.
func TestPinLeavesNoDescriptor(t *testing.T) {
	fs, p := pod(t)
	before := descriptors(t)
	for _, id := range []cgroup.ID{{}, {Ino: 1}} {
		p.CgroupID = stats.CgroupID(id)
		if v, err := Pin(fs, p); err == nil {
			v.Close()
			v.Close()
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("open descriptors after Pin = %d, want %d as before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
