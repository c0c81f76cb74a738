package ui

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
	"jettison/internal/cli/tunnel"
)

// Command returns the command jettison ui.
func Command(version string, stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var socket flags.Socket
	var target tunnel.Target
	o := Options{Version: version, Node: os.Getenv("NODE_NAME")}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page with live signals, evictions, pods, gate and garbage collection",
		Long: `ui serves a web page on loopback until you stop it, and prints the address of the page. The page
shows signals over time with their thresholds, conditions, pods by the memory that killing each
would free, each eviction as a timeline, decisions of the gate, and passes of garbage collection.

ui reads the agent's socket with the permissions of the user who starts it, and changes nothing. It
keeps a history of one hour that starts with the command.

Each second, the agent reads all pods for the ranking on the page. It reads none for a hidden page,
and reads them every 10 s if the page got no input for 10 minutes.

The address contains a key, because all users of the machine can connect to loopback. To open the
page from another machine, forward the port under the same number (see the last example).

With --node, ui reads the agent of a node of a cluster, through one "kubectl exec" in the agent's
pod. In the pod's namespace the user needs the verbs get and list on pods, and get and create on
pods/exec.`,
		Example: "  jettison ui\n  jettison ui --listen 127.0.0.1:0\n  jettison ui --node worker-1\n" +
			"  ssh -t -L 5388:127.0.0.1:5388 NODE jettison ui",
		Args: commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := ParseListen(o.Listen); err != nil {
				return commandline.Usage(err)
			}
			remote, err := target.Check(cmd)
			if err != nil {
				return err
			}
			if remote {
				return runRemote(cmd.Context(), o, target, stdout, stderr)
			}
			if o.Socket, err = socket.Find(cmd, stderr); err != nil {
				return err
			}
			return Run(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", DefaultListen,
		"loopback address and port (0: any free port)")
	commandline.Values[string](f, "listen")
	socket.Add(f)
	target.Add(f)
	return cmd
}

// runRemote serves the page of another node's agent. It returns an error if the tunnel to the node
// cannot be opened. A tunnel that breaks later is an agent that does not answer.
func runRemote(ctx context.Context, o Options, target tunnel.Target, stdout,
	stderr io.Writer) error {
	t := tunnel.New(target)
	defer t.Close()
	switch err := t.Open(ctx); {
	case ctx.Err() != nil: // interrupted
		return nil
	case err != nil:
		return fmt.Errorf("ui: node %s: %w", target.Node, err)
	}
	o.Node, o.Socket, o.Transport = target.Node, "node "+target.Node, t
	return Run(ctx, o, stdout, stderr)
}
