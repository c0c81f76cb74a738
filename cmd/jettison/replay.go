package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"jettison/internal/config"
	"jettison/internal/frames"
)

func replayCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
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
				return usageError{fmt.Errorf("replay takes one file of frames, or - for standard input, got %d: see %s --help", len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, err := policyOf(path, stderr)
			if err != nil {
				return err
			}
			var than *config.Loaded
			if other != "" {
				if than, err = policyOf(other, stderr); err != nil {
					return err
				}
			}
			reader, done, err := openFrames(args[0], stdin)
			if err != nil {
				return err
			}
			defer done()
			return replay(cmd.Context(), policy, than, reader, stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", "configuration file (default "+config.DefaultPath+" if it is there)")
	f.StringVar(&other, "diff", "", "another configuration file: print where it decides otherwise")
	return cmd
}

// policyOf loads a configuration; what a person should know about it goes to stderr.
func policyOf(path string, stderr io.Writer) (*config.Loaded, error) {
	c, err := config.Load(path)
	if err != nil {
		return nil, usageError{err}
	}
	for _, w := range c.Warnings {
		if strings.HasPrefix(w, "not acted on") { // by run; here everything is
			continue
		}
		fmt.Fprintln(stderr, "jettison: replay: warning: config:", w)
	}
	return c, nil
}

// openFrames opens a file of frames.
func openFrames(path string, stdin io.Reader) (r *frames.Reader, done func(), err error) {
	if path == "-" {
		r, err := frames.NewReader(stdin, "standard input")
		return r, func() {}, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("replay: %w", err)
	}
	if r, err = frames.NewReader(file, path); err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return r, func() { _ = file.Close() }, nil
}

// replay plays frames by one policy, or compares two.
func replay(ctx context.Context, policy, than *config.Loaded, r *frames.Reader, stdout, stderr io.Writer) error {
	if than == nil {
		return frames.Run(ctx, policy.Config, r, stdout)
	}
	all, different, err := frames.Compare(ctx, policy.Config, than.Config, r, stdout)
	if err == nil {
		fmt.Fprintf(stderr, "jettison: replay: %d of %d frames are decided differently\n", different, all)
	}
	return err
}
