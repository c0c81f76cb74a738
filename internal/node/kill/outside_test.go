package kill

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read"
)

// shell starts a shell that starts one sleeping child, and returns the identity of the shell and the
// child's PID.
func shell(t *testing.T) (id stats.ProcessID, child int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "sleep 600 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _, err := bufio.NewReader(out).ReadLine()
	if err != nil {
		t.Fatal(err)
	}
	if child, err = strconv.Atoi(string(line)); err != nil {
		t.Fatal(err)
	}
	id.PID = cmd.Process.Pid
	if id.Start, err = read.StartTicks("/proc", id.PID); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return id, child
}

// running reports whether a process is alive and no zombie.
func running(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	state := b[bytes.LastIndexByte(b, ')')+2]
	return state != 'Z' && state != 'X'
}

// A victim's containers outside its cgroup die with it, each where it is: by cgroup.kill in its own
// cgroup, process by process in a shared one. Neighbours of that cgroup live, and the victim is dead
// only when all of them are.
func TestContainersOutsideDie(t *testing.T) {
	for _, c := range []struct {
		what   string
		cgroup bool // the pod has a cgroup
	}{{"beside the pod's empty cgroup", true}, {"without a cgroup of the pod", false}} {
		t.Run(c.what, func(t *testing.T) {
			f := newTree(t)
			f.pod("own", map[string]string{"cgroup.events": "populated 0\nfrozen 0\n"})
			p := f.pod("container", nil)
			first, child := shell(t)
			neighbour, _ := shell(t)
			p.Cgroup, p.Outside = "", []stats.OutsideContainer{
				{ID: "a", Cgroup: "container"}, {ID: "b", Process: first}, {ID: "exited", Cgroup: "gone"},
				{ID: "reused", Process: stats.ProcessID{PID: neighbour.PID, Start: neighbour.Start + 1}},
				{ID: "init", Process: stats.ProcessID{PID: 1}}}
			if c.cgroup {
				p.Cgroup = "own"
			}
			v, err := Pin(f.fs, p)
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			if err := v.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) || v.Killed() {
				t.Errorf("before the kill: wait = %v, killed %v, want deadline exceeded and false", err, v.Killed())
			}
			if err := v.Kill(); err != nil || !v.Killed() || !v.Struck() || v.KilledAt().Monotonic == 0 {
				t.Fatalf("kill = %v, killed %v, struck %v, at %v", err, v.Killed(), v.Struck(), v.KilledAt())
			}
			if got, _ := os.ReadFile(f.file("container", "cgroup.kill")); string(got) != "1" {
				t.Errorf("cgroup.kill of the container = %q, want 1", got)
			}
			for end := time.Now().Add(10 * time.Second); running(first.PID) || running(child); {
				if time.Now().After(end) {
					t.Fatalf("process %d or its child %d is alive", first.PID, child)
				}
				time.Sleep(time.Millisecond)
			}
			if !running(neighbour.PID) {
				t.Error("a process with a reused PID was killed")
			}
			if err := v.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("one container lives: wait = %v, want deadline exceeded", err)
			}
			if err := os.WriteFile(f.file("container", "cgroup.events"), []byte("populated 0\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := v.WaitEmpty(t.Context(), time.Minute); err != nil {
				t.Errorf("all containers are dead: wait = %v, want nil", err)
			}
		})
	}
}

// Without pidfds in the ladder a process in a shared cgroup is left to the runtime.
func TestSharedProcessNeedsPidfds(t *testing.T) {
	first, _ := shell(t)
	tree, err := pinTree(first, CgroupKill)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if err := tree.Kill(); err == nil || tree.Killed() || !running(first.PID) {
		t.Errorf("kill = %v, killed %v, want an error and a live process", err, tree.Killed())
	}
}
