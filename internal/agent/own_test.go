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

// inCgroup puts this process into a cgroup of the node, which nobody protects.
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
		t.Fatalf("in %q, %v", l.looks.Reader().Self(), err)
	}
}

// min is a cgroup's memory.min.
func (l *testLoop) min(t *testing.T, group string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.Dir, "cgroup", group, "memory.min"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

const own48 = "50331648" // 48 MiB

// A search for a kubelet that does not end at the start is a doubt. Once it is over and there is none, the cgroups above the agent's are
// raised, too, for without these nothing of it is protected; and all of it is put back at the end.
func TestOwnMemoryIsProtectedOnceTheDoubtIsOver(t *testing.T) {
	l := newLoop(t, "", nil)
	l.control()
	l.inCgroup(t)
	comm := filepath.Join(l.Dir, "proc/1/comm") // which is not read for a while
	if err := os.Remove(comm); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(comm, 0o600); err != nil {
		t.Fatal(err)
	}
	l.kubelet.LookNow()
	l.b.protect(l.loop)
	l.limit(t.Context(), time.Now())
	if !l.kubelet.Found() || l.min(t, "agents") != "0" || l.min(t, ownCgroup) != own48 {
		t.Fatalf("a kubelet may be here %v: %s, %s", l.kubelet.Found(), l.min(t, "agents"), l.min(t, ownCgroup))
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
	for range 2 {
		l.limit(t.Context(), time.Now())
	}
	if l.kubelet.Found() || l.min(t, "agents") != own48 || l.min(t, ownCgroup) != own48 {
		t.Errorf("a kubelet %v: %s, %s\n%s", l.kubelet.Found(), l.min(t, "agents"), l.min(t, ownCgroup), l.Text())
	}
	if err := l.upkeep.own.close(); err != nil || l.min(t, "agents") != "0" || l.min(t, ownCgroup) != "0" {
		t.Errorf("put back: %s, %s, %v", l.min(t, "agents"), l.min(t, ownCgroup), err)
	}
}

// Where an agent before this one has left protection of pods, the cgroups above are raised as soon as that was put back, before pods are
// protected anew.
func TestOwnMemoryIsProtectedOnceNothingIsLeft(t *testing.T) {
	for _, qos := range []bool{false, true} {
		l := newLoop(t, fmt.Sprintf("memoryQoS: %v\n", qos), nil)
		l.control()
		if err := unix.Setxattr(filepath.Join(l.Dir, "cgroup"), "trusted.jettison.try", nil, 0); err != nil {
			t.Skip("no extended attributes here: ", err)
		}
		l.inCgroup(t)
		l.b.before.left = limits.Left{Protection: true}
		l.b.protect(l.loop)
		l.b.limit(l.loop)
		if got := l.min(t, "agents"); got != "0" {
			t.Errorf("memoryQoS %v: %s", qos, got)
		}
		l.limit(t.Context(), time.Now())
		if got := l.min(t, "agents"); got != "0" {
			t.Errorf("memoryQoS %v: while something may be left: %s", qos, got)
		}
		l.upkeep.limits.OnResult(<-l.upkeep.limits.Results())
		l.limit(t.Context(), time.Now())
		if got := l.min(t, "agents"); got != own48 || l.upkeep.limits.Protects() != qos {
			t.Errorf("memoryQoS %v: %s\n%s", qos, got, l.Text())
		}
	}
}
