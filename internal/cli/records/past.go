// Package records is jettison records: the evictions of a node, as a list, or one in full.
//
//	command.go  Command: jettison records
//	past.go     past: which records are printed, and the list of them
//	full.go     one record in full
package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/node/records"
)

// past is which evictions of which file of records are to be printed.
type past struct {
	file   string
	named  bool          // by who asks: it has to be there
	id     string        // of one, or the beginning of it; empty: all
	last   int           // only so many, the newest; 0: all
	since  time.Time     // only those that began then or later; zero: all
	pod    string        // only those of this pod: its UID, its name, or namespace/name; empty: of all
	follow bool          // go on with those that are written from now on, until the context ends
	format output.Format // JSON: as they lie in the file, a JSON object a line
}

// print prints them. What cannot be read of the file is named on stderr.
func (q *past) print(ctx context.Context, stdout *terminal.Screen, stderr io.Writer) error {
	list, err := q.read()
	if err != nil {
		return err
	}
	if list.Foreign > 0 && !q.follow {
		return fmt.Errorf("records: none of %d lines in %s is a record", list.Foreign, q.file)
	}
	for _, w := range list.Warnings {
		fmt.Fprintf(stderr, "jettison: records: %s: %s\n", q.file, w)
	}
	all, total := list.Records, len(list.Records)
	if q.id != "" {
		r, err := pick(all, q.id)
		if err != nil {
			return fmt.Errorf("records: %w in %s", err, q.file)
		}
		if !q.format.Data() {
			return inFull(stdout, r)
		}
		return q.format.Encode(stdout, r, false)
	}
	all = slices.DeleteFunc(all, func(r api.Record) bool { return !q.wants(&r) })
	if q.last > 0 {
		all = all[max(0, len(all)-q.last):]
	}
	switch {
	case len(all) == 0 && !q.format.Data() && !q.follow:
		_, err := fmt.Fprintln(stdout, q.nothing(total))
		return err
	case len(all) > 0 || !q.format.Data():
		if err := q.list(stdout, all, true); err != nil {
			return err
		}
	}
	if !q.follow {
		return nil
	}
	return q.printNew(ctx, stdout, list.Records)
}

// read reads the file; one that is not there has none, but where it is named, and not waited for.
func (q *past) read() (*records.List, error) {
	list, err := records.Read(q.file)
	switch {
	case errors.Is(err, os.ErrNotExist) && (!q.named || q.follow):
		return &records.List{}, nil
	case err != nil:
		return nil, fmt.Errorf("records: %w", err)
	}
	return list, nil
}

// wants reports whether a record is one of those that were asked for.
func (q *past) wants(r *api.Record) bool {
	pod := &r.Pod
	return !r.Began.Time.Before(q.since) && (q.pod == "" || q.pod == pod.UID || q.pod == pod.Name ||
		q.pod == pod.Title())
}

// nothing says why none of so many records is listed.
func (q *past) nothing(total int) string {
	if total == 0 {
		return "nothing was recorded in " + q.file
	}
	var by []string
	if q.pod != "" {
		by = append(by, "--pod "+output.OneLine(q.pod))
	}
	if !q.since.IsZero() {
		by = append(by, "--since")
	}
	return fmt.Sprintf("none of %d records matches %s in %s", total, strings.Join(by, " and "), q.file)
}

// list prints some, with the names of the columns or without.
func (q *past) list(stdout *terminal.Screen, all []api.Record, head bool) error {
	if q.format.Data() {
		for i := range all {
			if err := q.format.Encode(stdout, &all[i], true); err != nil {
				return err
			}
		}
		return nil
	}
	width := stdout.Width()
	if q.format == output.AsWide {
		width = 0
	}
	lines := rows(all).Lines(width, q.format == output.AsWide)
	if !head {
		lines = lines[1:]
	}
	return stdout.Print(lines...)
}

// followEvery is how often the file is looked at.
const followEvery = 500 * time.Millisecond

// printNew prints each eviction when it begins, and once more when its outcome is known.
func (q *past) printNew(ctx context.Context, stdout *terminal.Screen, known []api.Record) error {
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
		{Name: "ID", Cut: true}, {Name: "TIME", Drop: 1}, {Name: "POD", Cut: true}, {Name: "SIGNAL"},
		{Name: "TO KILL", Right: true, Drop: 3},
		{Name: "TO BACK", Right: true, Drop: 2}, {Name: "OUTCOME", Cut: true},
		{Name: "RETURNED", Wide: true, Right: true},
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
		t.Add(r.ID, output.Time(r.Began.Time), r.Pod.Title(), string(r.Signal), crossed, back,
			r.Outcome.String(), amountOf(r.Signal, r.Released),
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
