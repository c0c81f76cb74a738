package kill

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/cri/critest"
	"jettison/stats"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == VictimCommand {
		BeVictim(os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == forkCommand {
		forkAndWait()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == threadsCommand {
		runThreads()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == crashCommand {
		runCrashing(os.Args[2:])
	}
	goleak.VerifyTestMain(m)
}

// pod creates a pod cgroup with a container cgroup and a process in it, in this machine's hierarchy.
func pod(t *testing.T) (*cgroup.FS, *stats.PodStats) {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		fs, err := cgroup.Open(mount)
		if err != nil {
			continue
		}
		t.Cleanup(func() { fs.Close() })
		name := "jettison-test-" + strconv.Itoa(os.Getpid()) + "-" + strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-")
		dir := filepath.Join(mount, name, "container")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { _ = unix.Rmdir(dir); _ = unix.Rmdir(filepath.Dir(dir)) })
		start(t, dir, "sleep", "600")
		return fs, &stats.PodStats{PodRef: stats.PodReference{UID: "u"}, Cgroup: name, SandboxIDs: []string{"s"}}
	}
	t.Skip("no cgroup v2 hierarchy that this user may write to: the virtual machine's scenarios cover this")
	return nil, nil
}

// start starts a process in a cgroup.
func start(t *testing.T, dir string, command ...string) *exec.Cmd {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestThePinnedPodDies(t *testing.T) {
	fs, p := pod(t)
	v, err := Pin(fs, p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if err := v.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("wait for a live pod: error = %v, want deadline exceeded", err)
	}
	if err := v.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := v.Kill(); err != nil {
		t.Errorf("second kill: error = %v, want nil", err)
	}
}

func TestPinOfMissingPod(t *testing.T) {
	fs, p := pod(t)
	for name, gone := range map[string]stats.PodStats{
		"no cgroup, no sandbox":       {PodRef: p.PodRef},
		"another cgroup of that path": {PodRef: p.PodRef, Cgroup: p.Cgroup, CgroupID: stats.CgroupID{Ino: 1}},
		"a cgroup that is gone":       {PodRef: p.PodRef, Cgroup: "jettison-none", SandboxIDs: []string{"s"}},
	} {
		if v, err := Pin(fs, &gone); err == nil {
			v.Close()
			t.Errorf("%s: Pin succeeded, want an error", name)
		}
	}
	v, err := Pin(fs, &stats.PodStats{PodRef: p.PodRef, SandboxIDs: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if v.Kill() == nil {
		t.Error("Kill without a cgroup = nil, want an error: only the runtime can kill the pod")
	}
}

func fake(t *testing.T) (*critest.Runtime, *cri.Client) {
	t.Helper()
	r := critest.Start(t)
	r.Sandboxes = []*runtimev1.PodSandbox{{Id: "s", Metadata: &runtimev1.PodSandboxMetadata{Uid: "u"}, CreatedAt: 1}}
	r.Containers = []*runtimev1.Container{{Id: "c", PodSandboxId: "s", State: runtimev1.ContainerState_CONTAINER_RUNNING}}
	c, err := cri.Dial(r.Endpoint(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return r, c
}

// The runtime reports success but still lists a running container: Clean retries until it does not.
func TestCleanIsRepeatedUntilNothingRuns(t *testing.T) {
	r, c := fake(t)
	v := &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{ids: []string{"s"}}}
	v.progress.begin()
	done := make(chan error)
	go func() { done <- v.Clean(t.Context(), c, func(error) {}) }()
	for r.Calls("StopPodSandbox") < 3 {
		select {
		case err := <-done:
			t.Fatalf("Clean returned %v with a container running, want a retry", err)
		case <-time.After(time.Millisecond):
		}
	}
	r.Change(func() { r.Containers[0].State = runtimev1.ContainerState_CONTAINER_EXITED })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Clean looks up the sandboxes of a pod ranked before the runtime reported them; later ones are not the victim's.
func TestCleanLooksUpTheSandboxes(t *testing.T) {
	r, c := fake(t)
	r.Containers = nil
	r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: "next", Metadata: &runtimev1.PodSandboxMetadata{Uid: "u", Attempt: 1}, CreatedAt: time.Now().Add(time.Hour).UnixNano()})
	r.Sandboxes = append(r.Sandboxes, &runtimev1.PodSandbox{Id: "other", Metadata: &runtimev1.PodSandboxMetadata{Uid: "another pod"}, CreatedAt: 1})
	v := &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{since: Now(), ids: []string{"long gone"}}}
	if err := v.Clean(t.Context(), c, func(error) {}); err != nil {
		t.Fatal(err)
	}
	r.Change(func() {
		if r.Sandboxes[0].State != runtimev1.PodSandboxState_SANDBOX_NOTREADY || r.Sandboxes[1].State != runtimev1.PodSandboxState_SANDBOX_READY || r.Sandboxes[2].State != runtimev1.PodSandboxState_SANDBOX_READY {
			t.Errorf("sandboxes after Clean = %v, want only the first stopped", r.Sandboxes)
		}
	})
}

func TestCleanEndsWithItsContext(t *testing.T) {
	_, c := fake(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	v := &Victim{Pod: stats.PodReference{UID: "u"}, sandboxes: sandboxes{ids: []string{"s"}}}
	v.progress.begin()
	if err := v.Clean(ctx, c, func(error) {}); err == nil || !strings.Contains(err.Error(), "pod u") {
		t.Errorf("error after the context ended = %v, want one naming pod u", err)
	}
}
