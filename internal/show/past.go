package show

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"jettison/api"
	"jettison/internal/printable"
	"jettison/internal/records"
	"jettison/internal/table"
	"jettison/internal/terminal"
	"jettison/stats"
)

// Past is which evictions of which file of records are to be printed.
type Past struct {
	File   string
	Named  bool      // by who asks: it has to be there
	ID     string    // of one, or the beginning of it; empty: all
	Last   int       // only so many, the newest; 0: all
	Since  time.Time // only those that began then or later; zero: all
	Pod    string    // only those of this pod: its UID, its name, or namespace/name; empty: of all
	Follow bool      // go on with those that are written from now on, until the context ends
	Format Format    // JSON: as they lie in the file, a JSON object a line
}

// Print prints them. What cannot be read of the file is named on stderr.
func (q *Past) Print(ctx context.Context, stdout *terminal.Screen, stderr io.Writer) error {
	list, err := q.read()
	if err != nil {
		return err
	}
	if list.Foreign > 0 && !q.Follow {
		return fmt.Errorf("records: none of %d lines in %s is a record", list.Foreign, q.File)
	}
	for _, w := range list.Warnings {
		fmt.Fprintf(stderr, "jettison: records: %s: %s\n", q.File, w)
	}
	all, total := list.Records, len(list.Records)
	if q.ID != "" {
		r, err := pick(all, q.ID)
		if err != nil {
			return fmt.Errorf("records: %w in %s", err, q.File)
		}
		if !q.Format.Data() {
			return inFull(stdout, r)
		}
		return q.Format.Encode(stdout, r, false)
	}
	all = slices.DeleteFunc(all, func(r api.Record) bool { return !q.wants(&r) })
	if q.Last > 0 {
		all = all[max(0, len(all)-q.Last):]
	}
	switch {
	case len(all) == 0 && !q.Format.Data() && !q.Follow:
		_, err := fmt.Fprintln(stdout, q.nothing(total))
		return err
	case len(all) > 0 || !q.Format.Data():
		if err := q.list(stdout, all, true); err != nil {
			return err
		}
	}
	if !q.Follow {
		return nil
	}
	return q.follow(ctx, stdout, list.Records)
}

// read reads the file; one that is not there has none, but where it is named, and not waited for.
func (q *Past) read() (*records.List, error) {
	list, err := records.Read(q.File)
	switch {
	case errors.Is(err, os.ErrNotExist) && (!q.Named || q.Follow):
		return &records.List{}, nil
	case err != nil:
		return nil, fmt.Errorf("records: %w", err)
	}
	return list, nil
}

// wants reports whether a record is one of those that were asked for.
func (q *Past) wants(r *api.Record) bool {
	pod := &r.Pod
	return !r.Began.Time.Before(q.Since) && (q.Pod == "" || q.Pod == pod.UID || q.Pod == pod.Name || q.Pod == pod.Title())
}

// nothing says why none of so many records is listed.
func (q *Past) nothing(total int) string {
	if total == 0 {
		return "nothing was recorded in " + q.File
	}
	var by []string
	if q.Pod != "" {
		by = append(by, "--pod "+OneLine(q.Pod))
	}
	if !q.Since.IsZero() {
		by = append(by, "--since")
	}
	return fmt.Sprintf("none of %d records matches %s in %s", total, strings.Join(by, " and "), q.File)
}

// list prints some, with the names of the columns or without.
func (q *Past) list(stdout *terminal.Screen, all []api.Record, head bool) error {
	if q.Format.Data() {
		for i := range all {
			if err := q.Format.Encode(stdout, &all[i], true); err != nil {
				return err
			}
		}
		return nil
	}
	width := stdout.Width()
	if q.Format == AsWide {
		width = 0
	}
	lines := rows(all).Lines(width, q.Format == AsWide)
	if !head {
		lines = lines[1:]
	}
	return stdout.Print(lines...)
}

// followEvery is how often the file is looked at.
const followEvery = 500 * time.Millisecond

// follow prints each eviction when it begins, and once more when its outcome is known.
func (q *Past) follow(ctx context.Context, stdout *terminal.Screen, known []api.Record) error {
	outcomes := map[string]api.Outcome{}
	for i := range known {
		outcomes[known[i].ID] = known[i].Outcome
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		list, err := q.read()
		if err != nil {
			return err
		}
		now := make(map[string]api.Outcome, len(list.Records))
		var news []api.Record
		for _, r := range list.Records {
			if was, is := outcomes[r.ID]; (!is || was != r.Outcome) && q.wants(&r) {
				news = append(news, r)
			}
			now[r.ID] = r.Outcome
		}
		outcomes = now
		if len(news) > 0 {
			if err := q.list(stdout, news, false); err != nil {
				return err
			}
		}
	}
}

// pick is the record with an ID, or the only one whose ID begins so.
func pick(all []api.Record, id string) (*api.Record, error) {
	var found *api.Record
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

// rows are a line for each.
func rows(all []api.Record) *table.Table {
	t := &table.Table{Columns: []table.Column{
		{Name: "ID", Cut: true}, {Name: "TIME", Drop: 1}, {Name: "POD", Cut: true}, {Name: "SIGNAL"}, {Name: "TO KILL", Right: true, Drop: 3},
		{Name: "TO BACK", Right: true, Drop: 2}, {Name: "OUTCOME", Cut: true}, {Name: "RETURNED", Wide: true, Right: true},
		{Name: "UID", Wide: true}, {Name: "WHY", Wide: true},
	}}
	for i := range all {
		r := &all[i]
		crossed, back := "-", "-"
		if r.Crossed != nil && r.WasKilled() {
			crossed = took(r.Crossed.Stamp, r.Killed)
		}
		if r.After != nil && r.Outcome == api.OutcomeBack {
			back = took(r.EndBegan(), r.After.Stamp)
		}
		t.Add(r.ID, Time(r.Began.Time), r.Pod.Title(), string(r.Signal), crossed, back, r.Outcome.String(), amountOf(r.Signal, r.Released),
			r.Pod.UID, r.Reason)
	}
	return t
}

// took is the time from one stamp to another in milliseconds.
func took(from, to api.Stamp) string {
	d, ok := to.Since(from)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// inFull prints one in full. Times are from the kill on, or from the stop.
func inFull(stdout io.Writer, r *api.Record) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	lines{w}.who(r)
	lines{w}.when(r)
	lines{w}.what(r)
	if err := w.Flush(); err != nil {
		return err
	}
	if err := steps(stdout, r, r.EndBegan()); err != nil {
		return err
	}
	return ranking(stdout, &r.Ranking)
}

// lines are those of one eviction, each with a name.
type lines struct{ w io.Writer }

// add adds one. A text of several lines, as of errors that were joined, has one for each, without the name: none begins as another's does.
func (l lines) add(name, format string, args ...any) {
	for text := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		fmt.Fprintf(l.w, "%s\t%s\n", name, printable.Text(text))
		name = ""
	}
}

// cell is a text of a record in a table: on its one line, and in its column.
func cell(text string) string { return printable.Text(OrDash(OneLine(text))) }

// who was evicted, for what, and with what outcome.
func (l lines) who(r *api.Record) {
	l.add("record", "%s", r.ID)
	l.add("pod", "%s", r.Pod.Title())
	l.add("", "uid %s, %s, cgroup %s", OrDash(r.Pod.UID), cmp.Or(string(r.Pod.QOSClass), "QoS class not known"), OrDash(r.Pod.Cgroup))
	if len(r.Pod.SandboxIDs) > 0 {
		l.add("", "sandbox %s", strings.Join(r.Pod.SandboxIDs, ", "))
	}
	l.add("signal", "%s", cmp.Or(r.Threshold, string(r.Signal), "-"))
	if r.ThresholdGrace != "" {
		l.add("", "met for %s", r.ThresholdGrace)
	}
	l.add("outcome", "%s", r.Outcome)
	if r.Error != "" {
		l.add("error", "%s", r.Error)
	}
}

// when each thing was seen or done.
func (l lines) when(r *api.Record) {
	zero, word := r.EndBegan(), "killed"
	if !r.WasKilled() {
		word = "stopped"
		l.add("grace", "%d s", r.GracePeriodSeconds)
	}
	reading := func(name string, v *api.Reading) {
		if v != nil {
			l.add(name, "%-10s %s", offset(zero, v.Stamp), observed(v, r.Signal))
		}
	}
	reading("crossed", r.Crossed)
	reading("decided", r.Decided)
	l.add(word, "%s", stampText(zero))
	if r.Emptied != (api.Stamp{}) {
		l.add("empty", "%-10s no process is left", offset(zero, r.Emptied))
	}
	reading("after", r.After)
}

// what it returned, and why this pod.
func (l lines) what(r *api.Record) {
	l.add("returns", "predicted %s, returned %s", amountOf(r.Signal, r.Predicted), amountOf(r.Signal, r.Released))
	if r.Reclaimed != nil {
		l.add("reclaimed", "%s before", amountOf(stats.SignalMemoryAvailable, r.Reclaimed))
	}
	if r.Squeeze != nil {
		l.add("squeezed", "%s", squeezed(r.Squeeze))
	}
	if !r.HoldOffUntil.IsZero() {
		l.add("held off", "until %s", Time(r.HoldOffUntil))
	}
	l.add("why", "%s", OrDash(r.Reason))
	l.add("message", "%s", OrDash(strings.TrimSpace(r.Message)))
}

// squeezed is a squeeze in words.
func squeezed(s *api.Squeeze) string {
	bytes := func(v *uint64) string { return amountOf(stats.SignalMemoryAvailable, v) }
	text := fmt.Sprintf("asked for %s of %s, got %s, read in again %s, in %.1f ms",
		bytes(&s.Asked), OrDash(s.Kind), bytes(s.Freed), bytes(s.Refaulted), float64(s.Took)/float64(time.Millisecond))
	if s.Stopped {
		text += ", stopped for the eviction"
	}
	return text
}

func steps(stdout io.Writer, r *api.Record, zero api.Stamp) error {
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cell(s.Name), offset(zero, api.Stamp{Monotonic: s.Monotonic}), n, cell(s.Error))
	}
	return w.Flush()
}

func ranking(stdout io.Writer, k *api.Ranking) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if len(k.Rows) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nRANK\tPOD\tQOS\tAFTER THE ONE BEFORE BY\tKEYS")
	for i, row := range k.Rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", i+1, cell(row.Pod), cell(string(row.QOSClass)), cell(row.DecidedBy), cell(row.Keys))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "and %d more candidates, %d pods protected\n", k.More, k.Protected)
	return err
}

// offset is when something was, from zero on.
func offset(zero, at api.Stamp) string {
	if d, ok := at.Since(zero); ok {
		return fmt.Sprintf("+%.1f ms", float64(d)/float64(time.Millisecond))
	}
	if d, ok := zero.Since(at); ok {
		return fmt.Sprintf("-%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return "-"
}

// stampText is an instant on both clocks.
func stampText(s api.Stamp) string {
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
func observed(v *api.Reading, signal stats.Signal) string {
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
	return Amount(signal, *v)
}
