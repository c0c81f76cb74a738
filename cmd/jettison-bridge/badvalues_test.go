package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandtest"
)

func TestBadValues(t *testing.T) {
	commandtest.BadValues(t, commandtest.Program{
		Root:    func() *cobra.Command { return command(io.Discard, io.Discard) },
		Execute: execute,
		Serving: []string{"run", "cleanup"}, // cleanup retries
		Files: map[string]string{"kubeconfig": "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n" +
			"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"},
		Valid: map[string]string{"kubeconfig": "DIR/kubeconfig", "node-name": "node-1", "socket": "DIR/agent.sock"},
		AnyText: map[string]string{
			"run --socket": "the bridge waits for the agent", "run --lease-namespace": "empty: no Leases",
		},
	})
}
