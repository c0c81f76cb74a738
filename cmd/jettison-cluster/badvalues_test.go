package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandtest"
	"jettison/internal/base/terminal"
)

func TestBadValues(t *testing.T) {
	commandtest.BadValues(t, commandtest.Program{
		Root: func() *cobra.Command {
			return command(strings.NewReader(""), terminal.New(io.Discard, true), io.Discard)
		},
		Execute: func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
			return execute(ctx, args, strings.NewReader(""), stdout, stderr)
		},
		Serving: []string{"nodes", "deschedule"},
		Files: map[string]string{
			"kubeconfig": "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n" +
				"contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n",
			"policy.yaml": "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n", "empty": "",
		},
		Valid: map[string]string{"kubeconfig": "DIR/kubeconfig", "address": "127.0.0.1:0", "policy": "DIR/policy.yaml",
			"NODE": "node-1", "FRAMES.jsonl": "DIR/empty", "POLICY": "DIR/policy.yaml"},
		AnyText: map[string]string{
			"nodes --address": "empty: no server", "deschedule --address": "empty: no server",
			"nodes --fence-command": "started when a node is silent", "nodes --fence-url": "requested when a node is silent",
			"nodes --leader-elect-resource-name": "the API server checks it", "nodes --leader-elect-resource-namespace": "the API server checks it",
			"deschedule --leader-elect-resource-name":      "not used without --leader-elect",
			"deschedule --leader-elect-resource-namespace": "not used without --leader-elect",
			"deschedule --load-namespace":                  "used only by policies that need the load of nodes",
		},
	})
}
