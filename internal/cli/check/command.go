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
		Short: "Show kernel features, sources, kill steps and signals of this node",
		Long: `check reads the node once and prints what it finds, even if parts are missing:

  - kernel features and their purpose
  - each source and its answer, or why it failed and what to do about it
  - each step of the kill ladder, tried on its own processes in scratch cgroups (needs root and a
    writable cgroup v2 hierarchy)
  - each signal with its value, threshold and age, or why it is absent
  - other programs that kill under memory pressure (systemd-oomd, earlyoom, nohang, a second agent)
  - the number of pods of unknown priority, and what to do about them. The count comes from the
    agent; without an agent, from annotations and static manifests

Exit code 1: a requirement of "jettison run" is not met, or the kernel refuses a step of the kill
ladder. The message on stderr names the requirement, or the step and the privilege that it lacks. A
step is unknown if the node is too busy to try it, which does not fail the check.`,
		Example: "  jettison check\n  jettison check --interval 10s\n  jettison check -o json | jq .rivals",
		Args:    commandline.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := output.Format()
			if err != nil {
				return err
			}
			if err := look.FindOrWarn(cmd, stderr); err != nil {
				return err
			}
			return run(cmd.Context(), stdout, look.Options, format)
		},
	}
	look.Add(cmd.Flags())
	output.Add(cmd.Flags())
	return cmd
}
