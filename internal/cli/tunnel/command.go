package tunnel

import (
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/cli/flags"
)

// name is the command of the agent's binary that a Tunnel runs in the agent's pod.
const name = "tunnel"

// Command returns the command jettison tunnel. It is hidden, because only a Tunnel can use it.
func Command(stdin io.ReadCloser, stdout io.WriteCloser, stderr io.Writer) *cobra.Command {
	var socket flags.Socket
	cmd := &cobra.Command{
		Use:    name,
		Short:  "Forward HTTP/2 requests from standard input to the agent",
		Hidden: true,
		Args:   commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := socket.Find(cmd, stderr)
			if err != nil {
				return err
			}
			Serve(cmd.Context(), stdin, stdout, path)
			return nil
		},
	}
	socket.Add(cmd.Flags())
	return cmd
}
