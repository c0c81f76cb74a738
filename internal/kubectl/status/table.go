package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/kubectl/fleet"
)

// maxNamed is the number of nodes that a line names.
const maxNamed = 3

// lines returns a summary, the table, and the reasons for unknown cells.
func lines(s *fleet.Status, width int, wide bool) []terminal.Line {
	var out []terminal.Line
	for _, line := range table.Fold(summary(s), width) {
		out = append(out, terminal.Text(terminal.Bold, "%s", line))
	}
	if len(s.Nodes) == 0 {
		return out
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "NODE", Cut: true}, {Name: "AGENT", Cut: true}, {Name: "PRESSURE", Cut: true},
		{Name: "NEAREST THRESHOLD", Cut: true}, {Name: "AWAY", Right: true},
		{Name: "HEADROOM", Right: true, Drop: 1}, {Name: "STALLED", Drop: 2},
		{Name: "LAST EVICTION", Drop: 3}, {Name: "PROBLEMS", Cut: !wide},
		{Name: "RESTARTS", Right: true, Wide: true}, {Name: "LOAD AGE", Right: true, Wide: true},
		{Name: "POD", Wide: true},
	}}
	for i := range s.Nodes {
		t.Rows = append(t.Rows, row(s.Time, &s.Nodes[i], wide))
	}
	out = append(out, nil)
	out = append(out, t.Lines(width, wide)...)
	for _, text := range reasons(s) {
		for _, line := range table.Fold(text, width) {
			out = append(out, terminal.Text(terminal.Plain, "%s", line))
		}
	}
	return out
}

// row returns the cells of a node. An empty cell becomes a dash.
func row(now time.Time, n *fleet.Node, wide bool) []terminal.Span {
	agent, agentStyle := agentCell(&n.Agent)
	pressure, pressureStyle := pressureCell(n)
	nearest, away, headroom, stalled, age := "", "", "", "", ""
	awayStyle := terminal.Plain
	if l := n.Load; l != nil {
		age = fleet.Ago(now.Sub(l.Time))
		if l.Nearest != nil {
			nearest, away = l.Nearest.Threshold, fmt.Sprintf("%.1f%%", l.Nearest.HeadroomPercent)
			if l.Nearest.HeadroomPercent < 0 {
				awayStyle = terminal.Bad
			}
		}
		if l.HeadroomBytes != nil {
			headroom = bytes(*l.HeadroomBytes)
		}
		if len(l.Pressure) > 0 {
			stalled = share(l.Pressure, "memorySome") + " " + share(l.Pressure, "ioSome") + " " +
				share(l.Pressure, "cpuSome")
		}
	}
	evicted := ""
	switch e := n.LastEviction; {
	case e != nil:
		evicted = fleet.Ago(now.Sub(e.Time)) + " ago, " + e.Signal
	case n.Unknown[fleet.FieldEvictions] == "":
		evicted = "none"
	}
	problems, problemStyle := "none", terminal.Good
	if count := len(n.Problems); count > 0 {
		problems, problemStyle = n.Problems[0], terminal.Bad
		if wide {
			problems = strings.Join(n.Problems, "; ")
		} else if count > 1 {
			problems = fmt.Sprintf("%d: %s", count, problems)
		}
	}
	return []terminal.Span{{Text: n.Name}, {Text: agent, Style: agentStyle},
		{Text: pressure, Style: pressureStyle}, {Text: nearest}, {Text: away, Style: awayStyle},
		{Text: headroom}, {Text: stalled}, {Text: evicted}, {Text: problems, Style: problemStyle},
		{Text: fmt.Sprint(n.Agent.Restarts)}, {Text: age}, {Text: n.Agent.Pod}}
}

// agentCell describes the agent: its version, and what is unusual about it.
func agentCell(a *fleet.Agent) (string, terminal.Style) {
	parts := []string{a.Label()}
	style := terminal.Plain
	if a.DryRun != nil && *a.DryRun {
		parts, style = append(parts, "dry run"), terminal.Warning
	}
	switch a.State {
	case fleet.StateReady, fleet.StateUnknown:
	case fleet.StateNoPod:
		if a.Version == "" { // a systemd unit has no pod either, and a bridge reports its version
			parts = append(parts, a.State)
		}
	default:
		parts, style = append(parts, a.State), terminal.Bad
	}
	parts = slices.DeleteFunc(parts, func(text string) bool { return text == "" })
	return strings.Join(parts, ", "), style
}

// pressureCell lists the conditions that are not False.
func pressureCell(n *fleet.Node) (string, terminal.Style) {
	var found []string
	style := terminal.Plain
	for _, c := range n.Conditions {
		kind := strings.TrimSuffix(c.Type, "Pressure")
		switch c.Status {
		case "True":
			found, style = append(found, kind), terminal.Bad
		case "False":
		default:
			found = append(found, kind+" unknown")
		}
	}
	if len(found) == 0 && len(n.Conditions) > 0 {
		return "none", terminal.Good
	}
	return strings.Join(found, ", "), style
}

func bytes(v int64) string {
	if v < 0 {
		return "-" + output.Bytes(uint64(-v))
	}
	return output.Bytes(uint64(v))
}

func share(pressure map[string]float64, name string) string {
	v, known := pressure[name]
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", v)
}

// summary counts the nodes.
func summary(s *fleet.Status) string {
	agents, unknown, dry, pressed, problems := 0, 0, 0, 0, 0
	versions := map[string]bool{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Agent.Runs() {
			agents++
			versions[n.Agent.Label()] = true
		} else if n.Agent.State == fleet.StateUnknown {
			unknown++
		}
		if n.Agent.DryRun != nil && *n.Agent.DryRun {
			dry++
		}
		if slices.ContainsFunc(n.Conditions, func(c fleet.Condition) bool { return c.Status == "True" }) {
			pressed++
		}
		if len(n.Problems) > 0 {
			problems++
		}
	}
	text := fmt.Sprintf("%s: %d with a running agent", output.Count(len(s.Nodes), "node"), agents)
	if unknown > 0 {
		text += fmt.Sprintf(", %d unknown", unknown)
	}
	if dry > 0 {
		text += fmt.Sprintf(", %d in a dry run", dry)
	}
	if len(versions) > 1 {
		text += fmt.Sprintf(", %d versions", len(versions))
	}
	return fmt.Sprintf("%s, %d under pressure, %d with problems (%s)", text, pressed, problems,
		output.Time(s.Time))
}

// reasons returns a line for each reason for which cells are unknown.
func reasons(s *fleet.Status) (out []string) {
	columns := map[string]string{fleet.FieldAgent: "AGENT", fleet.FieldConditions: "PRESSURE",
		fleet.FieldLoad:      "NEAREST THRESHOLD, HEADROOM, STALLED",
		fleet.FieldEvictions: "LAST EVICTION"}
	nodes := map[string][]string{}
	for i := range s.Nodes {
		for field, why := range s.Nodes[i].Unknown {
			if why == "" {
				continue
			}
			text := "unknown " + columns[field] + ": " + why
			nodes[text] = append(nodes[text], s.Nodes[i].Name)
		}
	}
	for text, names := range nodes {
		out = append(out, text+" ("+named(names, len(s.Nodes))+")")
	}
	slices.Sort(out)
	const maxReasons = 10
	if more := len(out) - maxReasons; more > 0 {
		out = append(out[:maxReasons], fmt.Sprintf("and %d more reasons: see -o json", more))
	}
	if len(out) > 0 {
		out = append([]string{""}, out...)
	}
	return out
}

// named names nodes: all of them, or the first ones.
func named(names []string, all int) string {
	if len(names) == all && all > 1 {
		return "all nodes"
	}
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}
