package main

import (
	"strings"
	"testing"
)

// What is wrong with a command line of nodes, or explain, is one line.
func TestNodesCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"nodes"}, exitUsage, "in no pod of a cluster name a --kubeconfig"},
		{[]string{"nodes", "--mode", "fence"}, exitUsage, "fence needs a check"},
		{[]string{"nodes", "--mode", "act"}, exitUsage, "want observe, fence or replace"},
		{[]string{"nodes", "--status", "--replay", "-"}, exitUsage, "exclude each other"},
		{[]string{"nodes", "--status", "-o", "xml"}, exitUsage, `--output "xml"`},
		{[]string{"nodes", "--status", "--address", "127.0.0.1:1"}, exitFailed, "name a running one's --address"},
		{[]string{"nodes", "--log-level", "loud"}, exitUsage, `--log-level "loud"`},
		{[]string{"nodes", "--kubeconfig", "/nowhere"}, exitUsage, "/nowhere"},
		{[]string{"explain"}, exitUsage, "explain wants one node or pod"},
		{[]string{"explain", "n1", "--address", "127.0.0.1:1"}, exitFailed, "name a running one's --address"},
		{[]string{"nodes", "explain", "n1", "--address", "127.0.0.1:1"}, exitFailed, "name a running one's --address"},
	} {
		code, stdout, stderr := run(t, "", c.args...)
		if code != c.code || !strings.Contains(stderr, c.says) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%v: exit code %d, %s%s", c.args, code, stdout, stderr)
		}
	}
}
