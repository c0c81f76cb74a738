package podlister

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"jettison/cri/critest"
)

// servedDir is where TestServesAHostileNode serves, if the folder exists: below a mount of the
// node's runtime in the agent's pod. The file "endpoint" has the endpoint to dial; "rounds" the
// number of recreations of the hostile pods, each after all of them were requested.
const servedDir = "/run/containerd/hostile"

// TestServesAHostileNode is the runtime of a node of 110 pods, each with a cgroup and a process.
// Ten of them are hostile and are recreated as soon as the agent has requested all of them. It runs
// until SIGTERM. e2e checks the effect on the agent.
func TestServesAHostileNode(t *testing.T) {
	if _, err := os.Stat(servedDir); os.Getenv("JETTISON_LIVE") == "" || err != nil {
		t.Skip("run by e2e in its virtual machine")
	}
	t.Setenv("TMPDIR", servedDir)
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	r := hostile(t)
	for i, s := range r.Sandboxes {
		startPod(t, "/sys/fs/cgroup"+cgroupOf(s.Metadata.Uid)+"/"+r.Containers[i].Id)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(servedDir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("rounds", "0")
	write("endpoint", r.Endpoint())
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for round, before := 1, allAsked(r, 0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := allAsked(r, before); now > before {
			before = now
			r.Change(func() { fill(r, fmt.Sprint("-", round)) })
			write("rounds", fmt.Sprint(round))
			round++
		}
	}
}

// allAsked returns the number of requested container statuses if it grew by a verbose and a plain
// one of ten, otherwise before.
func allAsked(r *critest.Runtime, before int) int {
	if now := r.Calls("ContainerStatus"); now >= before+20 {
		return now
	}
	return before
}

// startPod starts a process in a cgroup until the test ends.
func startPod(t *testing.T, cgroup string) {
	err := os.MkdirAll(cgroup, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "busybox", "sleep", "3600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(errors.Join(err, errors.New(cgroup)))
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
}
