package main

import (
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/commandline"
	"jettison/internal/observe"
	"jettison/internal/show"
	"jettison/internal/sources"
	"jettison/internal/terminal"
)

func statsCommand(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var flags lookFlags
	var output string
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Print what this node and its pods use",
		Long: `stats looks at the node once and prints what it and each pod use, read from the kernel: no kubelet and no cAdvisor is
asked. A source that does not answer within --wait is absent from the output and named on stderr; the others are there.

-o json prints one Summary as the kubelet's Summary API has it (stats/v1alpha1). The sign - in the table: not known.`,
		Example: "  jettison stats\n  jettison stats -o wide\n  jettison stats -o json --wait 30s",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := formatOf(output)
			if err != nil {
				return err
			}
			if err := flags.load(cmd, stderr); err != nil {
				return err
			}
			s, err := sources.Open(flags.options.Options)
			if err != nil {
				return err
			}
			defer s.Close()
			look := observe.Once(cmd.Context(), s, flags.options)
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			return show.Node(look, flags.options.Config.MemoryAvailable, format, stdout, stderr)
		},
	}
	flags.add(cmd)
	addOutput(cmd, &output)
	return cmd
}
