package kill

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/internal/base/filetest"
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

// A child forked after the pin dies too.
func TestChildrenForkedAfterThePinDie(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read x; sleep 600 & echo $!; wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := read.StartTicks("/proc", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := pinTree(stats.ProcessID{PID: cmd.Process.Pid, Start: start}, All)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	_, _ = in.Write([]byte("\n"))
	line, _, _ := bufio.NewReader(out).ReadLine()
	child, err := strconv.Atoi(string(line))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := tree.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := tree.WaitEmpty(t.Context(), 10*time.Second); err != nil || running(child) {
		t.Errorf("wait = %v, child alive %v, want nil and a dead child", err, running(child))
	}
}

// Children that a process forks during the kill die too. Without a stop before the kill, one survived in 16
// of 40 rounds.
func TestForkingProcessDies(t *testing.T) {
	for i := range 5 {
		seconds := fmt.Sprintf("6%03d.%d", i, os.Getpid())
		cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 150 ]; do i=$((i+1)); sleep "+seconds+" & done; wait")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		start, err := read.StartTicks("/proc", cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := pinTree(stats.ProcessID{PID: cmd.Process.Pid, Start: start}, All)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		tree.within = waitLimit
		killErr := tree.Kill()
		waitErr := tree.WaitEmpty(t.Context(), waitLimit)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if killErr != nil || waitErr != nil {
			t.Fatalf("kill = %v, wait for its end = %v, want nil", killErr, waitErr)
		}
		if alive := killAll(seconds); alive > 0 {
			t.Errorf("round %d: %d children are alive", i, alive)
		}
	}
}

// A closed tree kills nothing, and returns an error.
func TestClosedTree(t *testing.T) {
	first, _ := shell(t)
	tree, err := pinTree(first, All)
	if err != nil {
		t.Fatal(err)
	}
	tree.Close()
	if err := tree.Kill(); !errors.Is(err, os.ErrClosed) || tree.Killed() {
		t.Errorf("kill = %v, killed %v, want closed and false", err, tree.Killed())
	}
}

// The page cache of a container outside the pod's cgroup is dropped too.
func TestDropCacheOutside(t *testing.T) {
	f := newTree(t)
	files := map[string]string{"cgroup.events": "populated 0\n", "memory.reclaim": "",
		"memory.stat": "anon 1\nfile 104857600\nshmem 4096\ninactive_file 4096\n"}
	p := f.pod("own", files)
	for _, name := range []string{"a", "b"} {
		f.pod(name, files)
		p.Outside = append(p.Outside, stats.OutsideContainer{ID: name, Cgroup: name})
	}
	for _, own := range []string{"own", ""} {
		p.Cgroup = own
		v, err := Pin(f.fs, p)
		if err != nil {
			t.Fatal(err)
		}
		v.DropCache(t.Context(), func() bool { return false })
		v.Close()
		for _, name := range []string{"own", "a", "b"} {
			text, _ := os.ReadFile(f.file(name, "memory.reclaim"))
			if asked := len(text) > 0; asked != (own != "" || name != "own") {
				t.Errorf("pod's cgroup %q: memory.reclaim of %s = %q", own, name, text)
			}
			if err := os.WriteFile(f.file(name, "memory.reclaim"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A container that the last list did not contain keeps its grace period when those that are pinned have
// ended: the next step stops the sandbox without one.
func TestStopWaitsForContainersNotPinned(t *testing.T) {
	f := newTree(t)
	p := f.pod("a", nil)
	p.PodRef.UID, p.SandboxIDs, p.Cgroup = "u", []string{"s"}, ""
	p.Outside = []stats.OutsideContainer{{ID: "a", Cgroup: "a"}}
	r, c := fake(t)
	r.Hang["StopContainer"] = true
	v, err := Pin(f.fs, p)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	done := make(chan error, 1)
	go func() { done <- v.Stop(t.Context(), c, time.Minute) }()
	await(t, r, "StopContainer", 1)
	if err := os.WriteFile(f.file("a", "cgroup.events"), []byte("populated 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("stop = %v while a container is in its grace period", err)
	case <-time.After(300 * time.Millisecond):
	}
	r.Change(func() {
		r.Hang["StopContainer"] = false
		r.Containers[0].State = runtimev1.ContainerState_CONTAINER_EXITED
	})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The children of a process that has the PID of one that ended are not the victim's.
func TestChildrenOfAReusedPID(t *testing.T) {
	first, _ := shell(t)
	first.Start++
	tree := newProcessTree(All, maxTree)
	defer tree.Close()
	tree.processes = []stats.ProcessID{first}
	if err := tree.extend(t.Context(), maxTree); err != nil || len(tree.processes) != 1 {
		t.Errorf("tree = %v, error %v, want no child of another process", tree.processes, err)
	}
}

// A process that got the PID of a child within the same clock tick has another parent.
func TestReusedPIDOfAChild(t *testing.T) {
	first, child := shell(t)
	other, _ := shell(t)
	start, err := read.StartTicks(procMount, child)
	if err != nil {
		t.Fatal(err)
	}
	tree := newProcessTree(All, maxTree)
	defer tree.Close()
	one := stats.ProcessID{PID: child, Start: start}
	if err := tree.addChild(other, one); err != unix.ESRCH || len(tree.fds) > 0 {
		t.Errorf("add a process with another parent = %v, %d descriptors, want ESRCH and none", err, len(tree.fds))
	}
	if err := tree.addChild(first, one); err != nil || len(tree.fds) != 1 {
		t.Errorf("add a child = %v, %d descriptors, want nil and one", err, len(tree.fds))
	}
}

// The first process of a PID namespace is enough: a walk takes the loop 50 ms for 3,000 threads, and
// misses the processes beyond its bound.
func TestNamespaceDiesWithItsFirstProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 600 & echo; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, _, _ = bufio.NewReader(out).ReadLine()
	inside, childErr := read.Children(t.Context(), procMount, cmd.Process.Pid)
	start, err := read.StartTicks("/proc", cmd.Process.Pid)
	if err != nil || childErr != nil || len(inside) != 1 {
		t.Fatal(inside, childErr, err)
	}
	tree, err := pinTree(stats.ProcessID{PID: cmd.Process.Pid, Start: start}, All)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if len(tree.processes) != 1 {
		t.Errorf("pinned processes = %v, want the first", tree.processes)
	}
	if err := tree.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := tree.WaitEmpty(t.Context(), 10*time.Second); err != nil || running(inside[0]) {
		t.Errorf("wait = %v, other process alive %v, want nil and dead", err, running(inside[0]))
	}
}

// forkCommand starts a process that cannot be stopped: one of its threads waits in the kernel until its child
// executes a program, which the child never does. Only SIGKILL ends such a wait.
const forkCommand = "fork-and-wait"

func forkAndWait() {
	pid, _, _ := syscall.RawSyscall6(syscall.SYS_CLONE, syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	for pid == 0 { // the child has one thread and no Go runtime
		_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// startForking starts the process, in a new PID namespace or not, and waits for its child.
func startForking(t *testing.T, namespace uintptr) stats.ProcessID {
	t.Helper()
	cmd := exec.Command(os.Args[0], forkCommand)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespace}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	pid := cmd.Process.Pid
	t.Cleanup(func() {
		children, _ := read.Children(context.Background(), procMount, pid)
		for _, child := range children {
			_ = unix.Kill(child, unix.SIGKILL)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
		if children, _ := read.Children(t.Context(), procMount, pid); len(children) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the process has no child")
		}
	}
	start, err := read.StartTicks(procMount, pid)
	if err != nil {
		t.Fatal(err)
	}
	return stats.ProcessID{PID: pid, Start: start}
}

// killsWithin kills up to 20 victims, until one kill takes less than a limit. A busy machine delays some.
func killsWithin(t *testing.T, limit time.Duration, pin func() part) {
	t.Helper()
	var took []time.Duration
	for range 20 {
		p := pin()
		began := time.Now()
		killErr := p.Kill()
		took = append(took, time.Since(began))
		waitErr := p.WaitEmpty(t.Context(), waitLimit)
		p.Close()
		if killErr != nil || waitErr != nil {
			t.Fatalf("kill = %v, wait = %v, want nil", killErr, waitErr)
		}
		if took[len(took)-1] < limit {
			return
		}
	}
	t.Errorf("kills took %v, want less than %v", took, limit)
}

// The kernel kills the processes of a PID namespace with the first one. So the kill does not stop that one first, which may take
// long, or never happen, while the others allocate memory.
func TestNamespaceIsNotStopped(t *testing.T) {
	killsWithin(t, slowKill, func() part {
		tree, err := pinTree(startForking(t, syscall.CLONE_NEWPID), All)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	})
}

// The containers of a pod in shared cgroups are killed at the same time, so that they delay each other, and the agent's loop, once.
func TestSharedContainersDieTogether(t *testing.T) {
	f := newTree(t)
	const containers = 4
	killsWithin(t, containers*slowKill, func() part {
		p := &stats.PodStats{PodRef: stats.PodReference{UID: "u"}}
		for i := range containers {
			p.Outside = append(p.Outside, stats.OutsideContainer{ID: fmt.Sprint(i), Process: startForking(t, 0)})
		}
		v, err := Pin(f.fs, p)
		if err != nil {
			t.Fatal(err)
		}
		return v
	})
}

// A process has stopped when all its threads have. A process that has ended, or whose PID was reused, needs no wait. One
// that cannot be read may run.
func TestStoppedProcess(t *testing.T) {
	later, p := time.Now().Add(time.Hour), stats.ProcessID{PID: 7, Start: 4000}
	stat := func(state string, threads, start int) string {
		return fmt.Sprintf("7 (a) R) %s 1 7 7 0 -1 4 1 0 0 0 0 0 0 0 20 0 %d 0 %d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", state, threads, start)
	}
	for name, c := range map[string]struct {
		process string
		threads []string
		want    bool
	}{
		"stopped":               {stat("T", 1, 4000), nil, true},
		"runs":                  {stat("R", 1, 4000), nil, false},
		"in the kernel":         {stat("D", 1, 4000), nil, false},
		"zombie":                {stat("Z", 1, 4000), nil, true},
		"ended":                 {"", nil, true},
		"PID reused":            {stat("R", 1, 4001), nil, true},
		"unreadable":            {"7 (a) T 1", nil, false},
		"threads stopped":       {stat("T", 2, 4000), []string{stat("T", 2, 4000), stat("t", 2, 4000)}, true},
		"a thread runs":         {stat("T", 2, 4000), []string{stat("T", 2, 4000), stat("S", 2, 4000)}, false},
		"first thread ended":    {stat("Z", 2, 4000), []string{stat("Z", 2, 4000), stat("R", 2, 4000)}, false},
		"a thread has no state": {stat("T", 2, 4000), []string{stat("T", 2, 4000), "8 (a) T"}, false},
	} {
		proc := t.TempDir()
		if c.process != "" {
			filetest.Write(t, proc+"/7/stat", c.process)
		}
		for i, text := range c.threads {
			filetest.Write(t, fmt.Sprintf("%s/7/task/%d/stat", proc, 7+i), text)
		}
		if got := isStopped(proc, p, later); got != c.want {
			t.Errorf("%s: isStopped = %v, want %v", name, got, c.want)
		}
	}
}

// A look at a process with thousands of threads ends at its limit: the kill runs on the agent's loop.
func TestLookForStoppedThreadsIsBounded(t *testing.T) {
	proc := t.TempDir()
	filetest.Write(t, proc+"/7/stat", "7 (a) T 1 7 7 0 -1 4 1 0 0 0 0 0 0 0 20 0 2 0 4000 0 0 0 0 0 0 0 0 0 0 0")
	filetest.Write(t, proc+"/7/task/7/note", "")
	if err := unix.Mkfifo(proc+"/7/task/7/stat", 0o600); err != nil { // a read blocks
		t.Fatal(err)
	}
	if isStopped(proc, stats.ProcessID{PID: 7, Start: 4000}, time.Now().Add(-time.Second)) {
		t.Error("isStopped at its limit = true, want false")
	}
}

// A tree with more processes than the pin opens dies as a whole.
func TestLargeTreeDies(t *testing.T) {
	seconds := fmt.Sprintf("7000.%d", os.Getpid())
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 300 ]; do i=$((i+1)); sleep "+seconds+" & done; echo; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _, _ = bufio.NewReader(out).ReadLine()
	start, err := read.StartTicks("/proc", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := pinTree(stats.ProcessID{PID: cmd.Process.Pid, Start: start}, All)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	tree.within = waitLimit
	killErr := tree.Kill()
	waitErr := tree.WaitEmpty(t.Context(), waitLimit)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if alive := killAll(seconds); alive > 0 || killErr != nil || waitErr != nil {
		t.Errorf("kill = %v, wait = %v with %d processes alive, want nil and none", killErr, waitErr, alive)
	}
}

// killAll kills the processes with a text in their command lines, and returns their number.
func killAll(text string) (alive int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		if b, _ := os.ReadFile(name); bytes.Contains(b, []byte(text)) {
			alive++
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return alive
}

// A tree with more processes than are killed is neither killed nor dead, even after those have ended.
func TestTreeBeyondItsLimit(t *testing.T) {
	first, child := shell(t)
	tree := newProcessTree(All, 1)
	defer tree.Close()
	if err := tree.add(first); err != nil {
		t.Fatal(err)
	}
	const want = "has 1 processes or more"
	if err := tree.Kill(); err == nil || !strings.Contains(err.Error(), want) || tree.Killed() || tree.Struck() {
		t.Errorf("kill = %v, killed %v, struck %v, want an error with %q and false", err, tree.Killed(), tree.Struck(), want)
	}
	for end := time.Now().Add(waitLimit); running(first.PID); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d is alive after %v", first.PID, waitLimit)
		}
	}
	err := tree.WaitEmpty(t.Context(), waitLimit)
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Errorf("wait = %v with child %d alive %v, want deadline exceeded with %q", err, child, running(child), want)
	}
}
