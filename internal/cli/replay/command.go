package replay

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/cli/flags"
)

// Command returns the command jettison replay.
func Command(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	var path, other string
	cmd := &cobra.Command{
		Use:   "replay FRAMES.jsonl",
		Short: "Decide again on recorded or written frames",
		Long: `replay reads frames, one JSON object a line, and prints for each what the policy of --config decides: conditions,
thresholds met, what is reclaimed, who is evicted and why, and who is admitted. Nothing is carried out: a kill that a frame
does not call failed is complete before the next one. Frames are what "run --record FILE" writes, compressed or not, or what
you write yourself; docs/reference/formats.md has the format. "-" reads standard input.

--diff prints instead, a JSON object a line, where another policy decides otherwise. Frames are what was seen, not what would
have been: after the first difference each policy goes on with its own past, but the pods and figures of the recording stay as
they were.

A malformed frame, or a time that goes backwards, ends it with exit code 1 and the line and field.`,
		Example: "  jettison replay --config config.yaml frames.jsonl.gz\n" +
			"  jettison replay --config config.yaml --diff stricter.yaml frames.jsonl.gz\n" +
			"  jettison run --record /var/lib/jettison/frames.jsonl.gz",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				err := fmt.Errorf("replay takes one file of frames, or - for standard input, got %d: see %s "+
					"--help", len(args), cmd.CommandPath())
				return commandline.Usage(err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o := options{path: args[0], stdin: stdin}
			var err error
			if o.policy, err = load(cmd.Context(), path, stderr); err != nil {
				return commandline.Usage(err)
			}
			if other != "" {
				if o.than, err = load(cmd.Context(), other, stderr); err != nil {
					return commandline.Usage(err)
				}
			}
			return run(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	flags.AddConfigFile(f, &path)
	f.StringVar(&other, "diff", "", "another configuration file: print where it decides otherwise")
	return cmd
}
