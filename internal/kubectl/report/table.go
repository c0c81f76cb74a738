package report

import (
	"fmt"
	"slices"
	"strings"

	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/kubectl/fleet"
)

// Limits of tables that are not wide.
const (
	maxRows  = 10
	maxNamed = 20 // nodes that a line names
)

// lines returns the report as tables.
func lines(r *fleet.Report, width int, wide bool) []terminal.Line {
	if wide {
		width = 0
	}
	var out []terminal.Line
	add := func(text string) {
		for _, line := range table.Fold(text, width) {
			out = append(out, terminal.Text(terminal.Plain, "%s", line))
		}
	}
	t := &r.Totals
	add(fmt.Sprintf("%s to %s: %s, %d that a dry run would have evicted; records of %d of %s",
		output.Time(r.Since), output.Time(r.Until), output.Count(t.Evicted, "eviction"), t.WouldEvict,
		r.Answered, output.Count(r.Nodes, "node")))
	for _, c := range []struct {
		name string
		all  []fleet.Total
	}{{"NODE", t.Nodes}, {"NAMESPACE", t.Namespaces}, {"SIGNAL", t.Signals}, {"POD", t.Pods}} {
		if len(c.all) == 0 {
			continue
		}
		out = append(out, nil)
		out = append(out, totals(c.name, c.all, wide).Lines(width, wide)...)
		if more := len(c.all) - maxRows; more > 0 && !wide {
			add(fmt.Sprintf("and %d more: -o wide prints all", more))
		}
	}
	if wide && len(r.Evictions) > 0 {
		out = append(out, nil)
		out = append(out, evictions(r.Evictions).Lines(width, wide)...)
	}
	if len(r.Unanswered)+len(r.Warnings) > 0 {
		out = append(out, nil)
	}
	for _, u := range r.Unanswered {
		names := u.Nodes
		more := ""
		if n := len(names) - maxNamed; n > 0 && !wide {
			names, more = names[:maxNamed], fmt.Sprintf(" and %d more", n)
		}
		add(fmt.Sprintf("records of %s unknown, evictions from events only: %s: %s%s",
			output.Count(len(u.Nodes), "node"), u.Reason, strings.Join(names, ", "), more))
	}
	sorted := make([]string, 0, len(r.Warnings))
	for name := range r.Warnings {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		add("warning: " + name + ": " + r.Warnings[name])
	}
	return out
}

// totals returns a table of the most frequent values.
func totals(name string, all []fleet.Total, wide bool) *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: name, Cut: true}, {Name: "EVICTED", Right: true},
		{Name: "WOULD EVICT", Right: true}, {Name: "LAST"}}}
	if !wide {
		all = all[:min(len(all), maxRows)]
	}
	for _, v := range all {
		t.Add(v.Name, fmt.Sprint(v.Evicted), fmt.Sprint(v.WouldEvict), output.Time(v.Last))
	}
	return t
}

// evictions returns a table of all evictions.
func evictions(all []fleet.Eviction) *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "TIME"}, {Name: "NODE"}, {Name: "POD"},
		{Name: "SIGNAL"}, {Name: "TIMES", Right: true}, {Name: "OUTCOME"}, {Name: "RECORD"}}}
	for i := range all {
		e := &all[i]
		t.Add(output.Time(e.Time), e.Node, fleet.Title(e), e.Signal, fmt.Sprint(e.Times), e.Outcome, e.Record)
	}
	return t
}
