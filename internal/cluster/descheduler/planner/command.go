package planner

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
)

// MigrateCommand returns the command jettison-cluster deschedule migrate.
func MigrateCommand(stdin io.Reader, stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Convert a policy from descheduler/v1alpha1 to v1alpha2",
		Long: `migrate converts a policy from descheduler/v1alpha1, which old releases of the descheduler read,
to v1alpha2 and prints it. Strategies with the same filters share a profile. Settings without
equivalent are listed on stderr, one line each. A strategy that cannot be converted is left out:
stderr names its line, and the exit code is 1.`,
		Example: "  jettison-cluster deschedule migrate --policy old.yaml > policy.yaml",
		Args:    commandline.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			if path == "" {
				return commandline.Usage(
					errors.New("deschedule migrate: --policy is required: the file of a v1alpha1 policy"))
			}
			return migrate(path, stdin, stdout, stderr)
		},
	}
	cmd.Flags().StringVar(&path, "policy", "", "file of the policy; - is standard input")
	return cmd
}
