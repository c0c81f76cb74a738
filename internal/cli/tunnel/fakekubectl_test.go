package tunnel

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or the fake kubectl if the binary has that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl" {
		os.Exit(fakeKubectl(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// script is the behavior of the fake kubectl.
type script struct {
	Pods, PodsError, NodeError string
	Exec                       string // serve, garbage, endless, silent; otherwise it prints ExecError and exits
	ExecError                  string
	Warning                    string // of exec, before it does that
	Socket                     string // for Exec serve
}

const (
	scriptFile = "script.json"
	callsFile  = "calls"
)

// fakeKubectl runs one command line by the script in $FAKE_KUBECTL, and logs it there.
func fakeKubectl(args []string) int {
	dir := os.Getenv("FAKE_KUBECTL")
	var s script
	text, err := os.ReadFile(filepath.Join(dir, scriptFile))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		err = logCall(dir, args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fake kubectl:", err)
		return 1
	}
	reason, output := s.PodsError, s.Pods
	switch {
	case slices.Contains(args, "node"):
		reason, output = s.NodeError, "node/w1\n"
	case slices.Contains(args, "exec"):
		reason, output = s.ExecError, ""
		if s.Warning != "" {
			fmt.Fprint(os.Stderr, s.Warning)
		}
		switch s.Exec {
		case "serve":
			Serve(context.Background(), os.Stdin, os.Stdout, s.Socket)
			return 0
		case "silent":
			time.Sleep(time.Hour)
		case "garbage":
			fmt.Print("\x1b]0;title\x07HTTP/1.1 200 OK\r\n\r\nhello")
			time.Sleep(time.Hour)
		case "endless":
			for _, f := range []*os.File{os.Stdout, os.Stderr} {
				go func() {
					for {
						if _, err := fmt.Fprint(f, strings.Repeat("\x1b[2J\xff", 1000)); err != nil {
							return
						}
					}
				}()
			}
			time.Sleep(time.Hour)
		}
	case s.Pods == "silent":
		fmt.Fprint(os.Stderr, s.PodsError)
		time.Sleep(time.Hour)
	case s.Pods == "endless":
		for {
			if _, err := fmt.Print(strings.Repeat("[", 1<<16)); err != nil {
				return 1
			}
		}
	}
	if reason != "" {
		fmt.Fprint(os.Stderr, reason)
		return 1
	}
	fmt.Print(output)
	return 0
}

// logCall appends a line with the process ID and the arguments, in one write.
func logCall(dir string, args []string) error {
	f, err := os.OpenFile(filepath.Join(dir, callsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %s\n", os.Getpid(), strings.Join(args, " "))
	return errorOr(err, f.Close())
}

func errorOr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// kubectl is a fake kubectl in $PATH.
type kubectl struct {
	t   *testing.T
	dir string
}

func newKubectl(t *testing.T, s script) *kubectl {
	t.Helper()
	k := &kubectl{t: t, dir: t.TempDir()}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(k.dir, "kubectl"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", k.dir)
	t.Setenv("FAKE_KUBECTL", k.dir)
	k.set(s)
	return k
}

// set replaces the script for the next command lines.
func (k *kubectl) set(s script) {
	k.t.Helper()
	text, err := json.Marshal(s)
	next := filepath.Join(k.dir, "next")
	if err == nil {
		err = os.WriteFile(next, text, 0o600)
	}
	if err == nil {
		err = os.Rename(next, filepath.Join(k.dir, scriptFile))
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// calls returns the process IDs and the command lines so far.
func (k *kubectl) calls() (pids []int, lines []string) {
	k.t.Helper()
	text, err := os.ReadFile(filepath.Join(k.dir, callsFile))
	if err != nil && !os.IsNotExist(err) {
		k.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		pid, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var n int
		if _, err := fmt.Sscan(pid, &n); err != nil {
			k.t.Fatalf("line %q of the fake kubectl: %v", line, err)
		}
		pids, lines = append(pids, n), append(lines, rest)
	}
	return pids, lines
}

// execs returns the number of started exec commands, and the process ID of the last one.
func (k *kubectl) execs() (n, last int) {
	pids, lines := k.calls()
	for i, line := range lines {
		if strings.Contains(line, " exec ") {
			n, last = n+1, pids[i]
		}
	}
	return n, last
}

// allEnded fails the test if a kubectl is still running.
func (k *kubectl) allEnded() {
	k.t.Helper()
	pids, lines := k.calls()
	for i, pid := range pids {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			k.t.Errorf("kubectl %s (process %d) still exists: kill 0 = %v, want %v", lines[i], pid, err, syscall.ESRCH)
		}
	}
}

// podList returns the output of kubectl get pods with one pod.
func podList(name, phase, state string) string {
	return fmt.Sprintf(`{"kind":"List","items":[{"metadata":{"name":%q},"status":{"phase":%q,"containerStatuses":[`+
		`{"name":"bridge","state":{"running":{}}},{"name":"agent","state":{%s}}]}}]}`, name, phase, state)
}

// runningPod is a list with a pod whose agent runs.
var runningPod = podList("jettison-x1", "Running", `"running":{}`)

// noPods is a list without a pod.
const noPods = `{"kind":"List","items":[]}`
