package snapshot

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison snapshot.
func Command(version string, stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var look flags.Look
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Write an archive for a bug report: state, configuration, records, cgroup files",
		Long: `snapshot writes a compressed tar archive for remote diagnosis of this node:

  - versions
  - the effective configuration, all fields
  - the agent's state, its events, and the ranking of its pods
  - the records of evictions
  - the files of cgroups, /proc and /sys that jettison reads (tree/, usable by jettison's tests)

Parts that are unavailable are left out and listed in errors.txt and on stderr.

The archive contains pod names. It does not contain environment variables, files or logs of pods, or
configuration values that may be secrets. FILE must not exist; it is readable by its owner only.
"-" writes to standard output.`,
		Example: "  jettison snapshot node1.tar.gz\n  kubectl exec -n kube-system ds/jettison -- " +
			"/jettison snapshot - > node1.tar.gz\n" +
			"  tar -xzOf node1.tar.gz jettison/state.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return commandline.Usage(
					fmt.Errorf("snapshot takes one file, or - for standard output, got %d: see %s --help",
						len(args), cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if args[0] == "-" && stdout.Terminal() {
				return commandline.Usage(
					errors.New("snapshot: standard output is a terminal: name a file for the archive"))
			}
			configErr, err := look.FindOrSalvage(cmd.Context())
			if err != nil {
				return err
			}
			to := stdout.Raw()
			if args[0] != "-" {
				f, err := create(args[0])
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				to = f
			}
			o := options{look: look.Options, node: look.NodeName(), version: version,
				configErr: configErr}
			missing, err := write(cmd.Context(), o, to)
			for _, line := range missing {
				fmt.Fprintf(stderr, "jettison: snapshot: left out: %s\n", output.OneLine(line))
			}
			return err
		},
	}
	look.AddPlaces(cmd.Flags())
	return cmd
}
