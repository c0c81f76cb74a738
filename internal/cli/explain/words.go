package explain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/table"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/show"
)

// summary is a line for each threshold, and who is protected.
func summary(o *api.Outlook, out *terminal.Screen, wide bool) error {
	t := &table.Table{Columns: []table.Column{
		{Name: "THRESHOLD"}, {Name: "AVAILABLE", Right: true}, {Name: "MET"},
		{Name: "FIRST TO GO", Cut: true}, {Name: "WHY", Fold: true},
	}}
	for i := range o.Thresholds {
		x := &o.Thresholds[i]
		first, why := victim(o, x)
		met := terminal.Span{Text: "no"}
		if x.Met {
			met = terminal.Span{Text: "yes", Style: terminal.Bad}
		}
		t.Rows = append(t.Rows, []terminal.Span{{Text: x.Threshold}, {Text: observed(x)}, met,
			{Text: first, Style: terminal.Bold}, {Text: why}})
	}
	if err := t.Print(out, wide); err != nil || len(o.Thresholds) == 0 {
		return err
	}
	return besides(o, out, wide)
}

// victim is who would go for a threshold, and why, or why nobody.
func victim(o *api.Outlook, x *api.ThresholdOutlook) (first, why string) {
	switch {
	case x.Withheld != "":
		return "nobody", x.Withheld
	case len(x.Ranking) == 0:
		return "nobody", "no pod may be evicted"
	case o.DryRun:
		return x.Ranking[0].Pod, x.Ranking[0].Keys + " (a dry run: it would not really)"
	}
	return x.Ranking[0].Pod, x.Ranking[0].Keys
}

func observed(x *api.ThresholdOutlook) string {
	if x.Observed == nil {
		return "absent"
	}
	return show.Amount(x.Signal, *x.Observed)
}

// inFull is the ranking of each threshold of one signal.
func inFull(o *api.Outlook, out *terminal.Screen, wide bool) error {
	for i := range o.Thresholds {
		x := &o.Thresholds[i]
		if i > 0 {
			if err := out.Print(nil); err != nil {
				return err
			}
		}
		if err := one(o, x, out, wide); err != nil {
			return err
		}
	}
	if len(o.Thresholds) == 0 {
		return nil
	}
	return besides(o, out, wide)
}

// besides are pods that are no candidates.
func besides(o *api.Outlook, out *terminal.Screen, wide bool) error {
	if err := protected(&o.Thresholds[0], out, wide); err != nil || len(o.HeldOff) == 0 {
		return err
	}
	if err := out.Print(nil); err != nil {
		return err
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "KEPT OUT", Cut: true}, {Name: "UNTIL", Drop: 1}, {Name: "TIMES", Right: true, Drop: 2},
		{Name: "WHY", Fold: true},
	}}
	for i := range o.HeldOff {
		h := &o.HeldOff[i]
		t.Add(keptOut(h), h.Until.Local().Format(time.TimeOnly), strconv.Itoa(h.Times), h.Reason)
	}
	return t.Print(out, wide)
}

// keptOut is whom a hold-off keeps out.
func keptOut(h *api.HoldState) string {
	switch {
	case h.Owner == nil:
		return h.UID
	case h.UID == "":
		return fmt.Sprintf("what %s makes in place of %s/%s", h.Owner.Kind, h.Owner.Namespace,
			h.Owner.Pod)
	}
	return h.Owner.Namespace + "/" + h.Owner.Pod
}

func one(o *api.Outlook, x *api.ThresholdOutlook, out *terminal.Screen, wide bool) error {
	state := "not met"
	if x.Met {
		state = "MET"
	}
	first, why := victim(o, x)
	head := []terminal.Line{
		terminal.Text(terminal.Bold, "%s: %s, %s", x.Threshold, observed(x), state),
		{{Text: "goes first: "}, {Text: first, Style: terminal.Bold}, {Text: ": " + why}},
		nil,
	}
	if err := out.Print(head...); err != nil || len(x.Ranking) == 0 {
		return err
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "RANK", Right: true}, {Name: "POD", Cut: true}, {Name: "QOS", Drop: 1},
		{Name: "PRIORITY", Right: true, Drop: 2},
		{Name: "RETURNS", Right: true}, {Name: "BEHIND BY", Fold: true}, {Name: "WHY", Fold: true},
		{Name: "UID", Wide: true},
	}}
	for i := range x.Ranking {
		r := &x.Ranking[i]
		priority, returns := "unknown", "-"
		if r.Priority != nil {
			priority = strconv.Itoa(int(*r.Priority))
		}
		if r.Releases != nil {
			returns = output.Bytes(*r.Releases)
		}
		t.Add(strconv.Itoa(i+1), r.Pod, cmp.Or(string(r.QOSClass), "-"), priority, returns, r.DecidedBy,
			r.Keys, r.UID)
	}
	if err := t.Print(out, wide); err != nil || x.More == 0 {
		return err
	}
	return out.Print(terminal.Text(terminal.Dim, "and %d more", x.More))
}

// protected are those that are never victims.
func protected(x *api.ThresholdOutlook, out *terminal.Screen, wide bool) error {
	if len(x.Protected) == 0 {
		return out.Print(nil, terminal.Text(terminal.Plain, "no pod is protected"))
	}
	if err := out.Print(nil); err != nil {
		return err
	}
	t := &table.Table{Columns: []table.Column{{Name: "PROTECTED BY", Fold: true},
		{Name: "PODS", Fold: true}}}
	for _, p := range x.Protected {
		pods := strings.Join(p.Pods, ", ")
		if p.More > 0 {
			pods += fmt.Sprintf(" and %d more", p.More)
		}
		t.Add(p.Reason, pods)
	}
	return t.Print(out, wide)
}
