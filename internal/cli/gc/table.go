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

// printPlan prints a plan as a table, in the order of execution.
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
		fmt.Fprintf(stdout, "\n%s, expected to free %s", output.Count(len(p.Steps), "step"), show.Size(stats.Some(sum)))
		if unknown > 0 {
			fmt.Fprintf(stdout, " (the amount of %s is unknown)", output.Count(unknown, "step"))
		}
		fmt.Fprintln(stdout)
	}
	printRest(stdout, p)
	return nil
}

// shortID shortens an ID like crictl does, unless whole is set.
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

// print prints the plan if the pass removed nothing, else the outcome of each step.
func (p *pass) print(stdout *terminal.Screen, r *garbage.Result) error {
	wide := p.o.format == output.AsWide
	if r.PlanOnly != "" || r.Postponed != "" || r.Err != nil && len(r.Done) == 0 {
		if err := printPlan(stdout, &r.Plan, wide); err != nil {
			return err
		}
	} else if err := printDone(stdout, r, wide); err != nil {
		return err
	}
	for _, text := range append(r.Warnings, p.notes...) {
		fmt.Fprintln(stdout, "note:", output.OneLine(text))
	}
	if r.PlanOnly != "" && len(r.Done) > 0 { // leftovers of an eviction
		fmt.Fprintf(stdout, "volumes left by evictions: %s; nothing else removed: %s\n",
			outcomes(r), r.PlanOnly)
	} else if r.PlanOnly != "" && !p.o.dryRun {
		fmt.Fprintln(stdout, "nothing removed:", r.PlanOnly)
	}
	return nil
}

// printDone prints the outcome of each step as a table.
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
		fmt.Fprintf(stdout, "\n%s; freed: predicted %s, measured %s; took %v\n",
			outcomes(r), show.Size(stats.Some(r.Predicted())), show.Size(r.Freed()),
			r.Took.Round(time.Millisecond))
	}
	printRest(stdout, &r.Plan)
	return nil
}

// outcomes returns the number of steps by outcome.
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

// printRest prints the errors of a plan and the objects that it keeps.
func printRest(stdout io.Writer, p *reclaim.Plan) {
	for _, text := range p.Problems() {
		fmt.Fprintln(stdout, "error:", output.OneLine(text))
	}
	for _, left := range p.Left {
		fmt.Fprintln(stdout, "kept:", output.OneLine(fmt.Sprint(left)))
	}
}
