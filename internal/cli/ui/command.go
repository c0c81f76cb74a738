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
		Short: "Serve a page with live signals, evictions, pods, gate and garbage collection",
		Long: `ui serves a web page on loopback until you stop it, and prints the address of the page. The page
shows signals over time with their thresholds, conditions, pods by the memory that killing each
would free, each eviction as a timeline, decisions of the gate, and passes of garbage collection.

ui reads the agent's socket with the permissions of the user who starts it, and changes nothing. It
keeps a history of one hour that starts with the command.

Each second, the agent reads all pods for the ranking on the page. It reads none for a hidden page,
and reads them every 10 s if the page got no input for 10 minutes.

The address contains a key, because all users of the machine can connect to loopback. To open the
page from another machine, forward the port under the same number (see the last example).`,
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
		"loopback address and port (0: any free port)")
	commandline.Values[string](f, "listen")
	socket.Add(f)
	return cmd
}
