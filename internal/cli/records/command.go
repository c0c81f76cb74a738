package records

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandline"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/flags"
	"jettison/internal/node/records"
)

// Command returns the command jettison records.
func Command(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var path, since string
	var output commandline.Output
	var p past
	cmd := &cobra.Command{
		Use:   "records [ID]",
		Short: "List the evictions of this node, or show one in full",
		Long: `records lists the evictions that "run" has recorded on this node, the newest last: when, which pod, for which signal, how long from
the crossing of the threshold to the kill and from the kill until enough was available again, and what became of it. With the ID
of one, or the beginning of it, it shows that one in full: the figures, the ranking, each step.
docs/reference/formats.md has the file's format.

--since leaves out what began before: a time (2026-11-21T07:00:00Z) or how long ago (36h). --pod leaves those of one pod: its
namespace/name, its name or its UID. -f goes on: each eviction is printed when it begins, and once more when its outcome is known.

-o json prints the records as they lie in the file, a JSON object a line. What cannot be read of the file is named on stderr.
Where nothing was recorded, or none matches, it says so; an ID that no record has, a --file that is not there, and a file of which no
line is a record end it with exit code 1.`,
		Example: "  jettison records\n  jettison records --last 10\n" +
			"  jettison records --since 24h --pod shop/web\n  jettison records -f\n" +
			"  jettison records 20261121T070317\n  jettison records -o json | jq .outcome",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return commandline.Usage(fmt.Errorf("records takes at most one ID, got %d: see %s --help",
					len(args), cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if p.format, err = output.Format(); err != nil {
				return err
			}
			if p.since, err = flags.ParseSince(since, time.Now()); err != nil {
				return err
			}
			if p.last < 0 {
				return commandline.Usage(fmt.Errorf("--last %d: want 0 (all) or more", p.last))
			}
			if len(args) > 0 {
				p.id = args[0]
			}
			if p.id != "" && (p.follow || p.pod != "" || since != "") {
				return commandline.Usage(
					errors.New("records: an ID names one, so that --since, --pod and -f have nothing to choose"))
			}
			if p.named = p.file != ""; !p.named {
				c, err := flags.LoadOrWarn(cmd, stderr, path)
				if err != nil {
					return err
				}
				if c.StateDir == "" {
					return errors.New("records: stateDir is empty in the configuration, so nothing is recorded: " +
						"name a file with --file")
				}
				p.file = records.Path(c.StateDir)
			}
			return p.print(cmd.Context(), stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.file, "file", "", "file of records (default "+records.File+
		" in stateDir of the configuration)")
	flags.AddConfigFile(f, &path)
	f.IntVar(&p.last, "last", 0, "only so many, the newest (0: all)")
	f.StringVar(&since, "since", "", "only those that began since: a time with zone, or how long ago")
	f.StringVar(&p.pod, "pod", "", "only those of a pod: namespace/name, name or UID")
	f.BoolVarP(&p.follow, "follow", "f", false, "go on with those that are to come")
	output.Add(f, "")
	return cmd
}
