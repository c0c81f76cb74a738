package gcpass

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"jettison/internal/garbage"
	"jettison/internal/show"
	"jettison/reclaim"
	"jettison/stats"
)

// printPlan prints a plan as a table, in the order in which it would be carried out.
func printPlan(stdout io.Writer, p *reclaim.Plan) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if len(p.Steps) > 0 {
		fmt.Fprintln(w, "STEP\tACTION\tID\tNAME\tAGE\tFREES\tWHY")
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		age := "-"
		if !s.Since.IsZero() {
			age = p.Time.Sub(s.Since).Round(time.Second).String()
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n",
			i+1, s.Action, shortID(s), show.OrDash(show.Printable(s.Name)), age, show.Size(s.Bytes), show.Printable(s.Why))
	}
	if err := w.Flush(); err != nil {
		return err
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

// shortID is as much of an ID as people use.
func shortID(s *reclaim.Step) string {
	id := s.ID
	switch s.Action {
	case reclaim.RemoveLogs, reclaim.RemoveLink, reclaim.RemoveCgroup, reclaim.RemoveVolumes:
		return show.Printable(id)
	}
	id = strings.TrimPrefix(id, "sha256:")
	return show.Printable(id[:min(len(id), 13)])
}

// print prints the plan if nothing was to be removed, else what became of each step.
func (p *pass) print(stdout io.Writer, r *garbage.Result) error {
	if r.Observed != "" || r.PutOff != "" || r.Err != nil && len(r.Done) == 0 {
		if err := printPlan(stdout, &r.Plan); err != nil {
			return err
		}
	} else if err := printDone(stdout, r); err != nil {
		return err
	}
	for _, text := range append(r.Odd, p.notes...) {
		fmt.Fprintln(stdout, "note:", show.OneLine(text))
	}
	if r.Observed != "" && len(r.Done) > 0 { // what an eviction had begun to remove
		fmt.Fprintf(stdout, "volumes that were put aside: %s; nothing else was removed: %s\n", outcomes(r), r.Observed)
	} else if r.Observed != "" && !p.o.DryRun {
		fmt.Fprintln(stdout, "nothing was removed:", r.Observed)
	}
	return nil
}

// printDone prints what became of each step, as a table.
func printDone(stdout io.Writer, r *garbage.Result) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if len(r.Done) > 0 {
		fmt.Fprintln(w, "STEP\tACTION\tID\tNAME\tFREES\tFREED\tTOOK\tOUTCOME\tWHY")
	}
	for i := range r.Done {
		d := &r.Done[i]
		why := d.Step.Why
		if d.Why != "" {
			why = d.Why
		}
		if d.Err != nil {
			why = show.OneLine(d.Err.Error())
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%v\t%s\t%s\n", i+1, d.Action, shortID(d.Step), show.OrDash(show.Printable(d.Name)),
			show.Size(d.Bytes), show.Size(d.Freed), d.Took.Round(time.Millisecond), d.Outcome, show.Printable(why))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(r.Done) == 0 {
		fmt.Fprintln(stdout, "nothing to remove")
	} else {
		fmt.Fprintf(stdout, "\n%s; predicted %s, measured %s, in %v\n",
			outcomes(r), show.Size(stats.Some(r.Predicted())), show.Size(r.Freed()), r.Took.Round(time.Millisecond))
	}
	printRest(stdout, &r.Plan)
	return nil
}

// outcomes counts the steps by what became of them.
func outcomes(r *garbage.Result) string {
	var parts []string
	for _, o := range []garbage.Outcome{garbage.Removed, garbage.WasGone, garbage.Skipped, garbage.Failed} {
		if n := r.Count(o); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return strings.Join(parts, ", ")
}

// printRest prints what of a plan is no step.
func printRest(stdout io.Writer, p *reclaim.Plan) {
	for _, text := range p.Problems() {
		fmt.Fprintln(stdout, "error:", show.OneLine(text))
	}
	for _, left := range p.Left {
		fmt.Fprintln(stdout, "left alone:", show.OneLine(fmt.Sprint(left)))
	}
}
