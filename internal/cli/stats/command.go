package stats

import (
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
)

// Command returns the command jettison stats.
func Command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var look flags.Look
	var output commandline.Output
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Print the resource usage of this node and its pods",
		Long: `stats reads the node once and prints the resource usage of the node and of each pod. It reads the
kernel and needs neither the kubelet nor cAdvisor. A source that does not answer within --timeout is
left out of the output and reported on stderr. "-" means unknown.

-o json prints a Summary in the format of the kubelet's Summary API (stats/v1alpha1).`,
		Example: "  jettison stats\n  jettison stats -o wide\n  jettison stats -o json --timeout 30s",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if err := look.FindOrWarn(cmd, stderr); err != nil {
				return err
			}
			s, err := sources.Open(look.Options.Options)
			if err != nil {
				return err
			}
			defer s.Close()
			seen := observe.Once(cmd.Context(), s, look.Options)
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			return printLook(seen, look.Options.Config.MemoryAvailable, format, stdout, stderr)
		},
	}
	look.Add(cmd.Flags())
	output.Add(cmd.Flags())
	return cmd
}
