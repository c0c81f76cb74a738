package check

import (
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison check.
func Command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var look flags.Look
	var output commandline.Output
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Print what this node can do, which sources answer, and every signal",
		Long: `check looks at the node once and prints what its kernel can do and what that is for; each source with its answer, or why there
is none and what to do about it; each rung of the kill ladder, tried on processes of its own in scratch cgroups, where it may write; each
signal with its value, its threshold and its age, or why it is absent; and what else kills here when the node runs short (systemd-oomd,
earlyoom, nohang, another agent). Then it counts the pods whose priority nobody has told, by the word of an agent that runs here or, without
one, by annotations and static manifests, and says what to do about them. It prints what it finds on any host, whatever is missing.

Exit code 1: something that jettison run cannot work without is missing, or a rung of the kill ladder is refused; the line on stderr says
which.`,
		Example: "  jettison check\n  jettison check --watch 10s\n  jettison check -o json | jq .rivals",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if err := look.Load(cmd, stderr); err != nil {
				return err
			}
			return run(cmd.Context(), stdout, look.Options, format)
		},
	}
	look.Add(cmd.Flags())
	output.Add(cmd.Flags(), "")
	return cmd
}
