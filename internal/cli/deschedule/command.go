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
		Short: "Print which pods descheduling would evict from this node, and why",
		Long: `deschedule reads the node once and prints which pods the descheduling settings of the
configuration would evict: stale duplicates, failed pods, pods that restart too often or are too
old, and pods that use memory above a target. It reads the container runtime and the kernel, not
the API server. A pod with missing data is kept.

The command evicts nothing. The agent evicts the pods if its configuration has deschedule: act and
no kubelet runs on the node. docs/operate/descheduling.md describes each strategy.`,
		Example: "  jettison deschedule\n  jettison deschedule -o wide\n  jettison deschedule -o json",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if err := look.FindOrWarn(cmd, stderr); err != nil {
				return err
			}
			return run(cmd.Context(), options{look: look.Options, format: format}, stdout, stderr)
		},
	}
	look.Add(cmd.Flags())
	output.Add(cmd.Flags())
	return cmd
}
