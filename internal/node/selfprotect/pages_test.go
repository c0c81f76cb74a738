package selfprotect

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallPages restarts the program once, with the same process ID and arguments, and without huge pages from its first page on.
func TestSmallPagesRestartsTheProgram(t *testing.T) {
	if os.Getenv("JETTISON_PAGES") != "" {
		before, _ := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
		if before == 0 {
			_, _ = os.Stdout.WriteString("huge\n")
		}
		if err := SmallPages(); err != nil {
			t.Fatal(err)
		}
		during := -1
		WithHugePages(func() { during, _ = unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0) })
		if after, _ := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0); during != 0 || after != 1 {
			t.Errorf("huge pages disabled within WithHugePages = %d, after it = %d, want 0 and 1", during, after)
		}
		_, _ = os.Stdout.WriteString("small " + strings.Join(os.Args[1:], " ") + "\n")
		return
	}
	if is, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0); err != nil || is != 0 {
		t.Skip("this process has no huge pages: ", is, err)
	}
	program := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	program.Env = append(os.Environ(), "JETTISON_PAGES=1")
	program.Stderr = os.Stderr
	out, err := program.Output()
	if lines := strings.Split(string(out), "\n"); err != nil || len(lines) < 2 || lines[0] != "huge" || lines[1] != "small -test.run=^"+t.Name()+"$" {
		t.Errorf("output of the restarted program = %q, %v, want huge and small", out, err)
	}
}
