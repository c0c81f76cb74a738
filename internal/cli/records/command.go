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
	var q query
	cmd := &cobra.Command{
		Use:   "records [ID]",
		Short: "List the recorded evictions of this node, or show one in full",
		Long: `records lists the evictions that the agent recorded on this node, newest last: time, pod, signal,
time from the crossing to the kill (TO KILL), time from the kill until the signal recovered (TO
RECOVERY), and outcome. With an ID, or a unique prefix of one, it prints that record in full: the
observations, the ranking, and each step of the kill. docs/reference/formats.md describes the file.

--since selects records by start: a time (2026-11-21T07:00:00Z) or an age (36h). --pod selects
records of one pod by namespace/name, name or UID. -f continues with new records: it prints an
eviction when it starts, and again when its outcome is known.

--dry-run prints one line for each pod and threshold that a dry run would have evicted the pod for:
the number of shortages (TIMES), the first and the last decision, and the observed value at the
start of the newest record. No line means no such eviction. A dry run leaves the pod running, so it
does not show which pod would have been next.

-o json prints one array of records as stored, or one record with an ID. -o jsonl prints one record
a line, also with -f. Lines that cannot be read are reported on stderr.

Exit code 1: no record has the ID, the file of --file does not exist, or the file holds no records.`,
		Example: "  jettison records\n  jettison records --last 10\n" +
			"  jettison records --since 24h --pod shop/web\n  jettison records -f\n" +
			"  jettison records --dry-run --since 168h\n" +
			"  jettison records 20261121T070317\n  jettison records -o jsonl | jq .outcome",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return commandline.Usage(fmt.Errorf("records takes at most one ID, got %d: see %s --help",
					len(args), cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := q.parse(args, since, output); err != nil {
				return err
			}
			if q.mustExist = q.file != ""; !q.mustExist {
				c, err := flags.LoadOrWarn(cmd, stderr, path)
				if err != nil {
					return err
				}
				if c.StateDir == "" {
					return errors.New("records: stateDir is empty in the configuration, so nothing is recorded: " +
						"name a file with --file")
				}
				q.file = records.Path(c.StateDir)
			}
			return q.print(cmd.Context(), stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.file, "file", "", "file of records (default "+records.File+" in stateDir)")
	flags.AddConfigFile(f, &path)
	f.IntVar(&q.last, "last", 0, "only the newest N records (0: all)")
	f.StringVar(&since, "since", "", "only records since a time with a zone, or an age such as 36h")
	commandline.Values[string](f, "since")
	f.StringVar(&q.pod, "pod", "", "only records of a pod: namespace/name, name or UID")
	f.BoolVar(&q.dryRun, "dry-run", false, "summarize the pods that dry runs would have evicted")
	f.BoolVarP(&q.follow, "follow", "f", false, "continue with new records")
	commandline.Values[string](f, "pod")
	commandline.FirstArgument[string](cmd)
	output.AddStream(f)
	return cmd
}

// parse checks the arguments and the flags, and stores those that need it.
func (q *query) parse(args []string, since string, output commandline.Output) (err error) {
	format := output.Format
	if q.follow {
		format = output.StreamFormat
	}
	if q.format, err = format(); err != nil {
		return err
	}
	if q.since, err = commandline.ParseSince(since, time.Now()); err != nil {
		return err
	}
	if q.last < 0 {
		return commandline.Usage(fmt.Errorf("--last %d: want 0 (all) or more", q.last))
	}
	if len(args) > 0 {
		q.id = args[0]
	}
	if q.id != "" && (q.follow || q.pod != "" || since != "") {
		return commandline.Usage(
			errors.New("records: an ID selects one record: omit --since, --pod and -f"))
	}
	if q.dryRun && (q.id != "" || q.follow || q.last > 0) {
		return commandline.Usage(
			errors.New("records: --dry-run prints a summary: omit the ID, --last and -f"))
	}
	return nil
}
