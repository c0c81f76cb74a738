package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/config"
	"jettison/internal/records"
	"jettison/stats"
)

func recordsCommand(stdout, stderr io.Writer) *cobra.Command {
	var q recordsQuery
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
		RunE: func(_ *cobra.Command, args []string) error {
			if q.output != "table" && q.output != "json" {
				return usageError{fmt.Errorf("--output %q: want table or json", q.output)}
			}
			if q.last < 0 {
				return usageError{fmt.Errorf("--last %d: want 0 (all) or more", q.last)}
			}
			if len(args) > 0 {
				q.id = args[0]
			}
			if err := q.find(); err != nil {
				return err
			}
			return q.print(stdout, stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.file, "file", "", "file of records (default "+records.File+" in stateDir of the configuration)")
	f.StringVar(&q.config, "config", "", "configuration file (default "+config.DefaultPath+" if it is there)")
	f.IntVar(&q.last, "last", 0, "only so many, the newest (0: all)")
	f.StringVarP(&q.output, "output", "o", "table", "table or json")
	return cmd
}

// recordsQuery is what of which file is asked for.
type recordsQuery struct {
	config, file, output string
	last                 int
	id                   string // empty: all
}

// find finds out which file it is.
func (q *recordsQuery) find() error {
	if q.file != "" {
		return nil
	}
	c, err := config.Load(q.config)
	if err != nil {
		return usageError{err}
	}
	if c.StateDir == "" {
		return errors.New("records: stateDir is empty in the configuration, so nothing is recorded: name a file with --file")
	}
	q.file = records.Path(c.StateDir)
	return nil
}

func (q *recordsQuery) print(stdout, stderr io.Writer) error {
	list, err := records.Read(q.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("records: %w", err)
	}
	if err != nil {
		list = &records.List{}
	}
	for _, w := range list.Warnings {
		fmt.Fprintf(stderr, "jettison: records: %s: %s\n", q.file, w)
	}
	all := list.Records
	if q.id != "" {
		r, err := pick(all, q.id)
		if err != nil {
			return fmt.Errorf("records: %w in %s", err, q.file)
		}
		if q.output == "table" {
			return showRecord(stdout, r)
		}
		all = []records.Record{*r}
	}
	if q.last > 0 {
		all = all[max(0, len(all)-q.last):]
	}
	switch {
	case q.output == "json":
		e := json.NewEncoder(stdout)
		e.SetEscapeHTML(false)
		for i := range all {
			if err := e.Encode(&all[i]); err != nil {
				return err
			}
		}
		return nil
	case len(all) == 0:
		_, err := fmt.Fprintf(stdout, "nothing was recorded in %s\n", q.file)
		return err
	}
	return listRecords(stdout, all)
}

// pick is the record with an ID, or the only one whose ID begins so.
func pick(all []records.Record, id string) (*records.Record, error) {
	var found *records.Record
	n := 0
	for i := range all {
		if all[i].ID == id {
			return &all[i], nil
		}
		if strings.HasPrefix(all[i].ID, id) {
			found = &all[i]
			n++
		}
	}
	switch n {
	case 0:
		return nil, fmt.Errorf("no record's ID begins with %.64q", id)
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("the IDs of %d records begin with %.64q: give more of it,", n, id)
}

func listRecords(stdout io.Writer, all []records.Record) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tTIME\tPOD\tSIGNAL\tCROSSED TO KILL\tKILL TO BACK\tOUTCOME")
	for i := range all {
		r := &all[i]
		crossed, back := "-", "-"
		if r.Crossed != nil && killed(r) {
			crossed = took(r.Crossed.Stamp, r.Killed)
		}
		if r.After != nil && r.Outcome == records.Back {
			back = took(ended(r), r.After.Stamp)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Began.Time.UTC().Format(time.DateTime), r.Pod.Title(), cmp.Or(string(r.Signal), "-"), crossed, back, r.Outcome)
	}
	return w.Flush()
}

// killed: it was, and not only stopped gently.
func killed(r *records.Record) bool { return !r.Killed.Time.IsZero() || r.Killed.Monotonic > 0 }

// ended is when its end began: the kill, or the stop.
func ended(r *records.Record) records.Stamp {
	if killed(r) {
		return r.Killed
	}
	return r.Began
}

// took is the time from one stamp to another in milliseconds.
func took(from, to records.Stamp) string {
	d, ok := to.Since(from)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// showRecord shows one in full. Times are from the kill on, or from the stop.
func showRecord(stdout io.Writer, r *records.Record) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("record", "%s", r.ID)
	line("pod", "%s", r.Pod.Title())
	line("", "uid %s, %s, cgroup %s", orDash(r.Pod.UID), cmp.Or(string(r.Pod.QOSClass), "QoS class not known"), orDash(r.Pod.Cgroup))
	if len(r.Pod.SandboxIDs) > 0 {
		line("", "sandbox %s", strings.Join(r.Pod.SandboxIDs, ", "))
	}
	line("signal", "%s", cmp.Or(r.Threshold, string(r.Signal), "-"))
	if r.ThresholdGrace != "" {
		line("", "met for %s", r.ThresholdGrace)
	}
	line("outcome", "%s", r.Outcome)
	if r.Error != "" {
		line("error", "%s", r.Error)
	}
	zero, word := ended(r), "killed"
	if !killed(r) {
		word = "stopped"
		line("grace", "%d s", r.GracePeriodSeconds)
	}
	reading := func(name string, v *records.Reading) {
		if v != nil {
			line(name, "%-10s %s", offset(zero, v.Stamp), observed(v, r.Signal))
		}
	}
	reading("crossed", r.Crossed)
	reading("decided", r.Decided)
	line(word, "%s", stampText(zero))
	if r.Emptied != (records.Stamp{}) {
		line("empty", "%-10s no process is left", offset(zero, r.Emptied))
	}
	reading("after", r.After)
	line("returns", "predicted %s, returned %s", amountOf(r.Signal, r.Predicted), amountOf(r.Signal, r.Released))
	if r.Reclaimed != nil {
		line("reclaimed", "%s before", amountOf(stats.SignalMemoryAvailable, r.Reclaimed))
	}
	if r.Squeeze != nil {
		line("squeezed", "%s", squeezed(r.Squeeze))
	}
	if !r.HoldOffUntil.IsZero() {
		line("held off", "until %s", r.HoldOffUntil.UTC().Format(time.DateTime))
	}
	line("why", "%s", orDash(r.Reason))
	line("message", "%s", orDash(strings.TrimSpace(r.Message)))
	if err := w.Flush(); err != nil {
		return err
	}
	if err := showSteps(stdout, r, zero); err != nil {
		return err
	}
	return showRanking(stdout, &r.Ranking)
}

// squeezed is a squeeze in words.
func squeezed(s *records.Squeeze) string {
	bytes := func(v *uint64) string { return amountOf(stats.SignalMemoryAvailable, v) }
	text := fmt.Sprintf("asked for %s of %s, got %s, read in again %s, in %.1f ms", bytes(&s.Asked), orDash(s.Kind), bytes(s.Freed), bytes(s.Refaulted),
		float64(s.Took)/float64(time.Millisecond))
	if s.Stopped {
		text += ", stopped for the eviction"
	}
	return text
}

func showSteps(stdout io.Writer, r *records.Record, zero records.Stamp) error {
	if len(r.Steps) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSTEP\tWHEN\tN\tERROR")
	for _, s := range r.Steps {
		n := "-"
		if s.N != 0 {
			n = fmt.Sprint(s.N)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", orDash(s.Name), offset(zero, records.Stamp{Monotonic: s.Monotonic}), n, orDash(s.Error))
	}
	return w.Flush()
}

func showRanking(stdout io.Writer, k *records.Ranking) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if len(k.Rows) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nRANK\tPOD\tQOS\tAFTER THE ONE BEFORE BY\tKEYS")
	for i, row := range k.Rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", i+1, orDash(row.Pod), orDash(string(row.QOSClass)), orDash(row.DecidedBy), orDash(row.Keys))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "and %d more candidates, %d pods protected\n", k.More, k.Protected)
	return err
}

// offset is when something was, from zero on.
func offset(zero, at records.Stamp) string {
	if d, ok := at.Since(zero); ok {
		return fmt.Sprintf("+%.1f ms", float64(d)/float64(time.Millisecond))
	}
	if d, ok := zero.Since(at); ok {
		return fmt.Sprintf("-%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return "-"
}

// stampText is an instant on both clocks.
func stampText(s records.Stamp) string {
	text := "-"
	if !s.Time.IsZero() {
		text = s.Time.UTC().Format("2006-01-02 15:04:05.000 UTC")
	}
	if s.Monotonic > 0 {
		text += fmt.Sprintf(", %.6f monotonic", s.Monotonic.Seconds())
	}
	return text
}

// observed is a reading in words.
func observed(v *records.Reading, signal stats.Signal) string {
	if v.Available == nil {
		return "not observed: " + cmp.Or(v.Reason, "no reason was given")
	}
	text := cmp.Or(v.Text, amountOf(signal, v.Available))
	if strings.Contains(string(signal), ".pressure.") {
		return text + " of the time stalled"
	}
	return text + " available of " + amountOf(signal, v.Capacity)
}

// amountOf is an amount in a signal's unit.
func amountOf(signal stats.Signal, v *uint64) string {
	if v == nil {
		return "not known"
	}
	return amount(signal, *v)
}
