package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A file system whose server never answers holds up whoever asks for its statfs, until it is released.
func TestAHungMountHangs(t *testing.T) {
	n := startNode(t)
	release, err := n.HangMount(n.ctx, "/mnt/hung")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := n.Start(n.ctx, "/tmp/df", "/bin/busybox", "df", "/mnt/hung")
	if err != nil {
		t.Fatal(err)
	}
	waits := func() error { // it makes the system call, and stays there
		stack := n.shell(fmt.Sprintf("cat /proc/%d/wchan /proc/%[1]d/cmdline", pid))
		if !strings.Contains(stack, "fuse") && !strings.Contains(stack, "request_wait") {
			return fmt.Errorf("it is in %q", stack)
		}
		return nil
	}
	n.until("df waits for the file system's server", waits)
	time.Sleep(2 * time.Second)
	if err := waits(); err != nil {
		t.Error(err)
	}
	if err := release(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.until("df is over", func() error {
		if res, err := n.Exec(n.ctx, "/bin/kill", "-0", fmt.Sprint(pid)); err != nil || res.Code == 0 {
			return fmt.Errorf("it still runs (%v)", err)
		}
		return nil
	})
}

// A file system with project quotas counts and limits what a project writes.
func TestProjectQuotasWork(t *testing.T) {
	n := startNode(t)
	if err := n.MountProjectQuota(n.ctx, "/mnt/quota"); err != nil {
		t.Fatal(err)
	}
	if mount := n.shell("grep /mnt/quota /proc/mounts"); !strings.Contains(mount, "prjquota") {
		t.Errorf("mounted as %s", mount)
	}
	for pkg, tests := range map[string]string{"./e2e/guest": "^TestLiveProjectQuota", "./stats/read": "^TestQuota"} {
		out, err := n.RunTests(n.ctx, pkg, "-test.run="+tests, "-test.v")
		if err != nil || !strings.Contains(out, "--- PASS") || strings.Contains(out, "SKIP") {
			t.Errorf("%s: %v\n%s", pkg, err, out)
		}
	}
}

// A runtime that hangs takes calls and answers none; it goes on where it was.
func TestAHungRuntimeHangs(t *testing.T) {
	n := startNode(t)
	if err := n.HangRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
	defer cancel()
	if err := n.NetworkReady(ctx); ctx.Err() == nil {
		t.Errorf("it answers: %v", err)
	}
	if err := n.ResumeRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.NetworkReady(n.ctx); err != nil {
		t.Error(err)
	}
}
