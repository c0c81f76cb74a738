package planner

import (
	"jettison/cluster/deschedule"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
)

// document is the JSON and YAML output of a plan.
type document struct {
	Evictions []deschedule.Eviction      `json:"evictions"`
	Skipped   []deschedule.Skip          `json:"skipped"`
	Stopped   []deschedule.Stop          `json:"stopped"`
	Warnings  []string                   `json:"warnings,omitempty"`
	After     map[string]deschedule.Load `json:"after"`
}

// difference compares two plans: evictions of the first only, the second only and both, and the
// resulting loads.
type difference struct {
	Only       []deschedule.Eviction      `json:"only"`
	Other      []deschedule.Eviction      `json:"other"`
	Both       []deschedule.Eviction      `json:"both"`
	After      map[string]deschedule.Load `json:"after"`
	OtherAfter map[string]deschedule.Load `json:"otherAfter"`
}

// Print prints a plan as data or as text.
func Print(plan *deschedule.Result, format output.Format, stdout *terminal.Screen) error {
	if format.Data() {
		return format.Encode(stdout, document{
			Evictions: list(plan.Evictions), Skipped: list(plan.Skipped), Stopped: list(plan.Stopped),
			Warnings: plan.Warnings, After: plan.After,
		}, false)
	}
	return planText(plan, format == output.AsWide, stdout)
}

// list returns in, with nil replaced by an empty slice, which encodes as [].
func list[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}

func diff(plan, other *deschedule.Result) *difference {
	d := &difference{
		Only: []deschedule.Eviction{}, Other: []deschedule.Eviction{}, Both: []deschedule.Eviction{},
		After: plan.After, OtherAfter: other.After,
	}
	evicted := func(r *deschedule.Result) map[string]bool {
		out := map[string]bool{}
		for _, e := range r.Evictions {
			out[e.Namespace+"/"+e.Name] = true
		}
		return out
	}
	first, second := evicted(plan), evicted(other)
	for _, e := range plan.Evictions {
		if second[e.Namespace+"/"+e.Name] {
			d.Both = append(d.Both, e)
		} else {
			d.Only = append(d.Only, e)
		}
	}
	for _, e := range other.Evictions {
		if !first[e.Namespace+"/"+e.Name] {
			d.Other = append(d.Other, e)
		}
	}
	return d
}

func printDiff(plan, other *deschedule.Result, o *Offline, stdout *terminal.Screen) error {
	d := diff(plan, other)
	if o.Format.Data() {
		return o.Format.Encode(stdout, d, false)
	}
	return diffText(d, o, stdout)
}
