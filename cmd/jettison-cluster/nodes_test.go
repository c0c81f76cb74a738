package main

import (
	"strings"
	"testing"
)

// Errors in a command line of nodes, status, explain or replay are one line.
func TestNodesCommandLine(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"nodes"}, exitUsage, "not in a pod, and no kubeconfig: pass --kubeconfig, set $KUBECONFIG or create "},
		{[]string{"nodes", "--mode", "fence"}, exitUsage, "fence needs a check"},
		{[]string{"nodes", "--mode", "act"}, exitUsage, "want observe, fence or replace"},
		{[]string{"nodes", "--status"}, exitUsage, "unknown flag: --status"},
		{[]string{"status", "-o", "xml"}, exitUsage, `--output "xml"`},
		{[]string{"status", "--address", "127.0.0.1:1"}, exitFailed, "pass the --address of a running instance"},
		{[]string{"replay"}, exitUsage, "replay takes one file of frames"},
		{[]string{"replay", "-", "--mode", "fence"}, exitUsage, "unknown flag: --mode"},
		{[]string{"nodes", "--log-level", "loud"}, exitUsage, `--log-level "loud"`},
		{[]string{"nodes", "--kubeconfig", "/nowhere"}, exitUsage, "/nowhere"},
		{[]string{"explain"}, exitUsage, "explain takes one node or pod"},
		{[]string{"explain", "n1", "--address", "127.0.0.1:1"}, exitFailed, "pass the --address of a running instance"},
	} {
		code, stdout, stderr := run(t, "", c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("arguments %v: exit code %d, want %d and error %q, got %s%s", c.args, code, c.code, c.want, stdout, stderr)
		}
	}
}
