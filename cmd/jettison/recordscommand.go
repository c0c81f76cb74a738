package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"jettison/internal/config"
	"jettison/internal/records"
	"jettison/internal/show"
)

func recordsCommand(stdout, stderr io.Writer) *cobra.Command {
	var path, output string
	var past show.Past
	cmd := &cobra.Command{
		Use:   "records [ID]",
		Short: "List the evictions of this node, or show one in full",
		Long: `records lists the evictions that "run" has recorded on this node, the newest last: when, which pod, for which signal, how long from
the crossing of the threshold to the kill and from the kill until enough was available again, and what became of it. With the ID
of one, or the beginning of it, it shows that one in full: the figures, the ranking, each step.
docs/reference/formats.md has the file's format.

-o json prints the records as they lie in the file, a JSON object a line. What cannot be read of the file is named on stderr.
Where nothing was recorded it says so; an ID that no record has ends it with exit code 1.`,
		Example: "  jettison records\n  jettison records --last 10\n  jettison records 20261121T070317\n  jettison records -o json | jq .outcome",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("records takes at most one ID, got %d: see %s --help", len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if past.JSON, err = asJSON(output); err != nil {
				return err
			}
			if past.Last < 0 {
				return usageError{fmt.Errorf("--last %d: want 0 (all) or more", past.Last)}
			}
			if len(args) > 0 {
				past.ID = args[0]
			}
			if past.File == "" {
				c, err := config.Load(cmd.Context(), path)
				if err != nil {
					return usageError{err}
				}
				if c.StateDir == "" {
					return errors.New("records: stateDir is empty in the configuration, so nothing is recorded: name a file with --file")
				}
				past.File = records.Path(c.StateDir)
			}
			return past.Print(stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&past.File, "file", "", "file of records (default "+records.File+" in stateDir of the configuration)")
	f.StringVar(&path, "config", "", "configuration file (default "+config.DefaultPath+" if it is there)")
	f.IntVar(&past.Last, "last", 0, "only so many, the newest (0: all)")
	f.StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}
