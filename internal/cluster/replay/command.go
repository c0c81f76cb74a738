package replay

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/cluster/config"
)

// Command returns the command jettison-cluster replay.
func Command(stdin io.Reader, stdout io.Writer) *cobra.Command {
	var path string
	var over *config.Flags
	cmd := &cobra.Command{
		Use:   "replay FRAMES.jsonl",
		Short: "Recompute decisions about nodes from frames",
		Long: `replay reads frames, one JSON object a line, and prints the decisions of jettison-cluster nodes on
each frame as one JSON object a line. It writes nothing to a cluster. "-" reads standard input.
docs/operate/node-lifecycle.md describes the format of frames.

Exit code 1: a frame is malformed or its time goes backwards; the error names line and field.`,
		Example: "  jettison-cluster replay frames.jsonl\n" +
			"  jettison-cluster replay --config cluster.yaml --node-eviction-rate=20 - < frames.jsonl",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return commandline.Usage(
					fmt.Errorf("replay takes one file of frames or - for standard input, got %d: see %s --help",
						len(args), cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(cmd.Context(), path)
			if err == nil {
				err = over.Apply(c)
			}
			if err != nil {
				return commandline.Usage(err)
			}
			return Run(cmd.Context(), Options{Path: args[0], Stdin: stdin, Config: c}, stdout)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration file")
	over = config.AddPolicyFlags(cmd.Flags())
	return cmd
}
