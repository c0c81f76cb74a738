package main

import (
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/check"
)

func checkCommand(stdout io.Writer) *cobra.Command {
	var flags lookFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Print what this node can do, which sources answer, and every signal",
		Long: `check looks at the node once and prints four tables: what its kernel can do and what that is for; each source with
its answer, or why there is none and what to do about it; each rung of the kill ladder, tried on processes of its own in
scratch cgroups, where it may write; and each signal with its value, its threshold and its age, or why it
is absent. Then it counts the pods whose priority nobody has told, by the word of an agent that runs here or, without one, by
annotations and static manifests, and says what to do about them.

Exit code 1: something that jettison run cannot work without is missing; it is the last line.`,
		Example: "  jettison check\n  jettison check --watch 10s",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.load(cmd.Context()); err != nil {
				return err
			}
			return check.Run(cmd.Context(), stdout, flags.options)
		},
	}
	flags.add(cmd)
	return cmd
}
