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
		Short: "Print what this node and its pods use",
		Long: `stats looks at the node once and prints what it and each pod use, read from the kernel: no kubelet and no cAdvisor is
asked. A source that does not answer within --wait is absent from the output and named on stderr; the others are there.

-o json prints one Summary as the kubelet's Summary API has it (stats/v1alpha1). The sign - in the table: not known.`,
		Example: "  jettison stats\n  jettison stats -o wide\n  jettison stats -o json --wait 30s",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if err := look.Load(cmd, stderr); err != nil {
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
	output.Add(cmd.Flags(), "")
	return cmd
}
