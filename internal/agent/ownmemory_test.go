package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/node/limits"
)

const ownCgroup = "agents/own"

// inCgroup moves this process into a cgroup of the node without protection.
func (l *testLoop) inCgroup(t *testing.T) {
	t.Helper()
	for _, name := range []string{"agents", ownCgroup} {
		for file, text := range map[string]string{"cgroup.procs": "", "memory.min": "0\n"} {
			l.Write("cgroup/"+name+"/"+file, text)
		}
	}
	l.Write("cgroup/"+ownCgroup+"/cgroup.procs", fmt.Sprintln(os.Getpid()))
	l.Write("proc/self/cgroup", "0::/"+ownCgroup+"\n")
	if err := l.looks.Reader().FindSelf(); err != nil || l.looks.Reader().Self() != ownCgroup {
		t.Fatalf("own cgroup = %q, %v, want %s", l.looks.Reader().Self(), err, ownCgroup)
	}
}

// min returns a cgroup's memory.min.
func (l *testLoop) min(t *testing.T, group string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.Dir, "cgroup", group, "memory.min"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// A process that creates a cgroup holds the lock of its directory while it allocates. The loop does not
// wait for that lock.
func TestLoopDoesNotWaitForOwnMemory(t *testing.T) {
	l := newLoop(t, "", nil)
	l.writeControlFiles()
	l.inCgroup(t)
	l.b.before.left = limits.Remaining{Protection: true} // the cgroups above are raised later
	l.b.protect(l.loop)
	file := filepath.Join(l.Dir, "cgroup/agents/memory.min")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil { // opening it blocks until it has a writer
		t.Fatal(err)
	}
	returned := make(chan struct{})
	go func() { defer close(returned); l.updateLimits(t.Context(), time.Now()) }()
	select {
	case <-returned:
	case <-time.After(10 * time.Second):
		t.Error("the loop waits for memory.min of the cgroup above the agent's")
	}
	w, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	<-returned
	l.upkeep.own.onResult(<-l.upkeep.own.Results())
	if err := l.upkeep.own.close(); err != nil || l.min(t, ownCgroup) != "0" {
		t.Errorf("restored memory.min = %s (%v), want 0", l.min(t, ownCgroup), err)
	}
}

const own48 = "50331648" // 48 MiB

// While the first search for a kubelet does not end, a kubelet may run. After it found none, the
// cgroups above the agent's are raised, too, without which the protection has no effect. Everything
// is restored at the end.
func TestOwnMemoryIsProtectedWithoutAKubelet(t *testing.T) {
	l := newLoop(t, "", nil)
	l.writeControlFiles()
	l.inCgroup(t)
	comm := filepath.Join(l.Dir, "proc/1/comm") // reading it blocks for a while
	if err := os.Remove(comm); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(comm, 0o600); err != nil {
		t.Fatal(err)
	}
	l.kubelet.LookNow()
	l.b.protect(l.loop)
	l.updateLimits(t.Context(), time.Now())
	if !l.kubelet.Found() || l.min(t, "agents") != "0" || l.min(t, ownCgroup) != own48 {
		t.Fatalf("kubelet possible %v: memory.min %s and %s, want 0 and %s", l.kubelet.Found(), l.min(t, "agents"), l.min(t, ownCgroup), own48)
	}
	held, err := os.OpenFile(comm, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(comm); err != nil {
		t.Fatal(err)
	}
	l.Write("proc/1/comm", "systemd\n")
	_, _ = held.WriteString("systemd\n")
	_ = held.Close()
	l.kubelet.OnResult(<-l.kubelet.Results())
	l.updateLimits(t.Context(), time.Now())
	l.upkeep.own.onResult(<-l.upkeep.own.Results())
	l.updateLimits(t.Context(), time.Now())
	if l.kubelet.Found() || l.min(t, "agents") != own48 || l.min(t, ownCgroup) != own48 {
		t.Errorf("kubelet %v: memory.min %s and %s, want %s\n%s", l.kubelet.Found(), l.min(t, "agents"), l.min(t, ownCgroup), own48, l.Text())
	}
	if err := l.upkeep.own.close(); err != nil || l.min(t, "agents") != "0" || l.min(t, ownCgroup) != "0" {
		t.Errorf("restored memory.min = %s and %s (%v), want 0", l.min(t, "agents"), l.min(t, ownCgroup), err)
	}
}

// If an earlier agent left protection of pods, the cgroups above are raised as soon as that is
// restored, before pods are protected again.
func TestOwnMemoryIsProtectedAfterARestore(t *testing.T) {
	for _, qos := range []bool{false, true} {
		l := newLoop(t, fmt.Sprintf("memoryQoS: %v\n", qos), nil)
		l.writeControlFiles()
		if err := unix.Setxattr(filepath.Join(l.Dir, "cgroup"), "trusted.jettison.try", nil, 0); err != nil {
			t.Skip("no extended attributes here: ", err)
		}
		l.inCgroup(t)
		l.b.before.left = limits.Remaining{Protection: true}
		l.b.protect(l.loop)
		l.b.startLimits(l.loop)
		if got := l.min(t, "agents"); got != "0" {
			t.Errorf("memoryQoS %v: memory.min = %s at start, want 0", qos, got)
		}
		l.updateLimits(t.Context(), time.Now())
		if got := l.min(t, "agents"); got != "0" {
			t.Errorf("memoryQoS %v: memory.min = %s before the restore, want 0", qos, got)
		}
		l.upkeep.limits.OnResult(<-l.upkeep.limits.Results())
		l.updateLimits(t.Context(), time.Now())
		if l.upkeep.limits.Protects() {
			t.Errorf("memoryQoS %v: pods are protected while the own protection is raised", qos)
		}
		l.upkeep.own.onResult(<-l.upkeep.own.Results())
		l.updateLimits(t.Context(), time.Now())
		if got := l.min(t, "agents"); got != own48 || l.upkeep.limits.Protects() != qos {
			t.Errorf("memoryQoS %v: memory.min = %s after the restore, want %s\n%s", qos, got, own48, l.Text())
		}
	}
}
