package records

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/printable"
	"jettison/internal/cli/show"
	"jettison/stats"
)

// inFull prints one record in full. Times are relative to the kill, or to the stop of the pod.
func inFull(stdout io.Writer, r *api.Record) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	lines{w}.pod(r)
	lines{w}.times(r)
	lines{w}.effect(r)
	if err := w.Flush(); err != nil {
		return err
	}
	if err := steps(stdout, r, r.EndBegan()); err != nil {
		return err
	}
	return ranking(stdout, &r.Ranking)
}

// lines writes the named lines of one record.
type lines struct{ w io.Writer }

// add writes one line. Further lines of a text, such as of joined errors, have no name, so that no
// text can imitate another named line.
func (l lines) add(name, format string, args ...any) {
	for text := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		fmt.Fprintf(l.w, "%s\t%s\n", name, printable.Text(text))
		name = ""
	}
}

// cell formats a text of a record for a table cell: one line, no control characters.
func cell(text string) string { return printable.Text(output.OrDash(output.OneLine(text))) }

// pod writes the pod, the signal and the outcome.
func (l lines) pod(r *api.Record) {
	l.add("record", "%s", r.ID)
	l.add("pod", "%s", r.Pod.Title())
	l.add("", "uid %s, %s, cgroup %s", output.OrDash(r.Pod.UID),
		cmp.Or(string(r.Pod.QOSClass), "QoS class unknown"), output.OrDash(r.Pod.Cgroup))
	if len(r.Pod.SandboxIDs) > 0 {
		l.add("", "sandbox %s", strings.Join(r.Pod.SandboxIDs, ", "))
	}
	l.add("signal", "%s", cmp.Or(r.Threshold, string(r.Signal), "-"))
	if r.ThresholdGrace != "" {
		l.add("", "met for %s", r.ThresholdGrace)
	}
	l.add("outcome", "%s", r.Outcome)
	if !r.LastDecided.IsZero() {
		l.add("again", "in %s, last decided %s", output.Count(r.Repeats, "later shortage"),
			output.Time(r.LastDecided))
	}
	if r.Error != "" {
		l.add("error", "%s", r.Error)
	}
}

// times writes the time of each observation and action.
func (l lines) times(r *api.Record) {
	zero, action := r.EndBegan(), "killed"
	if !r.WasKilled() {
		action = "stopped"
		l.add("grace", "%d s", r.GracePeriodSeconds)
	}
	reading := func(name string, v *api.Reading) {
		if v != nil {
			l.add(name, "%-10s %s", offset(zero, v.Stamp), readingText(v, r.Signal))
		}
	}
	reading("crossed", r.Crossed)
	reading("decided", r.Decided)
	l.add(action, "%s", stampText(zero))
	if r.Emptied != (api.Stamp{}) {
		l.add("empty", "%-10s no process left", offset(zero, r.Emptied))
	}
	reading("after", r.After)
}

// effect writes the freed amount, the reason and the message.
func (l lines) effect(r *api.Record) {
	l.add("freed", "predicted %s, measured %s", amountOf(r.Signal, r.Predicted),
		amountOf(r.Signal, r.Released))
	if r.Reclaimed != nil {
		l.add("reclaimed", "%s before the eviction", amountOf(stats.SignalMemoryAvailable, r.Reclaimed))
	}
	if r.Squeeze != nil {
		l.add("reclaim", "%s", reclaimText(r.Squeeze))
	}
	if !r.HoldOffUntil.IsZero() {
		l.add("held off", "until %s", output.Time(r.HoldOffUntil))
	}
	l.add("why", "%s", output.OrDash(r.Reason))
	l.add("message", "%s", output.OrDash(strings.TrimSpace(r.Message)))
}

// reclaimText describes a proactive reclaim.
func reclaimText(s *api.ProactiveReclaim) string {
	bytes := func(v *uint64) string { return amountOf(stats.SignalMemoryAvailable, v) }
	text := fmt.Sprintf("requested %s of %s, reclaimed %s, refaulted %s, in %.1f ms",
		bytes(&s.Asked), output.OrDash(s.Kind), bytes(s.Freed), bytes(s.Refaulted),
		float64(s.Took)/float64(time.Millisecond))
	if s.Stopped {
		text += ", aborted for the eviction"
	}
	return text
}

func steps(stdout io.Writer, r *api.Record, zero api.Stamp) error {
	if len(r.Steps) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSTEP\tWHEN\tN\tERROR")
	for _, s := range r.Steps {
		n := "-"
		if s.N != 0 {
			n = fmt.Sprint(s.N)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cell(s.Name), offset(zero, api.Stamp{Monotonic: s.Monotonic}),
			n, cell(s.Error))
	}
	return w.Flush()
}

func ranking(stdout io.Writer, k *api.Ranking) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if len(k.Rows) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nRANK\tPOD\tQOS\tDECIDED BY\tKEYS")
	for i, row := range k.Rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", i+1, cell(row.Pod), cell(string(row.QOSClass)),
			cell(row.DecidedBy), cell(row.Keys))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "and %s, %s protected\n", output.Count(k.More, "more candidate"),
		output.Count(k.Protected, "pod"))
	return err
}

// offset formats the time between zero and at.
func offset(zero, at api.Stamp) string {
	if d, ok := at.Since(zero); ok {
		return fmt.Sprintf("+%.1f ms", float64(d)/float64(time.Millisecond))
	}
	if d, ok := zero.Since(at); ok {
		return fmt.Sprintf("-%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return "-"
}

// stampText formats a stamp on both clocks.
func stampText(s api.Stamp) string {
	text := "-"
	if !s.Time.IsZero() {
		text = s.Time.UTC().Format("2006-01-02 15:04:05.000 UTC")
	}
	if s.Monotonic > 0 {
		text += fmt.Sprintf(", %.6f monotonic", s.Monotonic.Seconds())
	}
	return text
}

// readingText describes a reading.
func readingText(v *api.Reading, signal stats.Signal) string {
	if v.Available == nil {
		return "not observed: " + cmp.Or(v.Reason, "no reason recorded")
	}
	text := cmp.Or(v.Text, amountOf(signal, v.Available))
	if signal.Pressure() {
		return text + " of the time stalled"
	}
	return text + " available of " + amountOf(signal, v.Capacity)
}

// amountOf formats an amount in the signal's unit.
func amountOf(signal stats.Signal, v *uint64) string {
	if v == nil {
		return "unknown"
	}
	return show.Amount(signal, *v)
}
