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

// printSummary prints a line for each threshold, then the protected and held-off pods.
func printSummary(o *api.Outlook, out *terminal.Screen, wide bool) error {
	t := &table.Table{Columns: []table.Column{
		{Name: "THRESHOLD"}, {Name: "AVAILABLE", Right: true}, {Name: "MET"},
		{Name: "VICTIM", Cut: true}, {Name: "WHY", Fold: true},
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
	return printExcluded(o, out, wide)
}

// victim returns the pod that would be evicted for a threshold and why, or "none" and why.
func victim(o *api.Outlook, x *api.ThresholdOutlook) (first, why string) {
	switch {
	case x.NoEvictionReason != "":
		return "none", x.NoEvictionReason
	case len(x.Ranking) == 0:
		return "none", "no pod is eligible"
	case o.DryRun:
		return x.Ranking[0].Pod, x.Ranking[0].Keys + " (dry run: it is not evicted)"
	}
	return x.Ranking[0].Pod, x.Ranking[0].Keys
}

func observed(x *api.ThresholdOutlook) string {
	if x.Observed == nil {
		return "absent"
	}
	return show.Amount(x.Signal, *x.Observed)
}

// printRankings prints the ranking for each threshold, then the protected and held-off pods.
func printRankings(o *api.Outlook, out *terminal.Screen, wide bool) error {
	for i := range o.Thresholds {
		x := &o.Thresholds[i]
		if i > 0 {
			if err := out.Print(nil); err != nil {
				return err
			}
		}
		if err := printRanking(o, x, out, wide); err != nil {
			return err
		}
	}
	if len(o.Thresholds) == 0 {
		return nil
	}
	return printExcluded(o, out, wide)
}

// printExcluded prints the pods that are not candidates: protected and held-off ones.
func printExcluded(o *api.Outlook, out *terminal.Screen, wide bool) error {
	if err := printProtected(&o.Thresholds[0], out, wide); err != nil || len(o.HeldOff) == 0 {
		return err
	}
	if err := out.Print(nil); err != nil {
		return err
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "HELD OFF", Cut: true}, {Name: "UNTIL", Drop: 1}, {Name: "TIMES", Right: true, Drop: 2},
		{Name: "WHY", Fold: true},
	}}
	for i := range o.HeldOff {
		h := &o.HeldOff[i]
		t.Add(heldOffName(h), h.Until.Local().Format(time.TimeOnly), strconv.Itoa(h.Times), h.Reason)
	}
	return t.Print(out, wide)
}

// heldOffName names the pod that a hold-off is for.
func heldOffName(h *api.HoldState) string {
	switch {
	case h.Owner == nil && h.Pod.Name == "":
		return h.UID
	case h.Owner == nil:
		return api.Title(h.Pod)
	case h.UID == "":
		return fmt.Sprintf("replacement of %s/%s by its %s", h.Owner.Namespace, h.Owner.Pod,
			h.Owner.Kind)
	}
	return h.Owner.Namespace + "/" + h.Owner.Pod
}

// printRanking prints the victim and the ranked pods for one threshold.
func printRanking(o *api.Outlook, x *api.ThresholdOutlook, out *terminal.Screen, wide bool) error {
	state := "not met"
	if x.Met {
		state = "MET"
	}
	first, why := victim(o, x)
	head := []terminal.Line{
		terminal.Text(terminal.Bold, "%s: %s, %s", x.Threshold, observed(x), state),
		{{Text: "victim: "}, {Text: first, Style: terminal.Bold}, {Text: ": " + why}},
		nil,
	}
	if err := out.Print(head...); err != nil || len(x.Ranking) == 0 {
		return err
	}
	t := &table.Table{Columns: []table.Column{
		{Name: "RANK", Right: true}, {Name: "POD", Cut: true}, {Name: "QOS", Drop: 1},
		{Name: "PRIORITY", Right: true, Drop: 2},
		{Name: "FREES", Right: true}, {Name: "DECIDED BY", Fold: true}, {Name: "WHY", Fold: true},
		{Name: "UID", Wide: true},
	}}
	for i := range x.Ranking {
		r := &x.Ranking[i]
		priority, frees := "unknown", "-"
		if r.Priority != nil {
			priority = strconv.Itoa(int(*r.Priority))
		}
		if r.Releases != nil {
			frees = output.Bytes(*r.Releases)
		}
		t.Add(strconv.Itoa(i+1), r.Pod, cmp.Or(string(r.QOSClass), "-"), priority, frees, r.DecidedBy,
			r.Keys, r.UID)
	}
	if err := t.Print(out, wide); err != nil || x.More == 0 {
		return err
	}
	return out.Print(terminal.Text(terminal.Dim, "and %d more", x.More))
}

// printProtected prints the pods that are never evicted, by reason.
func printProtected(x *api.ThresholdOutlook, out *terminal.Screen, wide bool) error {
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
