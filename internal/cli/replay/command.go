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
	var path, otherPath string
	cmd := &cobra.Command{
		Use:   "replay FRAMES.jsonl",
		Short: "Recompute decisions from recorded frames",
		Long: `replay reads frames, one JSON object a line, and prints the decisions of the configuration in
--config for each: conditions, met thresholds, reclaims, evictions with reasons, and admissions. It
acts on nothing; a kill counts as complete before the next frame, unless the frame marks it as
failed.

Frames come from "jettison run --record FILE", compressed or not, or are written by hand;
docs/reference/formats.md describes the format. "-" reads standard input.

--diff prints only the differences to a second configuration, one JSON object a line. Frames hold
the recorded observations: after the first difference each configuration keeps its own decisions,
but pods and values stay as recorded.

Exit code 1: a frame is malformed or its time goes backwards; the error names line and field.`,
		Example: "  jettison replay --config config.yaml frames.jsonl.gz\n" +
			"  jettison replay --config config.yaml --diff stricter.yaml frames.jsonl.gz\n" +
			"  jettison run --record /var/lib/jettison/frames.jsonl.gz",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				err := fmt.Errorf("replay takes one file of frames or - for standard input, got %d: see %s "+
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
			if otherPath != "" {
				if o.other, err = load(cmd.Context(), otherPath, stderr); err != nil {
					return commandline.Usage(err)
				}
			}
			return run(cmd.Context(), o, stdout, stderr)
		},
	}
	f := cmd.Flags()
	flags.AddConfigFile(f, &path)
	f.StringVar(&otherPath, "diff", "", "second configuration file: print different decisions")
	return cmd
}
