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

// barWidth is how many characters 100 % are.
const barWidth = 20

// mostNodes is how many nodes are drawn where not all there is is wanted.
const mostNodes = 20

func planText(plan *deschedule.Result, wide bool, stdout *terminal.Screen) error {
	if err := evictionsText(heading(len(plan.Evictions), "evicted"), plan.Evictions, wide,
		stdout); err != nil {
		return err
	}
	for _, s := range plan.Stopped {
		if err := stdout.Print(terminal.Text(terminal.Plain, "%s ends: %s.", s.Strategy,
			s.Reason)); err != nil {
			return err
		}
	}
	if err := skippedText(plan.Skipped, wide, stdout); err != nil {
		return err
	}
	return loadsText(plan.Before, plan.After, wide, stdout)
}

func heading(count int, what string) string {
	switch count {
	case 0:
		return "No pod would be " + what + "."
	case 1:
		return "1 pod would be " + what + ":"
	}
	return fmt.Sprintf("%d pods would be %s, in this order:", count, what)
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
		{Name: "LIKELY TO", Cut: true, Drop: 1}, {Name: "STRATEGY", Cut: true},
		{Name: "REASON", Fold: true},
		{Name: "PROFILE", Wide: true}, {Name: "WEIGHED AGAINST", Wide: true},
	}}
	for i, e := range evictions {
		t.Add(fmt.Sprint(i+1), e.Namespace, e.Name, e.Node, e.To, e.Strategy, e.Reason, e.Profile,
			strings.Join(e.Against, "; "))
	}
	return t.Print(stdout, wide)
}

// skippedText counts the pods that rules kept; wide lists them.
func skippedText(skipped []deschedule.Skip, wide bool, stdout *terminal.Screen) error {
	if len(skipped) == 0 {
		return nil
	}
	if err := stdout.Print(terminal.Text(terminal.Bold, "Kept by a rule: %d.",
		len(skipped))); err != nil {
		return err
	}
	if wide {
		t := &table.Table{Columns: []table.Column{{Name: "NAMESPACE"}, {Name: "POD"},
			{Name: "KEPT BECAUSE"}}}
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
		{Name: "KEPT BECAUSE", Fold: true}, {Name: "SUCH AS", Cut: true}}}
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

// loadsText draws what is requested of nodes, before and after: of those that change, or of all.
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
	if !wide && len(names) > mostNodes {
		more, names = len(names)-mostNodes, names[:mostNodes]
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
	return stdout.Print(terminal.Text(terminal.Plain, "%d more nodes change: -o wide draws all.",
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

// bar of a percentage; what is over 100 is full.
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
		{"evicted by " + o.Policy + " alone", d.Only}, {"evicted by " + o.Diff + " alone", d.Other},
		{"evicted by both", d.Both},
	} {
		if err := evictionsText(heading(len(part.list), part.what), part.list, wide, stdout); err != nil {
			return err
		}
	}
	if err := stdout.Print(terminal.Text(terminal.Bold,
		"What each leads to, BEFORE by %s, AFTER by %s:", o.Policy, o.Diff)); err != nil {
		return err
	}
	return loadsText(d.After, d.Then, wide, stdout)
}
