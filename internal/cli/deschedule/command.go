package deschedule

import (
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison deschedule.
func Command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var look flags.Look
	var output commandline.Output
	cmd := &cobra.Command{
		Use:   "deschedule",
		Short: "Print which pods should not be on this node any more, and why",
		Long: `deschedule looks at the node once and prints which pods should not be on it any more by the configuration's descheduling: stale
duplicates, failed ones, those that restart too often, are too old, or take memory above a target. It asks the container runtime and the
kernel, and no cluster. What is not known of a pod keeps it. It stops none: the agent does, with deschedule: act in its configuration and no
kubelet on the node. docs/operate/descheduling.md has each strategy.`,
		Example: "  jettison deschedule\n  jettison deschedule -o wide\n  jettison deschedule -o json",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if err := look.Load(cmd, stderr); err != nil {
				return err
			}
			return run(cmd.Context(), options{look: look.Options, format: format}, stdout, stderr)
		},
	}
	look.Add(cmd.Flags())
	output.Add(cmd.Flags(), "")
	return cmd
}
