package main

import (
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/commandline"
	"jettison/internal/nodedeschedule"
	"jettison/internal/terminal"
)

func descheduleCommand(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var flags lookFlags
	var output string
	cmd := &cobra.Command{
		Use:   "deschedule",
		Short: "Print which pods should not be on this node any more, and why",
		Long: `deschedule looks at the node once and prints which pods should not be on it any more by the configuration's descheduling: stale
duplicates, failed ones, those that restart too often, are too old, or take memory above a target. It asks the container runtime and the
kernel, and no cluster. What is not known of a pod keeps it. It stops none: the agent does, with deschedule: act in its configuration and no
kubelet on the node. docs/descheduling.md has each strategy.`,
		Example: "  jettison deschedule\n  jettison deschedule -o wide\n  jettison deschedule -o json",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := formatOf(output)
			if err != nil {
				return err
			}
			if err := flags.load(cmd, stderr); err != nil {
				return err
			}
			return nodedeschedule.Once(cmd.Context(), nodedeschedule.Options{Look: flags.options, Format: format}, stdout, stderr)
		},
	}
	flags.add(cmd)
	addOutput(cmd, &output)
	return cmd
}
