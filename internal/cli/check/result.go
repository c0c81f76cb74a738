package check

import (
	"fmt"
	"strconv"

	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/check/oomkillers"
)

// Result holds the findings of a check.
type Result struct {
	Probes  []Probe            `json:"probes"`
	Sources []Source           `json:"sources"`
	Rungs   []Step             `json:"rungs"`
	Signals []Signal           `json:"signals"`
	Rivals  []oomkillers.Rival `json:"rivals"` // other programs that kill
	Notes   []string           `json:"notes"`
	Failure string             `json:"failure,omitempty"` // reason for exit code 1
}

// Probe is a kernel feature, and the answer whether this kernel has it.
type Probe struct {
	Name    string `json:"name"`
	Answer  string `json:"answer"` // yes, no or unknown
	Detail  string `json:"detail,omitempty"`
	WhatFor string `json:"whatFor"`
}

// Source is a source of signals, and its answer.
type Source struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Step is a step of the kill ladder and the result of its self-test.
type Step struct {
	Name    string `json:"name"`
	Answer  string `json:"answer"` // works, refused, absent or unknown
	Took    string `json:"took,omitempty"`
	Detail  string `json:"detail,omitempty"`
	WhatFor string `json:"whatFor,omitempty"`
}

// Signal is a signal with its value. Unknown fields are empty.
type Signal struct {
	Name      string `json:"signal"`
	Available string `json:"available"` // or "absent"
	Of        string `json:"of,omitempty"`
	Share     string `json:"share,omitempty"`
	Threshold string `json:"threshold,omitempty"`
	Age       string `json:"age,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// maxWidth is the largest width of the tables in columns, except with -o wide.
const maxWidth = 120

// print writes the tables, then the notes.
func (r *Result) print(out *terminal.Screen, wide bool) error {
	width := maxWidth
	if w := out.Width(); w > 0 {
		width = min(w, maxWidth)
	}
	if wide {
		width = 0
	}
	for i, t := range []*table.Table{r.probes(), r.sources(), r.steps(), r.signals(), r.rivals()} {
		if len(t.Rows) == 0 {
			continue
		}
		lines := t.Lines(width, wide)
		if i > 0 && len(r.Probes) > 0 {
			lines = append([]terminal.Line{nil}, lines...)
		}
		if err := out.Print(lines...); err != nil {
			return err
		}
	}
	for _, note := range r.Notes {
		lines := []terminal.Line{nil}
		for _, line := range table.Fold(note, width) {
			lines = append(lines, terminal.Text(terminal.Plain, "%s", line))
		}
		if err := out.Print(lines...); err != nil {
			return err
		}
	}
	return nil
}

// answerSpan returns an answer in the colour of its meaning: good, bad, or a warning.
func answerSpan(text string) terminal.Span {
	switch text {
	case "yes", "works", "ok":
		return terminal.Span{Text: text, Style: terminal.Good}
	case "refused", "failed":
		return terminal.Span{Text: text, Style: terminal.Bad}
	}
	return terminal.Span{Text: text, Style: terminal.Warning}
}

func (r *Result) probes() *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "PROBE"}, {Name: "ANSWER"},
		{Name: "DETAIL", Fold: true}, {Name: "PURPOSE", Fold: true}}}
	for _, p := range r.Probes {
		t.Rows = append(t.Rows, []terminal.Span{{Text: p.Name}, answerSpan(p.Answer), {Text: p.Detail},
			{Text: p.WhatFor}})
	}
	return t
}

func (r *Result) sources() *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "SOURCE", Fold: true}, {Name: "STATE"},
		{Name: "DETAIL", Fold: true}}}
	for _, s := range r.Sources {
		state := "ok"
		if !s.OK {
			state = "failed"
		}
		t.Rows = append(t.Rows, []terminal.Span{{Text: s.Name}, answerSpan(state), {Text: s.Detail}})
	}
	return t
}

func (r *Result) steps() *table.Table {
	t := &table.Table{Columns: []table.Column{
		{Name: "STEP"}, {Name: "ANSWER"}, {Name: "TIME", Right: true}, {Name: "DETAIL", Fold: true},
		{Name: "PURPOSE", Fold: true},
	}}
	for _, s := range r.Rungs {
		t.Rows = append(t.Rows, []terminal.Span{{Text: s.Name}, answerSpan(s.Answer), {Text: s.Took},
			{Text: s.Detail}, {Text: s.WhatFor}})
	}
	return t
}

func (r *Result) signals() *table.Table {
	t := &table.Table{Columns: []table.Column{
		{Name: "SIGNAL"}, {Name: "AVAILABLE", Right: true}, {Name: "OF", Right: true},
		{Name: "SHARE", Right: true},
		{Name: "THRESHOLD", Fold: true}, {Name: "AGE", Right: true}, {Name: "REASON", Fold: true},
	}}
	for _, s := range r.Signals {
		t.Add(s.Name, s.Available, s.Of, s.Share, s.Threshold, s.Age, s.Reason)
	}
	return t
}

func (r *Result) rivals() *table.Table {
	t := &table.Table{Columns: []table.Column{
		{Name: "OTHER KILLER"}, {Name: "PID", Right: true}, {Name: "WHY IT MATTERS", Fold: true},
		{Name: "WHAT TO DO", Fold: true},
	}}
	for _, o := range r.Rivals {
		name := o.Name
		if o.Pod != "" {
			name += " (pod " + o.Pod + ")"
		}
		t.Rows = append(t.Rows, []terminal.Span{
			{Text: name, Style: terminal.Warning}, {Text: strconv.Itoa(o.PID)}, {Text: o.Why}, {Text: o.Do},
		})
	}
	return t
}
