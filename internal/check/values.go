package check

import (
	"fmt"
	"io"
	"strings"
	"time"

	"jettison/internal/observe"
	"jettison/internal/show"
	"jettison/stats"
)

// printSignals prints each signal that is an amount available.
func printSignals(w io.Writer, now time.Time, s *stats.Summary, o observe.Options) {
	for _, signal := range stats.Signals {
		threshold := thresholds(o, signal)
		v := s.Observe(now, signal, o.Config.MemoryAvailable)
		if !v.OK {
			fmt.Fprintf(w, "%s\tabsent\t-\t-\t%s\t-\t%s\n", signal, threshold, v.Reason)
			continue
		}
		note := ""
		if signal == stats.SignalMemoryAvailable {
			note = fmt.Sprintf("%s: workingSet %s, kernel %s", o.Config.MemoryAvailable,
				by(s, stats.MemoryAvailableWorkingSet), by(s, stats.MemoryAvailableKernel))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%v\t%s\n", signal,
			show.Amount(signal, v.Value), show.Amount(signal, v.Capacity), show.Percent(v), threshold,
			now.Sub(v.Time).Round(time.Millisecond), note)
	}
}

// thresholds of a signal, hard and soft, as in "<100Mi, <1Gi for 30s".
func thresholds(o observe.Options, signal stats.Signal) string {
	var all []string
	for _, t := range o.Config.Thresholds {
		if t.Signal != signal {
			continue
		}
		text := strings.TrimPrefix(t.String(), string(signal))
		if !t.Hard() {
			text += " for " + t.Grace.String()
		}
		all = append(all, text)
	}
	return show.OrDash(strings.Join(all, ", "))
}

func by(s *stats.Summary, how stats.MemoryAvailable) string {
	o := s.Node.Memory.Available(how)
	return show.Size(stats.Opt[uint64]{V: o.Value, OK: o.OK})
}

// printPressure prints the share of time stalled, of each resource.
func printPressure(w io.Writer, now time.Time, p *stats.NodePressure, o observe.Options) {
	for _, r := range []struct {
		name string
		of   *stats.Pressure
	}{{"memory", &p.Memory}, {"io", &p.IO}, {"cpu", &p.CPU}} {
		some, full := r.of.Stats.V.Some.Avg10, r.of.Stats.V.Full.Avg10
		printStalls(w, now, stats.Signal(r.name+".pressure.some"), r.of, stalls{r.of.Some, some, r.of.Stats.OK && r.of.Stats.V.HasSome}, o)
		printStalls(w, now, stats.Signal(r.name+".pressure.full"), r.of, stalls{r.of.Full, full, r.of.Stats.OK && r.of.Stats.V.HasFull}, o)
	}
}

// stalls is one kind of a resource's pressure.
type stalls struct {
	share stats.StallShare
	avg10 float64 // the kernel's, in percent
	known bool
}

func printStalls(w io.Writer, now time.Time, signal stats.Signal, of *stats.Pressure, s stalls, o observe.Options) {
	if !s.known {
		fmt.Fprintf(w, "%s\tabsent\t-\t-\t-\t-\tthe kernel reports no pressure: boot it with psi=1\n", signal)
		return
	}
	note := fmt.Sprintf("stalled: 1s %s, 10s %s, kernel's avg10 %.2f%%",
		share(s.share.Over1s, o.Watch, time.Second), share(s.share.Over10s, o.Watch, 10*time.Second), s.avg10)
	fmt.Fprintf(w, "%s\t-\t-\t-\t%s\t%v\t%s\n", signal, thresholds(o, signal), now.Sub(of.Time).Round(time.Millisecond), note)
}

func share(v stats.Opt[float64], watched, window time.Duration) string {
	if !v.OK {
		if watched < window {
			return fmt.Sprintf("- (watched for %v)", watched)
		}
		return "-"
	}
	return fmt.Sprintf("%.2f%%", v.V*100)
}
