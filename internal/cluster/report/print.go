package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
)

// Print writes the status as a table or as data.
func (s *Status) Print(to *terminal.Screen, format output.Format) error {
	if format.Data() {
		return format.Encode(to, s, false)
	}
	lines := []string{fmt.Sprintf("leader %s, mode %s, read %s ago", s.Leader, s.Mode,
		output.Span(s.Time.Sub(s.Read)))}
	if s.Held != "" {
		lines = append(lines, "not acting: "+s.Held)
	}
	if s.Doubt != "" {
		lines = append(lines, "node silence in doubt, tainting suspended: "+s.Doubt)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Zones)) {
		z := s.Zones[name]
		lines = append(lines, fmt.Sprintf(
			"zone %s: %s, %d ready, %d not ready, %d waiting for a taint, %g/s", name, z.State, z.Ready,
			z.NotReady,
			z.Waiting, z.Rate))
	}
	if _, err := fmt.Fprintln(to, strings.Join(lines, "\n")); err != nil {
		return err
	}
	t := table.Table{Columns: []table.Column{
		{Name: "NODE"}, {Name: "HEALTH"}, {Name: "HEARD", Right: true}, {Name: "ZONE", Drop: 2},
		{Name: "TAINTS", Fold: true},
		{Name: "QUEUE", Drop: 3}, {Name: "WHEN", Drop: 1},
	}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		queue := n.Queue
		if n.Place > 0 {
			queue = strings.TrimSpace(fmt.Sprintf("%s taint #%d", queue, n.Place))
		}
		t.Add(n.Name, n.Health, agoText(s.Time, n.Heard), n.Zone, strings.Join(n.Taints, " "), queue,
			inText(s.Time, n.Due))
	}
	return t.Print(to, format == output.AsWide)
}

// Print writes the explanation as a table or as data.
func (e *Explanation) Print(to *terminal.Screen, format output.Format) error {
	if format.Data() {
		return format.Encode(to, e, false)
	}
	n := &e.Node
	text := fmt.Sprintf("node %s, zone %s: %s, last contact %s", n.Name, n.Zone, n.Health,
		agoText(e.Time, n.Heard))
	if n.Since != nil {
		text += ", not ready since " + output.Time(*n.Since)
	}
	if n.Place > 0 {
		text += fmt.Sprintf(", place %d in its zone for a NoExecute taint (%s)", n.Place,
			inText(e.Time, n.Due))
	}
	if _, err := fmt.Fprintln(to, text); err != nil {
		return err
	}
	t := table.Table{Columns: []table.Column{
		{Name: "POD"}, {Name: "TAINT", Fold: true}, {Name: "SINCE", Drop: 1},
		{Name: "TOLERATION", Fold: true}, {Name: "DEADLINE"},
	}}
	for i := range e.Pods {
		p := &e.Pods[i]
		name := p.Namespace + "/" + p.Name
		if p.Stays != "" || len(p.Taints) == 0 {
			reason := p.Stays
			if reason == "" {
				reason = "node has no NoExecute taint"
			}
			t.Add(name, reason, "", "", "never")
			continue
		}
		for _, x := range p.Taints {
			deadline := "never"
			if x.Deadline != nil {
				deadline = inText(e.Time, x.Deadline)
			}
			toleration := x.Toleration
			if toleration == "" {
				toleration = "none"
			}
			t.Add(name, x.Taint, output.Time(x.Since), toleration, deadline)
		}
	}
	return t.Print(to, format == output.AsWide)
}

// agoText formats the time since at.
func agoText(now time.Time, at *time.Time) string {
	if at == nil {
		return "never"
	}
	return output.Span(now.Sub(*at)) + " ago"
}

// inText formats the time until at.
func inText(now time.Time, at *time.Time) string {
	switch {
	case at == nil:
		return "-"
	case !at.After(now):
		return "now"
	}
	return "in " + output.Span(at.Sub(now))
}
