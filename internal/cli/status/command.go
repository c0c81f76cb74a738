package status

import (
	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison status.
func Command(stdout *terminal.Screen) *cobra.Command {
	var look flags.Look
	var output commandline.Output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how this node stands, on one screen: conditions, signals, last evictions, problems",
		Long: `status asks the agent on this node how it stands: its conditions; each signal that has a threshold, with a bar (# is what there is,
| where the nearest threshold lies; of a pressure signal # is the share of time stalled) and the time until it is crossed at the slope of
the last second; the last evictions; what is wrong, and what to do about it. Where no agent answers it reads the kernel itself, and says so.

Exit codes: 0 the node is healthy; 1 it is not, and the last lines say why.`,
		Example: "  jettison status\n  jettison status -o wide\n  jettison status -o json | jq .problems",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			wrong, err := look.FindOrSalvage(cmd.Context())
			if err != nil {
				return err
			}
			o := options{look: look.Options, node: look.NodeName(), format: format, wrong: wrong}
			return run(cmd.Context(), o, stdout)
		},
	}
	look.AddPlaces(cmd.Flags())
	look.AddSocket(cmd.Flags())
	output.Add(cmd.Flags(), "")
	return cmd
}
