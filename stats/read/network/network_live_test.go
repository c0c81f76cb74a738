package network

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"jettison/cri"
	"jettison/stats/read/hosttest"
	"jettison/stats/read/podindex"
)

// A socket kept in the pod's namespace reads its counters, and is closed when the pod is gone.
func TestLiveNetworkOfAPod(t *testing.T) {
	hosttest.OnANode(t)
	const id = "0123456789abcdef-network"
	group := "/sys/fs/cgroup/kubepods/" + id
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/bin/busybox", "cat")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { stdin.Close(); _ = child.Wait() }
	defer os.Remove(group)
	defer end()
	pid := child.Process.Pid
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	inside := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("/bin/busybox", append([]string{"nsenter", "-t", strconv.Itoa(pid), "-n", "/bin/busybox"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("command %v failed with %v, output: %s", args, err, out)
		}
	}
	inside("ip", "link", "set", "lo", "up")
	index := podindex.New(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: id, UID: "u", Ready: true, PID: pid}, {ID: "host", UID: "h", Ready: true, PID: os.Getpid()}, {ID: "gone", UID: "g", Ready: true, PID: 4_000_000}}})
	before := hosttest.Descriptors(t)
	n := New("/proc")
	n.SetPods(index)
	for range 3 {
		got, err := n.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := got.Pods["u"]; len(got.Pods) != 1 || got.Err != nil || !ok || len(s.Interfaces) != 0 { // only lo, which has no external traffic
			t.Fatalf("network of the pod = %+v, want no interface", got)
		}
	}
	if len(n.handles) != 1 || hosttest.Descriptors(t) <= before {
		t.Errorf("%d sockets are kept, want one", len(n.handles))
	}
	n.SetPods(nil)
	if got, err := n.Read(t.Context()); err != nil || len(got.Pods) != 0 || len(n.handles) != 0 {
		t.Errorf("after the pod: reading %+v, error %v, %d sockets", got, err, len(n.handles))
	}
	if after := hosttest.Descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d open after the pod", before, after)
	}
	n.Close()
}
