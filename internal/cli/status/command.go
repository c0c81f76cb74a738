package status

import (
	"time"

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
		Short: "Show the node's conditions, signals, last evictions and problems on one screen",
		Long: `status queries the agent on this node and prints:

  - the node's conditions
  - each signal with a threshold, a bar, and the time until the threshold is crossed at the rate
    of the last second. In the bar, # is the available amount (for a pressure signal: the share of
    time stalled) and | marks the nearest threshold
  - the last evictions
  - problems, each with what to do about it

If the agent does not answer, status reads the node itself and reports the agent as a problem.

Exit codes: 0 the node is healthy; 1 it is not, and the last lines list the problems.`,
		Example: "  jettison status\n  jettison status -o wide\n  jettison status -o json | jq .problems",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			configErr, err := look.FindOrSalvage(cmd.Context())
			if err != nil {
				return err
			}
			o := options{look: look.Options, node: look.NodeName(), format: format,
				configErr: configErr}
			return run(cmd.Context(), o, stdout)
		},
	}
	look.AddPlaces(cmd.Flags())
	look.AddSocket(cmd.Flags(), 3*time.Second)
	output.Add(cmd.Flags())
	return cmd
}
