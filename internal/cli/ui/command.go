package ui

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison ui.
func Command(version string, stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var socket flags.Socket
	o := Options{Version: version, Node: os.Getenv("NODE_NAME")}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a page for a browser: signals, evictions, pods, gate and garbage, live",
		Long: `ui serves one page on loopback until it is ended, and prints its address: signals over time against their thresholds,
conditions, pods by what killing each would free, each eviction as a timeline, decisions of the gate, passes of garbage collection. It
reads the agent's socket as whoever starts it, and changes nothing. The history is its own: it begins with the command, and has an hour.

The address has a key, for everybody on the machine can connect to loopback. From another machine, forward the port by the same number.`,
		Example: "  jettison ui\n  jettison ui --listen 127.0.0.1:0\n  ssh -t -L 5388:127.0.0.1:5388 NODE jettison ui",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := ParseListen(o.Listen); err != nil {
				return commandline.Usage(err)
			}
			var err error
			if o.Socket, err = socket.Find(cmd, stderr); err != nil {
				return err
			}
			return Run(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", DefaultListen,
		"where the page is: loopback and a port, 0 for any that is free")
	socket.Add(f)
	return cmd
}
