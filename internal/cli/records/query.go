// Package records implements jettison records: it lists the recorded evictions of a node, or prints
// one in full.
//
//	command.go  Command: jettison records
//	query.go    query: selects and lists records
//	dryrun.go   summary of the records of dry runs
//	full.go     prints one record in full
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

// query selects records of a file.
type query struct {
	file      string
	mustExist bool          // a missing file is an error
	id        string        // ID of one record, or a prefix of it; empty: all
	last      int           // number of newest records; 0: all
	since     time.Time     // oldest start; zero: all
	pod       string        // UID, name or namespace/name of a pod; empty: all pods
	follow    bool          // continue with new records until the context ends
	dryRun    bool          // summarize the records of dry runs
	format    output.Format // data: records as stored
}

// print prints the selected records. Lines that cannot be read are reported on stderr.
func (q *query) print(ctx context.Context, stdout *terminal.Screen, stderr io.Writer) error {
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
	all = slices.DeleteFunc(all, func(r api.Record) bool { return !q.matches(&r) })
	if q.last > 0 {
		all = all[max(0, len(all)-q.last):]
	}
	if q.dryRun && len(all) > 0 {
		if lost := list.Lost; lost.ID > q.since.UTC().Format(idTime) {
			fmt.Fprintf(stderr, "jettison: records: %s: records up to %s are missing: %s\n", q.file,
				lost.ID, lost.Error)
		}
		return q.summary(stdout, all)
	}
	switch {
	case len(all) == 0 && !q.format.Data() && !q.follow:
		_, err := fmt.Fprintln(stdout, q.emptyText(total))
		return err
	case len(all) > 0 || !q.format.Data() || q.format == output.AsJSON:
		if err := q.list(stdout, all, true); err != nil {
			return err
		}
	}
	if !q.follow {
		return nil
	}
	return q.printNew(ctx, stdout, list.Records)
}

// read reads the file. A missing file has no records; it is an error if mustExist is set without
// follow.
func (q *query) read() (*records.List, error) {
	list, err := records.Read(q.file)
	switch {
	case errors.Is(err, os.ErrNotExist) && (!q.mustExist || q.follow):
		return &records.List{}, nil
	case err != nil:
		return nil, fmt.Errorf("records: %w", err)
	}
	return list, nil
}

// matches reports whether a record matches since, pod and dryRun. The record of a dry run covers
// the time until LastDecided.
func (q *query) matches(r *api.Record) bool {
	if q.dryRun && !r.DryRun {
		return false
	}
	pod := &r.Pod
	return !lastDecided(r).Before(q.since) && (q.pod == "" || q.pod == pod.UID ||
		q.pod == pod.Name || q.pod == pod.Title())
}

// emptyText returns the text for an empty list; total is the number of records in the file.
func (q *query) emptyText(total int) string {
	if total == 0 {
		return "no records in " + q.file
	}
	var by []string
	if q.pod != "" {
		by = append(by, "--pod "+output.OneLine(q.pod))
	}
	if !q.since.IsZero() {
		by = append(by, "--since")
	}
	if q.dryRun {
		by = append(by, "--dry-run")
	}
	return fmt.Sprintf("none of %d records in %s matches %s", total, q.file, strings.Join(by, " and "))
}

// list prints records; head adds the column names.
func (q *query) list(stdout *terminal.Screen, all []api.Record, head bool) error {
	if q.format.Data() {
		return output.EncodeAll(q.format, stdout, all)
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

// pollInterval is the time between two reads of the file with follow.
const pollInterval = 500 * time.Millisecond

// printNew prints each new record when its eviction starts, and again when its outcome is known.
func (q *query) printNew(ctx context.Context, stdout *terminal.Screen, known []api.Record) error {
	outcomes := map[string]api.Outcome{}
	for i := range known {
		outcomes[known[i].ID] = known[i].Outcome
	}
	tick := time.NewTicker(pollInterval)
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
			if before, known := outcomes[r.ID]; (!known || before != r.Outcome) && q.matches(&r) {
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

// pick returns the record with an ID, or the only record with that ID prefix.
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
	return nil, fmt.Errorf("%.64q is the beginning of %d IDs: use a longer prefix,", id, n)
}

// rows returns a table with a line for each record.
func rows(all []api.Record) *table.Table {
	t := &table.Table{Columns: []table.Column{
		{Name: "ID", Cut: true}, {Name: "TIME", Drop: 1}, {Name: "POD", Cut: true}, {Name: "SIGNAL"},
		{Name: "TO KILL", Right: true, Drop: 3},
		{Name: "TO RECOVERY", Right: true, Drop: 2}, {Name: "OUTCOME", Cut: true},
		{Name: "FREED", Wide: true, Right: true},
		{Name: "UID", Wide: true}, {Name: "WHY", Wide: true},
	}}
	for i := range all {
		r := &all[i]
		toKill, toRecovery := "-", "-"
		if r.Crossed != nil && r.WasKilled() {
			toKill = took(r.Crossed.Stamp, r.Killed)
		}
		if r.After != nil && r.Outcome == api.OutcomeBack {
			toRecovery = took(r.EndBegan(), r.After.Stamp)
		}
		t.Add(r.ID, output.Time(r.Began.Time), r.Pod.Title(), string(r.Signal), toKill, toRecovery,
			r.Outcome.String(), amountOf(r.Signal, r.Released),
			r.Pod.UID, r.Reason)
	}
	return t
}

// took formats the time between two stamps in milliseconds.
func took(from, to api.Stamp) string {
	d, ok := to.Since(from)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
