package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/deschedule"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
)

// barWidth is the number of characters of a bar of 100 %.
const barWidth = 20

// maxNodes limits the nodes in a table unless it is wide.
const maxNodes = 20

func planText(plan *deschedule.Result, wide bool, stdout *terminal.Screen) error {
	if err := evictionsText(heading(len(plan.Evictions), "evicted"), plan.Evictions, wide,
		stdout); err != nil {
		return err
	}
	for _, s := range plan.Stopped {
		verb := " stopped"
		if s.Continued {
			verb = ""
		}
		if err := stdout.Print(terminal.Text(terminal.Plain, "%s%s: %s.", s.Strategy, verb,
			s.Reason)); err != nil {
			return err
		}
	}
	for _, warning := range plan.Warnings {
		if err := stdout.Print(terminal.Text(terminal.Plain, "Warning: %s.", warning)); err != nil {
			return err
		}
	}
	if err := skippedText(plan.Skipped, wide, stdout); err != nil {
		return err
	}
	return loadsText(plan.Before, plan.After, wide, stdout)
}

func heading(count int, action string) string {
	switch count {
	case 0:
		return "No pod would be " + action + "."
	case 1:
		return "1 pod would be " + action + ":"
	}
	return fmt.Sprintf("%d pods would be %s, in this order:", count, action)
}

func evictionsText(head string, evictions []deschedule.Eviction, wide bool,
	stdout *terminal.Screen) error {
	if err := stdout.Print(terminal.Text(terminal.Bold, "%s", head)); err != nil ||
		len(evictions) == 0 {
		return err
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "#", Right: true}, {Name: "NAMESPACE", Cut: true}, {Name: "POD", Cut: true},
		{Name: "NODE", Cut: true},
		{Name: "LIKELY NODE", Cut: true, Drop: 1}, {Name: "STRATEGY", Cut: true},
		{Name: "REASON", Fold: true},
		{Name: "PROFILE", Wide: true}, {Name: "WEIGHED AGAINST", Wide: true},
	}}
	for i, e := range evictions {
		t.Add(fmt.Sprint(i+1), e.Namespace, e.Name, e.Node, e.To, e.Strategy, e.Reason, e.Profile,
			strings.Join(e.Against, "; "))
	}
	return t.Print(stdout, wide)
}

// skippedText prints how many pods each rule kept; wide lists the pods.
func skippedText(skipped []deschedule.Skip, wide bool, stdout *terminal.Screen) error {
	if len(skipped) == 0 {
		return nil
	}
	if err := stdout.Print(terminal.Text(terminal.Bold, "Pods skipped: %d.",
		len(skipped))); err != nil {
		return err
	}
	if wide {
		t := &table.Table{Columns: []table.Column{{Name: "NAMESPACE"}, {Name: "POD"},
			{Name: "SKIPPED BECAUSE"}}}
		for _, s := range skipped {
			t.Add(s.Namespace, s.Name, s.Reason)
		}
		return t.Print(stdout, true)
	}
	counts, example := map[string]int{}, map[string]string{}
	for _, s := range skipped {
		if counts[s.Reason]++; counts[s.Reason] == 1 {
			example[s.Reason] = s.Namespace + "/" + s.Name
		}
	}
	t := &table.Table{Columns: []table.Column{{Name: "PODS", Right: true},
		{Name: "SKIPPED BECAUSE", Fold: true}, {Name: "EXAMPLE", Cut: true}}}
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	}) {
		t.Add(fmt.Sprint(counts[reason]), reason, example[reason])
	}
	return t.Print(stdout, false)
}

// loadsText draws the requested load of nodes before and after: of those that change, or with
// wide of all.
func loadsText(before, after map[string]deschedule.Load, wide bool, stdout *terminal.Screen) error {
	names := slices.Sorted(maps.Keys(before))
	if !wide {
		names = slices.DeleteFunc(names,
			func(name string) bool { return maps.Equal(before[name], after[name]) })
	}
	if len(names) == 0 {
		return nil
	}
	more := 0
	if !wide && len(names) > maxNodes {
		more, names = len(names)-maxNodes, names[:maxNodes]
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "NODE", Cut: true}, {Name: "REQUESTED", Cut: true}, {Name: "BEFORE"},
		{Name: "", Right: true}, {Name: "AFTER"},
		{Name: "", Right: true},
	}}
	for _, name := range names {
		label := name
		for _, r := range resources(before[name], after[name]) {
			t.Add(label, string(r), bar(before[name][r]), percent(before[name], r), bar(after[name][r]),
				percent(after[name], r))
			label = " "
		}
	}
	if err := t.Print(stdout, wide); err != nil || more == 0 {
		return err
	}
	return stdout.Print(terminal.Text(terminal.Plain, "%d more nodes change: use -o wide to show all.",
		more))
}

func resources(loads ...deschedule.Load) []v1.ResourceName {
	all := map[v1.ResourceName]bool{}
	for _, l := range loads {
		for name := range l {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func percent(l deschedule.Load, name v1.ResourceName) string {
	if value, ok := l[name]; ok {
		return fmt.Sprintf("%.0f%%", value)
	}
	return ""
}

// bar draws a percentage; values above 100 fill it.
func bar(percent float64) string {
	full := min(int(percent/100*barWidth+0.5), barWidth)
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

func diffText(d *difference, o *Offline, stdout *terminal.Screen) error {
	wide := o.Format == "wide"
	for _, part := range []struct {
		what string
		list []deschedule.Eviction
	}{
		{"evicted only by " + o.Policy, d.Only}, {"evicted only by " + o.Diff, d.Other},
		{"evicted by both", d.Both},
	} {
		if err := evictionsText(heading(len(part.list), part.what), part.list, wide, stdout); err != nil {
			return err
		}
	}
	if err := stdout.Print(terminal.Text(terminal.Bold,
		"Resulting load, BEFORE with %s, AFTER with %s:", o.Policy, o.Diff)); err != nil {
		return err
	}
	return loadsText(d.After, d.OtherAfter, wide, stdout)
}
