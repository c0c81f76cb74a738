package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/commandline"
	"jettison/internal/config"
	"jettison/internal/records"
	"jettison/internal/show"
	"jettison/internal/terminal"
)

func recordsCommand(stdout *terminal.Screen, stderr io.Writer) *cobra.Command {
	var path, output, since string
	var past show.Past
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
				return commandline.Usage(fmt.Errorf("records takes at most one ID, got %d: see %s --help", len(args), cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if past.Format, err = formatOf(output); err != nil {
				return err
			}
			if past.Since, err = sinceOf(since, time.Now()); err != nil {
				return err
			}
			if past.Last < 0 {
				return commandline.Usage(fmt.Errorf("--last %d: want 0 (all) or more", past.Last))
			}
			if len(args) > 0 {
				past.ID = args[0]
			}
			if past.ID != "" && (past.Follow || past.Pod != "" || since != "") {
				return commandline.Usage(errors.New("records: an ID names one, so that --since, --pod and -f have nothing to choose"))
			}
			if past.Named = past.File != ""; !past.Named {
				c, wrong, err := loadOrSalvage(cmd.Context(), path)
				if err != nil {
					return err
				}
				saySalvaged(cmd, stderr, wrong)
				if c.StateDir == "" {
					return errors.New("records: stateDir is empty in the configuration, so nothing is recorded: name a file with --file")
				}
				past.File = records.Path(c.StateDir)
			}
			return past.Print(cmd.Context(), stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&past.File, "file", "", "file of records (default "+records.File+" in stateDir of the configuration)")
	f.StringVar(&path, "config", "", "configuration file (default "+config.DefaultPath+" if it is there)")
	f.IntVar(&past.Last, "last", 0, "only so many, the newest (0: all)")
	f.StringVar(&since, "since", "", "only those that began since: a time with zone, or how long ago")
	f.StringVar(&past.Pod, "pod", "", "only those of a pod: namespace/name, name or UID")
	f.BoolVarP(&past.Follow, "follow", "f", false, "go on with those that are to come")
	addOutput(cmd, &output)
	return cmd
}

// sinceOf is the time that a flag names, or so long before now; empty: no time.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, commandline.Usage(fmt.Errorf("--since %.40q: want a time with its zone (2026-11-21T07:00:00Z), or how long ago (36h)", text))
	}
	return at, nil
}
