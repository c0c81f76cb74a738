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

// pinned makes a pod with a container and a sandbox process, and pins it. end ends the processes of one of its cgroups.
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

// obey has the fake end processes as a runtime does.
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

// The pod's cgroup also holds the sandbox's own process, which no StopContainer ends.
func TestStopEndsContainersThenSandboxes(t *testing.T) {
	v, end := pinned(t)
	r, c := fake(t)
	obey(r, end)
	if err := v.Stop(t.Context(), c, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := seconds(r); !slices.Equal(got, []int64{600}) || r.Calls("StopPodSandbox") == 0 {
		t.Errorf("grace %v, %d calls of StopPodSandbox", got, r.Calls("StopPodSandbox"))
	}
	if err := v.WaitEmpty(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// Nothing depends on the runtime's answer: whatever it does, the pod is dead soon after its grace period, and not before.
func TestStopKillsWhatTheRuntimeDoesNot(t *testing.T) {
	for name, spoil := range map[string]func(*critest.Runtime){
		"hangs in StopContainer":        func(r *critest.Runtime) { r.Hang["StopContainer"] = true },
		"hangs in all":                  func(r *critest.Runtime) { r.Hang["ListPodSandbox"], r.Hang["ListContainers"] = true, true },
		"fails":                         func(r *critest.Runtime) { r.Fail["StopContainer"] = status.Error(codes.Internal, "no") },
		"says that it did, and did not": func(*critest.Runtime) {},
		"hangs in StopPodSandbox":       func(r *critest.Runtime) { r.Hang["StopPodSandbox"] = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, _ := pinned(t)
			r, c := fake(t)
			spoil(r)
			start := time.Now()
			err := v.Stop(t.Context(), c, -time.Second)
			if took := time.Since(start); err != nil || took < stopBound || took > stopBound+eviction.DieLimit {
				t.Errorf("%v after %v", err, took)
			}
			if v.WaitEmpty(t.Context(), 0) != nil {
				t.Error("it lives")
			}
		})
	}
}

// A list of everything that somebody else asked for hangs, and others wait for it: the pod gets its grace period all the same.
func TestAListThatHangsLeavesTheGracePeriod(t *testing.T) {
	t.Parallel()
	v, end := pinned(t)
	r, c := fake(t)
	obey(r, end)
	r.Hang["ListContainers"] = true
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 3 {
		go func() { _ = c.AllContainers(ctx, nil, cri.Told{Container: func(*cri.Container) {}, Again: func() {}}) }()
	}
	await(t, r, "ListContainers", 1)
	r.Change(func() { r.Hang["ListContainers"] = false })
	const grace = 6 // seconds
	err := v.Stop(t.Context(), c, grace*time.Second)
	if got := seconds(r); err != nil || v.Killed() || len(got) == 0 || got[0] < grace/2 {
		t.Errorf("asked to stop within %v s; killed by the kernel: %v; %v", got, v.Killed(), err)
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

// A hard threshold trips while a soft one's grace period runs.
func TestAKillTakesOver(t *testing.T) {
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
		t.Errorf("killed after it was closed: %v", err)
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
		t.Errorf("got %v", err)
	}
	if v.WaitEmpty(t.Context(), 0) == nil {
		t.Error("killed, though nobody waits for it")
	}
	end("container")
}

func await(t *testing.T, r *critest.Runtime, call string, n int) {
	t.Helper()
	for r.Calls(call) < n {
		select {
		case <-t.Context().Done():
			t.Fatalf("%d calls of %s", r.Calls(call), call)
		case <-time.After(time.Millisecond):
		}
	}
}

func container(id string, state runtimev1.ContainerState) *runtimev1.Container {
	return &runtimev1.Container{Id: id, PodSandboxId: "s", State: state}
}

// Some client restarts what was stopped, or starts what was only created: it is stopped as well. All at the same time.
func TestStopLooksAgain(t *testing.T) {
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
				t.Errorf("%s: %v", c.Id, c.State)
			}
		}
		if r.Sandboxes[0].State != runtimev1.PodSandboxState_SANDBOX_NOTREADY {
			t.Error("the sandbox runs on")
		}
	})
}

// stubborn is a runtime with a container that runs for ever: how StopContainer fails, if it does, and how often it was asked.
type stubborn struct {
	Runtime
	err   error
	asked int
}

func (r *stubborn) SandboxesOf(context.Context, string) ([]cri.PodSandbox, error) {
	return []cri.PodSandbox{{ID: "s"}}, nil
}

func (r *stubborn) ContainersOf(context.Context, string) ([]cri.Container, error) {
	return []cri.Container{{ID: "c", SandboxID: "s", State: cri.Running, Running: true}}, nil
}

func (r *stubborn) StopContainer(context.Context, string, time.Duration) error {
	r.asked++
	return r.err
}

// A container that does not end, or a runtime that fails, is asked again, but not without pause.
func TestStopDoesNotSpin(t *testing.T) {
	for name, wrong := range map[string]error{"fails": errors.New("not today"), "lies": nil} {
		synctest.Test(t, func(t *testing.T) {
			r, v := &stubborn{err: wrong}, &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{ids: []string{"s"}, since: Now()}}
			err := v.Stop(t.Context(), r, 0)
			if err == nil || !strings.Contains(err.Error(), "stop pod u: ") || name == "fails" && !strings.Contains(err.Error(), "not today") {
				t.Errorf("%s: %v", name, err)
			}
			if r.asked < 2 || r.asked > 10 {
				t.Errorf("%s: asked %d times in %v", name, r.asked, stopBound)
			}
		})
	}
}

// containerd refuses to remove what it calls running; one sandbox that it does not remove keeps none of the others.
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
			t.Errorf("left: %v, %v", r.Sandboxes, r.Containers)
		}
	})
	r.Change(func() { r.Fail["ListPodSandbox"] = status.Error(codes.Unavailable, "down") })
	if err := v.Remove(t.Context(), c); err != nil {
		t.Errorf("its sandboxes are known, and it looks for others: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	v = &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{ids: []string{"s"}, since: Now()}}
	if err := v.Remove(ctx, c); err == nil || !strings.Contains(err.Error(), "remove what pod u left") {
		t.Errorf("got %v", err)
	}
}

// A cgroup that is another one between the two times it is opened is not pinned; nothing keeps a descriptor.
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
		t.Errorf("%d descriptors before, %d after", before, after)
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
