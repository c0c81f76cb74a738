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
		Short: "Write one archive to send with a report: state, configuration, records, cgroup files",
		Long: `snapshot writes a compressed tar with what somebody needs who is to find out from afar what this node does: versions; the
configuration as it holds, each field; what the agent says of itself, and whom it would evict; the records of evictions; and the files of
cgroups, /proc and /sys that jettison reads (tree/: enough to run jettison's tests on). What cannot be had is left out and named in
its errors.txt and on stderr.

It has names of pods. It has no environment, no file or log of a pod, and of the configuration no value that may be a secret. FILE must not
be there yet, and only its owner may read it; - is standard output.`,
		Example: "  jettison snapshot node1.tar.gz\n  kubectl exec -n kube-system ds/jettison -- " +
			"/jettison snapshot - > node1.tar.gz\n" +
			"  tar -xzOf node1.tar.gz jettison/state.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return commandline.Usage(
					fmt.Errorf("snapshot takes one file, or - for standard output, got %d: see %s --help",
						len(args), cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if args[0] == "-" && stdout.Terminal() {
				return commandline.Usage(
					errors.New("snapshot: standard output is a terminal, and the archive no text: name a file"))
			}
			wrong, err := look.FindOrSalvage(cmd.Context())
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
			o := options{look: look.Options, node: look.NodeName(), version: version, wrong: wrong}
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
