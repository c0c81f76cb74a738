package gc

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/show"
	"jettison/internal/node/garbage"
	"jettison/reclaim"
	"jettison/stats"
)

// printPlan prints a plan as a table, in the order in which it would be carried out.
func printPlan(stdout *terminal.Screen, p *reclaim.Plan, wide bool) error {
	t := &table.Table{Columns: []table.Column{
		{Name: "STEP"}, {Name: "ACTION"}, {Name: "ID", Cut: true}, {Name: "NAME", Cut: true},
		{Name: "AGE", Right: true, Drop: 1},
		{Name: "FREES", Right: true}, {Name: "WHY", Fold: true},
	}}
	for i := range p.Steps {
		s := &p.Steps[i]
		age := "-"
		if !s.Since.IsZero() {
			age = output.Span(p.Time.Sub(s.Since))
		}
		t.Add(strconv.Itoa(i+1), s.Action.String(), shortID(s, wide), s.Name, age, show.Size(s.Bytes),
			s.Why)
	}
	if len(t.Rows) > 0 {
		if err := t.Print(stdout, wide); err != nil {
			return err
		}
	}
	if sum, unknown := p.Bytes(); len(p.Steps) == 0 {
		fmt.Fprintln(stdout, "nothing to remove")
	} else {
		fmt.Fprintf(stdout, "\n%d steps, which should free %s", len(p.Steps), show.Size(stats.Some(sum)))
		if unknown > 0 {
			fmt.Fprintf(stdout, " and what %d steps free that say nothing of it", unknown)
		}
		fmt.Fprintln(stdout)
	}
	printRest(stdout, p)
	return nil
}

// shortID is as much of an ID as people use, or all of it.
func shortID(s *reclaim.Step, whole bool) string {
	id := s.ID
	if whole {
		return id
	}
	switch s.Action {
	case reclaim.RemoveLogs, reclaim.RemoveLink, reclaim.RemoveCgroup, reclaim.RemoveVolumes:
		return id
	}
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(len(id), 13)]
}

// print prints the plan if nothing was to be removed, else what became of each step.
func (p *pass) print(stdout *terminal.Screen, r *garbage.Result) error {
	wide := p.o.format == output.AsWide
	if r.Observed != "" || r.PutOff != "" || r.Err != nil && len(r.Done) == 0 {
		if err := printPlan(stdout, &r.Plan, wide); err != nil {
			return err
		}
	} else if err := printDone(stdout, r, wide); err != nil {
		return err
	}
	for _, text := range append(r.Odd, p.notes...) {
		fmt.Fprintln(stdout, "note:", output.OneLine(text))
	}
	if r.Observed != "" && len(r.Done) > 0 { // what an eviction had begun to remove
		fmt.Fprintf(stdout, "volumes that were put aside: %s; nothing else was removed: %s\n",
			outcomes(r), r.Observed)
	} else if r.Observed != "" && !p.o.dryRun {
		fmt.Fprintln(stdout, "nothing was removed:", r.Observed)
	}
	return nil
}

// printDone prints what became of each step, as a table.
func printDone(stdout *terminal.Screen, r *garbage.Result, wide bool) error {
	t := &table.Table{Columns: []table.Column{
		{Name: "STEP"}, {Name: "ACTION"}, {Name: "ID", Cut: true}, {Name: "NAME", Cut: true},
		{Name: "FREES", Right: true, Drop: 1},
		{Name: "FREED", Right: true}, {Name: "TOOK", Right: true, Drop: 2}, {Name: "OUTCOME"},
		{Name: "WHY", Fold: true},
	}}
	for i := range r.Done {
		d := &r.Done[i]
		why := d.Step.Why
		if d.Why != "" {
			why = d.Why
		}
		if d.Err != nil {
			why = output.OneLine(d.Err.Error())
		}
		t.Add(strconv.Itoa(i+1), d.Action.String(), shortID(d.Step, wide), d.Name, show.Size(d.Bytes),
			show.Size(d.Freed),
			d.Took.Round(time.Millisecond).String(), d.Outcome.String(), why)
	}
	if len(t.Rows) > 0 {
		if err := t.Print(stdout, wide); err != nil {
			return err
		}
	}
	if len(r.Done) == 0 {
		fmt.Fprintln(stdout, "nothing to remove")
	} else {
		fmt.Fprintf(stdout, "\n%s; predicted %s, measured %s, in %v\n",
			outcomes(r), show.Size(stats.Some(r.Predicted())), show.Size(r.Freed()),
			r.Took.Round(time.Millisecond))
	}
	printRest(stdout, &r.Plan)
	return nil
}

// outcomes counts the steps by what became of them.
func outcomes(r *garbage.Result) string {
	var parts []string
	for _, o := range []garbage.Outcome{garbage.Removed, garbage.WasGone, garbage.Skipped,
		garbage.Failed} {
		if n := r.Count(o); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// printRest prints what of a plan is no step.
func printRest(stdout io.Writer, p *reclaim.Plan) {
	for _, text := range p.Problems() {
		fmt.Fprintln(stdout, "error:", output.OneLine(text))
	}
	for _, left := range p.Left {
		fmt.Fprintln(stdout, "left alone:", output.OneLine(fmt.Sprint(left)))
	}
}
