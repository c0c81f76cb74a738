package kill

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/cgroup"
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
