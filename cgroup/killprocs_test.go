package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Kill handles more processes than a batch has descriptors. Killed processes stay listed until
// they get CPU time to die.
func TestKillMoreProcessesThanABatch(t *testing.T) {
	const count = 2*killBatch + 10
	var procs []*exec.Cmd
	var list strings.Builder
	for range count {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		procs = append(procs, cmd)
		fmt.Fprintln(&list, cmd.Process.Pid)
	}
	g := group(t, tree(t, map[string]string{"a/cgroup.procs": list.String()}), "a")
	if n, err := NewProcKiller().Kill(g, time.Minute); err != nil || n != count {
		t.Fatalf("Kill signalled %d of %d processes, error %v", n, count, err)
	}
	for _, cmd := range procs {
		_ = cmd.Wait()
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
			t.Fatalf("process %d was not killed: %v", cmd.Process.Pid, cmd.ProcessState)
		}
	}
}

// A kill process by process ends at its deadline with any number of groups, and a listing ends
// when its reader stops it.
func TestKillAndListingEndEarly(t *testing.T) {
	files := map[string]string{"a/cgroup.procs": ""}
	for i := range 300 {
		files[fmt.Sprintf("a/%d/cgroup.procs", i)] = ""
	}
	fs := tree(t, files)
	k, visited := NewProcKiller(), 0
	visit := k.visit
	k.visit = func(g *Group) bool { visited++; return visit(g) }
	if _, err := k.Kill(group(t, fs, "a"), -time.Second); !errors.Is(err, os.ErrDeadlineExceeded) || visited != 1 {
		t.Errorf("Kill visited %d groups after its deadline: %v", visited, err)
	}
	n := 0
	if err := fs.ChildrenUntil("a", make([]byte, 4096), func(string) bool { n++; return n < 7 }); err != nil || n != 7 {
		t.Errorf("ChildrenUntil visited %d children after its end, error %v", n, err)
	}
}

// Once the victim is known to be dead, the processes in its group are another pod's.
func TestKillEndsWithItsVictim(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	g := group(t, tree(t, map[string]string{"a/cgroup.procs": fmt.Sprintln(cmd.Process.Pid)}), "a")
	var ended atomic.Bool
	ended.Store(true)
	k := NewProcKiller()
	k.Ended = &ended
	if n, err := k.Kill(g, time.Minute); n != 0 || err != nil {
		t.Errorf("Kill after the victim's end signalled %d processes, error %v, want none", n, err)
	}
	ended.Store(false)
	if n, err := k.Kill(g, time.Minute); n != 1 || err != nil {
		t.Errorf("Kill before the victim's end signalled %d processes, error %v, want 1", n, err)
	}
}

// Without a descriptor no process can be listed: that is an error.
func TestKillWithoutDescriptors(t *testing.T) {
	g := group(t, tree(t, map[string]string{"a/cgroup.procs": "", "a/cgroup.events": "populated 1\n"}), "a")
	fillDescriptors(t)
	if n, err := NewProcKiller().Kill(g, time.Minute); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("Kill signalled %d processes, error %v, want EMFILE", n, err)
	}
}
