package kill

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read"
)

// threadsCommand starts a process with many threads and a child. It prints a line when all run.
const threadsCommand = "many-threads"

const manyThreads = 3000

func runThreads() {
	ready := make(chan struct{})
	for range manyThreads {
		go func() {
			runtime.LockOSThread()
			ready <- struct{}{}
			_ = unix.Pause()
		}()
	}
	for range manyThreads {
		<-ready
	}
	if err := exec.Command("sleep", "600").Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	_ = unix.Pause()
}

// startThreads starts that process.
func startThreads(t *testing.T) stats.ProcessID {
	t.Helper()
	cmd := exec.Command(os.Args[0], threadsCommand)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, _, err := bufio.NewReader(out).ReadLine(); err != nil || string(line) != "ready" {
		t.Skipf("no process with %d threads here: %q, %v", manyThreads, line, err)
	}
	start, err := read.StartTicks(procMount, cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return stats.ProcessID{PID: cmd.Process.Pid, Start: start}
}

// The search for children among thousands of threads delays neither the pin nor the kill, which run on the agent's loop.
func TestManyThreadsDelayNoCaller(t *testing.T) {
	var pinned time.Duration
	killsWithin(t, 3*slowKill, func() part {
		first := startThreads(t)
		began := time.Now()
		tree, err := pinTree(first, All)
		if err != nil {
			t.Fatal(err)
		}
		tree.within = waitLimit
		if took := time.Since(began); pinned == 0 || took < pinned {
			pinned = took
		}
		return tree
	})
	if pinned > slowKill {
		t.Errorf("the fastest pin took %v, want less than %v", pinned, slowKill)
	}
}

// A kill whose search lasts is in progress: its victim is neither killed nor dead, until the search has ended.
func TestKillDuringALongSearch(t *testing.T) {
	first, child := shell(t)
	tree, err := pinTree(first, All)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	tree.searching.Lock()
	for range 2 { // the second call waits for the same kill
		if err := tree.Kill(); err != nil || !tree.Killed() || tree.Struck() {
			t.Errorf("kill = %v, killed %v, struck %v, want nil, true and false", err, tree.Killed(), tree.Struck())
		}
	}
	if err := tree.WaitEmpty(t.Context(), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wait during the search = %v, want deadline exceeded", err)
	}
	tree.searching.Unlock()
	if err := tree.WaitEmpty(t.Context(), waitLimit); err != nil || !tree.Struck() || running(first.PID) || running(child) {
		t.Errorf("wait = %v, struck %v, first process alive %v, child alive %v", err, tree.Struck(), running(first.PID), running(child))
	}
}

// A kill that fails after Kill has returned is reported once: the runtime then kills the victim.
func TestKillInProgressFails(t *testing.T) {
	first, _ := shell(t)
	tree := newProcessTree(All, 1)
	defer tree.Close()
	if err := tree.add(first); err != nil {
		t.Fatal(err)
	}
	tree.searching.Lock()
	if err := tree.Kill(); err != nil || !tree.Killed() {
		t.Errorf("kill = %v, killed %v, want nil and true", err, tree.Killed())
	}
	tree.searching.Unlock()
	if err := tree.WaitEmpty(t.Context(), waitLimit); !errors.Is(err, ErrNotKilled) || tree.Killed() || tree.Struck() {
		t.Errorf("wait = %v, killed %v, struck %v, want ErrNotKilled and false", err, tree.Killed(), tree.Struck())
	}
	if err := tree.WaitEmpty(t.Context(), waitLimit); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrNotKilled) {
		t.Errorf("second wait = %v, want the processes that were not killed", err)
	}
}

// A search that does not end in time leaves the rest to the runtime. What it has found is killed.
func TestSearchIsBounded(t *testing.T) {
	first, child := shell(t)
	tree := newProcessTree(All, maxTree)
	defer tree.Close()
	if err := tree.add(first); err != nil {
		t.Fatal(err)
	}
	tree.within = 0
	if err := tree.Kill(); err == nil || !strings.Contains(err.Error(), "has 1 processes or more") || tree.Killed() || !running(child) {
		t.Errorf("kill = %v, killed %v, child alive %v, want an error, false and true", err, tree.Killed(), running(child))
	}
	if err := tree.WaitEmpty(t.Context(), waitLimit); !errors.Is(err, os.ErrDeadlineExceeded) || running(first.PID) {
		t.Errorf("wait = %v, first process alive %v, want deadline exceeded and a dead process", err, running(first.PID))
	}
}

// Close ends a search, and leaves no process stopped.
func TestCloseDuringAKill(t *testing.T) {
	first, _ := shell(t)
	tree, err := pinTree(first, All)
	if err != nil {
		t.Fatal(err)
	}
	tree.searching.Lock()
	if err := tree.Kill(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { tree.Close(); close(closed) }()
	<-tree.alive.Done()
	tree.searching.Unlock()
	<-closed
	for end := time.Now().Add(waitLimit); running(first.PID); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d is alive after %v", first.PID, waitLimit)
		}
	}
}

// Without free descriptors no process can be opened or searched, so some may live: the tree is neither killed nor
// dead, and the runtime kills the rest.
func TestTreeThatCannotBeSearched(t *testing.T) {
	first, child := shell(t)
	tree := newProcessTree(All, maxTree)
	defer tree.Close()
	if err := tree.add(first); err != nil {
		t.Fatal(err)
	}
	restore := useUpDescriptors(t)
	err := tree.Kill()
	restore()
	if !errors.Is(err, unix.EMFILE) || tree.Killed() || tree.Struck() {
		t.Errorf("kill = %v, killed %v, struck %v, want EMFILE and false", err, tree.Killed(), tree.Struck())
	}
	if err := tree.WaitEmpty(t.Context(), waitLimit); !errors.Is(err, os.ErrDeadlineExceeded) || running(first.PID) {
		t.Errorf("wait = %v, first process alive %v, child alive %v, want deadline exceeded and a dead first process",
			err, running(first.PID), running(child))
	}
}

// useUpDescriptors lets this process open no file until restore is called.
func useUpDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
}
