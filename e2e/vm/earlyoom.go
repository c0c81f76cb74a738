package vm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// earlyoomLog is the guest's file with earlyoom's output.
const earlyoomLog = "/var/log/earlyoom.log"

// EarlyOOM is earlyoom running on a node.
type EarlyOOM struct {
	node *Node
	pid  int
}

// StartEarlyOOM runs Debian's earlyoom, which sends SIGKILL when MemAvailable falls to the
// threshold (bytes), and waits until it watches memory.
func (n *Node) StartEarlyOOM(ctx context.Context, threshold int64) (*EarlyOOM, error) {
	if !n.earlyoom {
		if err := n.uploadDebian(ctx, "earlyoom", "usr/bin/earlyoom"); err != nil {
			return nil, fmt.Errorf("start earlyoom: %w", err)
		}
		n.earlyoom = true
	}
	if _, err := n.Shell(ctx, "rm -f "+earlyoomLog); err != nil {
		return nil, err
	}
	size := strconv.FormatInt(threshold>>10, 10)
	// As Debian's unit runs it: nice -20, oom_score_adj -100. On a node without swap the swap
	// threshold counts as crossed.
	pid, err := n.Start(ctx, earlyoomLog, "/usr/local/bin/earlyoom", "-p", "-r", "0", "-M", size+","+size)
	if err != nil {
		return nil, fmt.Errorf("start earlyoom: %w", err)
	}
	err = n.Eventually(ctx, callDeadline, "earlyoom says what it watches for", func(ctx context.Context) error {
		text, err := n.ReadFile(ctx, earlyoomLog, 0)
		if err == nil && !strings.Contains(string(text), "SIGKILL when mem") {
			err = fmt.Errorf("earlyoom printed %q", text)
		}
		return err
	})
	return &EarlyOOM{node: n, pid: pid}, err
}

// Log returns the last lines that earlyoom printed.
func (e *EarlyOOM) Log() string { return e.node.Tail(earlyoomLog, 20) }

// Stop ends earlyoom.
func (e *EarlyOOM) Stop(ctx context.Context) error {
	_, err := e.node.Shell(ctx, "kill -9 "+strconv.Itoa(e.pid))
	return err
}
