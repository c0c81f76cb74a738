package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// childVariable is set in the process that TestANodeDiesWithItsProcess starts and kills.
const childVariable = "JETTISON_CHILD"

// The node ends with the process that booted it, even after SIGKILL, which runs no clean-up.
func TestANodeDiesWithItsProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a virtual machine: run make e2e")
	}
	t.Parallel()
	if os.Getenv(childVariable) != "" {
		n, err := vm.Boot(t.Context(), vm.Options{Kernel: os.Getenv("JETTISON_KERNEL"), CRIO: crioFolder(t)})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("qemu", n.PID())
		select {} // until killed
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
	child.Env = append(os.Environ(), childVariable+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "qemu "); ok {
			if pid, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if pid == 0 || syscall.Kill(pid, 0) != nil {
		t.Fatalf("the child booted no node (process %d): %v", pid, child.Wait())
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for end := time.Now().Add(time.Minute); running(pid); {
		if time.Now().After(end) {
			t.Fatalf("QEMU, process %d, still runs after its parent process ended", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// Two nodes run side by side without affecting each other.
func TestTwoNodesRunSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a virtual machine: run make e2e")
	}
	// Not parallel to other tests: these are the two nodes.
	var nodes [2]*vm.Node
	for i := range nodes {
		var err error
		if nodes[i], err = vm.Boot(t.Context(), vm.Options{Kernel: os.Getenv("JETTISON_KERNEL"), CRIO: crioFolder(t)}); err != nil {
			t.Fatal(err)
		}
		defer nodes[i].Close()
		if _, err := nodes[i].Run(t.Context(), vm.NewPod("pod"+strconv.Itoa(i), "", "", "sleep")); err != nil {
			t.Fatal(err)
		}
	}
	nodes[0].Close()
	if faults := nodes[1].Audit(t.Context(), false); len(faults) > 0 {
		t.Errorf("faults after the other node's end: %v", faults)
	}
}
