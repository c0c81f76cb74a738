package kill

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// crashCommand is the hidden command with which tests start this executable as a process that crashes: it freezes and
// thaws a cgroup in a loop until it is killed.
const crashCommand = "crash"

// runCrashing is the body of that process. args: a mount and the path of a cgroup.
func runCrashing(args []string) {
	fs, err := cgroup.OpenTree(args[0])
	if err != nil {
		panic(err)
	}
	g, err := fs.Group(args[1])
	if err != nil {
		panic(err)
	}
	by := cgroup.NewProcKiller()
	fmt.Println("begun")
	for {
		_, _ = by.Kill(g, time.Second)
	}
}

// crash starts such a process and kills it after a random time.
func crash(t *testing.T, mount, path string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", crashCommand, mount, path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	time.Sleep(rand.N(2 * time.Millisecond))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("crash process ended with %v, %v, want a kill while it runs", err, cmd.ProcessState)
	}
}

// Restore thaws a cgroup of this machine's hierarchy after a crash; a cgroup frozen by another program stays frozen.
func TestCrashesLeaveNothingFrozen(t *testing.T) {
	fs, p := pod(t)
	frozen, file := 0, filepath.Join(fs.Mount(), p.Cgroup, "cgroup.freeze")
	state := func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	for range 60 {
		crash(t, fs.Mount(), p.Cgroup)
		if state() == "1" {
			frozen++
		}
		if _, err := Restore(fs, []string{p.Cgroup}); err != nil {
			t.Fatal(err)
		}
		if state() != "0" {
			t.Fatalf("cgroup.freeze after Restore = %s, want 0", state())
		}
	}
	if frozen == 0 {
		t.Error("no crash left the pod frozen, so the test proves nothing")
	}
	if err := os.WriteFile(file, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if mended, err := Restore(fs, []string{p.Cgroup}); len(mended) > 0 || err != nil || state() != "1" {
		t.Errorf("frozen by another program: restored %v, %v, cgroup.freeze %s, want none and 1", mended, err, state())
	}
}

// Processes that a crash left stopped run on. A tree whose first process runs was not stopped by a kill.
func TestContinue(t *testing.T) {
	left, leftChild := shell(t)
	other, otherChild := shell(t)
	reused, _ := shell(t)
	for _, pid := range []int{left.PID, leftChild, otherChild, reused.PID} {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		awaitState(t, pid, 'T')
	}
	reused.Start++
	continued, err := Continue([]stats.ProcessID{left, other, reused, {PID: 1 << 30}})
	if err != nil || !slices.Equal(continued, []int{left.PID}) {
		t.Errorf("continued = %v, %v, want the stopped first process %d", continued, err, left.PID)
	}
	awaitState(t, left.PID, 'S')
	awaitState(t, leftChild, 'S')
	for _, pid := range []int{otherChild, reused.PID} {
		awaitState(t, pid, 'T')
	}
}

// awaitState waits for a state of a process.
func awaitState(t *testing.T, pid int, want byte) {
	t.Helper()
	got := byte(0)
	for end := time.Now().Add(waitLimit); got != want; time.Sleep(time.Millisecond) {
		f, err := readStat(fmt.Sprintf("%s/%d", procMount, pid))
		if err != nil || time.Now().After(end) {
			t.Fatalf("state of process %d = %q, error %v, want %q", pid, got, err, want)
		}
		got = f[statState][0]
	}
}
