package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/show"
)

// maxWidth is the largest width of the screen in columns.
const maxWidth = 100

// Parts of the screen.
const (
	barWidth  = 20
	decisions = 5              // number of last evictions that are shown
	horizon   = 24 * time.Hour // a later crossing is not predicted
)

func orMaxWidth(width int) int { return cmp.Or(width, maxWidth) }

// screen formats the report for a terminal.
func (r *Report) screen(width int, wide bool) []terminal.Line {
	out := r.head(width)
	s := r.State
	if s == nil {
		return append(out, r.problems(width)...)
	}
	if len(s.Conditions) > 0 {
		out = append(out, nil)
		out = append(out, conditions(s).Lines(width, wide)...)
	}
	out = append(out, nil)
	out = append(out, r.signals().Lines(width, wide)...)
	if lines := evictions(s); lines != nil {
		out = append(out, nil)
		out = append(out, lines.Lines(width, wide)...)
	}
	return append(out, r.problems(width)...)
}

// head returns the lines about the node and its agent.
func (r *Report) head(width int) []terminal.Line {
	health := terminal.Span{Text: "healthy", Style: terminal.Good}
	if !r.Healthy {
		health = terminal.Span{Text: "NOT HEALTHY", Style: terminal.Bad}
	}
	agent := "agent not answering"
	switch {
	case r.Agent != "":
		agent = "jettison " + r.Agent
	case r.forbidden:
		agent = "no permission to query the agent"
	}
	out := []terminal.Line{{{Text: "node " + r.Node + ": ", Style: terminal.Bold}, health,
		{Text: ", " + agent}}}
	s := r.State
	if s == nil {
		return out
	}
	parts := []string{output.Time(s.Time), output.Count(s.Pods.Runtime, "pod")}
	if r.Agent != "" {
		kubelet := "no kubelet"
		if s.Kubelet {
			kubelet = "alongside a kubelet"
		}
		parts = append(parts, kubelet, "disk "+s.Disk)
		if s.DryRun {
			parts = append(parts, "dry run")
		}
		if g := s.Gate; g != nil && g.Asked {
			line := fmt.Sprintf("gate: %d admitted, %d rejected", g.Admitted, g.Refused)
			if g.HeldOff > 0 {
				line += fmt.Sprintf(", %d held off", g.HeldOff)
			}
			parts = append(parts, line)
		}
	}
	parts = append(parts, "runtime "+s.Runtime.Endpoint)
	for _, line := range table.Fold(strings.Join(parts, ", "), width) {
		out = append(out, terminal.Text(terminal.Plain, "%s", line))
	}
	return out
}

func conditions(s *api.State) *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "CONDITION"}, {Name: "STATUS"}, {Name: "SINCE"},
		{Name: "REASON", Cut: true}}}
	for _, c := range s.Conditions {
		status, style, since := "False", terminal.Good, "-"
		if c.Status {
			status, style = "True", terminal.Bad
		}
		if c.LastTransitionTime != nil {
			since = output.Time(*c.LastTransitionTime)
		}
		t.Rows = append(t.Rows, []terminal.Span{{Text: string(c.Type)}, {Text: status, Style: style},
			{Text: since}, {Text: c.Reason}})
	}
	return t
}

// signals returns a table of the signals that have a threshold. The bar shows the available amount
// and the nearest threshold.
func (r *Report) signals() *table.Table {
	t := &table.Table{Columns: []table.Column{
		{Name: "SIGNAL"}, {Name: "AVAILABLE", Right: true}, {Name: "OF", Right: true},
		{Name: "THRESHOLD", Right: true}, {Name: "BAR", Drop: 1},
		{Name: "TIME TO THRESHOLD", Cut: true}, {Name: "THRESHOLDS", Wide: true},
		{Name: "REASON", Wide: true},
	}}
	for i := range r.State.Signals {
		s := &r.State.Signals[i]
		all := strings.Join(s.Threshold, ", ")
		if !s.Observed {
			t.Add(string(s.Signal), "absent", "", cmp.Or(configuredLimit(s), "-"), "", cmp.Or(s.Reason, "-"), all,
				s.Reason)
			continue
		}
		limit, style := "-", terminal.Good
		if v, ok := nearest(s); ok {
			limit = show.Amount(s.Signal, v)
		}
		when := r.timeToThreshold(s)
		switch {
		case isMet(s):
			style = terminal.Bad
		case when.Style != terminal.Plain:
			style = terminal.Warning
		}
		of := show.Amount(s.Signal, s.Capacity)
		t.Rows = append(t.Rows, []terminal.Span{
			{Text: string(s.Signal)}, {Text: show.Amount(s.Signal, s.Available), Style: style}, {Text: of},
			{Text: limit},
			{Text: bar(s), Style: style}, when, {Text: all}, {},
		})
	}
	return t
}

// configuredLimit returns the first threshold of a signal as configured, for a signal without an
// observation.
func configuredLimit(s *api.SignalState) string {
	if len(s.Threshold) == 0 {
		return ""
	}
	return strings.TrimLeft(strings.TrimPrefix(s.Threshold[0], string(s.Signal)), "<>")
}

// bar draws the available share of the capacity with a mark at the nearest threshold. For a
// pressure signal it draws the share of time stalled.
func bar(s *api.SignalState) string {
	if s.Capacity == 0 {
		return "-"
	}
	at := func(v uint64) int {
		return int(float64(min(v, s.Capacity)) / float64(
			s.Capacity) * barWidth)
	}
	cells := slices.Repeat([]rune{'.'}, barWidth)
	for i := range at(s.Available) {
		cells[i] = '#'
	}
	if limit, ok := nearest(s); ok {
		cells[min(at(limit), barWidth-1)] = '|'
	}
	return "[" + string(cells) + "]"
}

// timeToThreshold returns the time until the threshold is crossed at the present slope.
func (r *Report) timeToThreshold(s *api.SignalState) terminal.Span {
	if isMet(s) {
		return terminal.Span{Text: "crossed", Style: terminal.Bad}
	}
	for _, slope := range r.Slopes {
		if slope.Signal != s.Signal || slope.Seconds == nil || *slope.Seconds > horizon.Seconds() {
			continue
		}
		left := time.Duration(*slope.Seconds * float64(time.Second))
		style := terminal.Plain
		if left < 10*time.Minute {
			style = terminal.Warning
		}
		rate := show.Amount(s.Signal, uint64(max(slope.PerSecond, -slope.PerSecond)))
		sign := "-"
		if s.Signal.Pressure() {
			sign = "+"
		}
		return terminal.Span{Text: fmt.Sprintf("%s at %s%s/s", output.Span(left), sign, rate),
			Style: style}
	}
	return terminal.Span{Text: "-"}
}

// evictions returns a table of the last evictions and those in progress; nil: none.
func evictions(s *api.State) *table.Table {
	t := &table.Table{Columns: []table.Column{
		{Name: "EVICTED"}, {Name: "POD", Cut: true}, {Name: "FOR"}, {Name: "OUTCOME", Cut: true},
		{Name: "WHY", Wide: true},
	}}
	for _, e := range s.Evicted[max(0, len(s.Evicted)-decisions):] {
		outcome := terminal.Span{Text: "recovered", Style: terminal.Good}
		if !e.Back {
			outcome = terminal.Span{Text: "not recovered", Style: terminal.Bad}
		}
		if slices.ContainsFunc(s.InProgress,
			func(u api.EvictionInProgress) bool { return cleansUp(&e, &u) }) {
			outcome.Text += ", cleaning up"
		}
		t.Rows = append(t.Rows, []terminal.Span{
			{Text: output.Time(e.Time)}, {Text: api.Title(e.Pod)}, {Text: string(e.Signal)}, outcome,
			{Text: e.Explained},
		})
	}
	for _, u := range s.InProgress {
		if slices.ContainsFunc(s.Evicted, func(e api.Evicted) bool { return cleansUp(&e, &u) }) {
			continue // above, with its outcome
		}
		outcome := "in progress"
		if u.Dead {
			outcome = "killed, recovery pending"
		}
		t.Rows = append(t.Rows, []terminal.Span{
			{Text: output.Time(u.Began)}, {Text: api.Title(u.Pod)}, {Text: string(u.Signal)},
			{Text: outcome, Style: terminal.Warning},
			{Text: u.Message},
		})
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// cleansUp reports whether u is the rest of an eviction with a known outcome.
func cleansUp(e *api.Evicted, u *api.EvictionInProgress) bool {
	return e.Pod.UID == u.Pod.UID && e.Time.Equal(u.Began)
}

// problems returns the lines about problems. They are printed last, next to the prompt.
func (r *Report) problems(width int) (out []terminal.Line) {
	for _, p := range r.Problems {
		word, style := "problem: ", terminal.Bad
		if p.Advice {
			word, style = "note: ", terminal.Warning
		}
		out = append(out, nil)
		for i, line := range table.Fold(word+output.OneLine(p.What), width-2) {
			if i == 0 {
				out = append(out, terminal.Line{{Text: word, Style: style},
					{Text: strings.TrimPrefix(line, word)}})
				continue
			}
			out = append(out, terminal.Text(terminal.Plain, "  %s", line))
		}
		if p.Do == "" {
			continue
		}
		for _, line := range table.Fold("do: "+p.Do, width-2) {
			out = append(out, terminal.Text(terminal.Plain, "  %s", line))
		}
	}
	return out
}
