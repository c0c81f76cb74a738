package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandtest"
	"jettison/internal/base/terminal"
)

func TestBadValues(t *testing.T) {
	commandtest.BadValues(t, commandtest.Program{
		Root:    func() *cobra.Command { return command(terminal.New(io.Discard, true), io.Discard) },
		Execute: execute,
		Serving: []string{"run", "ui"},
		Files: map[string]string{
			"config.yaml": "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nsocket: DIR/agent.sock\nstateDir: DIR/state\n" +
				"containerRuntimeEndpoint: unix://DIR/runtime.sock\n",
			"pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", "frames.jsonl": "",
		},
		Valid: map[string]string{
			"config": "DIR/config.yaml", "cgroup-mount": "DIR/cgroup", "host-root": "DIR/folder", "proc-mount": "DIR/folder",
			"state-dir": "DIR/state", "listen": "127.0.0.1:0", "dry-run": "true", "file": "DIR/pod.yaml",
			"timeout": "100ms", "interval": "100ms", "times": "1",
			"FILE": "DIR/frames.jsonl", "SIGNAL": "memory.available", "ID": "1",
		},
		AnyText: map[string]string{"ui --socket": "the page waits for the agent", "config print --proc-mount": "empty: /proc",
			"tunnel --socket": "no request arrives", "records --config": "not read with --file"},
		Advice: "run as root",
	})
}
