package check

import (
	"fmt"
	"strings"
	"time"

	"jettison/internal/cli/show"
	"jettison/internal/node/observe"
	"jettison/stats"
)

// addSignals adds the signals that are an available amount.
func (r *Result) addSignals(now time.Time, s *stats.Summary, o observe.Options) {
	for _, signal := range stats.Signals {
		threshold := thresholds(o, signal)
		v := s.Observe(now, signal, o.Config.MemoryAvailable)
		if !v.OK {
			r.Signals = append(r.Signals, Signal{Name: string(signal), Available: "absent",
				Threshold: threshold, Reason: v.Reason})
			continue
		}
		note := ""
		if signal == stats.SignalMemoryAvailable {
			note = fmt.Sprintf("%s: workingSet %s, kernel %s", o.Config.MemoryAvailable,
				by(s, stats.MemoryAvailableWorkingSet), by(s, stats.MemoryAvailableKernel))
		}
		r.Signals = append(r.Signals, Signal{
			Name: string(signal), Available: show.Amount(signal, v.Value),
			Of: show.Amount(signal, v.Capacity), Share: show.Percent(v),
			Threshold: threshold, Age: now.Sub(v.Time).Round(time.Millisecond).String(), Reason: note,
		})
	}
}

// notePodsLimit notes each threshold for which the pods' own task limit does not count.
func (r *Result) notePodsLimit(p *stats.NodePIDStats, o observe.Options) {
	for i := range o.Config.Thresholds {
		if t := &o.Config.Thresholds[i]; t.IgnoresPodsLimit(p) {
			r.note("pods may have %d tasks, which is not above the threshold %v: the agent evicts no pod "+
				"for this limit of theirs; lower the threshold or the reservation of PIDs", p.PodsMax.V, t)
		}
	}
}

// thresholds formats the hard and soft thresholds of a signal, as in "<100Mi, <1Gi for 30s".
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
	return strings.Join(all, ", ")
}

func by(s *stats.Summary, how stats.MemoryAvailable) string {
	o := s.Node.Memory.Available(how)
	return show.Size(stats.Opt[uint64]{V: o.Value, OK: o.OK})
}

// addPressure adds the share of time stalled of each resource.
func (r *Result) addPressure(now time.Time, p *stats.NodePressure, o observe.Options) {
	for _, k := range []struct {
		name string
		of   *stats.Pressure
	}{{"memory", &p.Memory}, {"io", &p.IO}, {"cpu", &p.CPU}} {
		of := k.of
		some, full := of.Stats.V.Some.Avg10, of.Stats.V.Full.Avg10
		r.addStalls(now, stats.Signal(k.name+".pressure.some"), of, stalls{of.Some, some, of.Stats.OK &&
			of.Stats.V.HasSome}, o)
		r.addStalls(now, stats.Signal(k.name+".pressure.full"), of, stalls{of.Full, full, of.Stats.OK &&
			of.Stats.V.HasFull}, o)
	}
}

// stalls is one kind (some, full) of a resource's pressure.
type stalls struct {
	share stats.StallShare
	avg10 float64 // as reported by the kernel, in percent
	known bool
}

func (r *Result) addStalls(now time.Time, signal stats.Signal, of *stats.Pressure, s stalls,
	o observe.Options) {
	if !s.known {
		r.Signals = append(r.Signals, Signal{
			Name: string(signal), Available: "absent", Threshold: thresholds(o, signal),
			Reason: "the kernel reports no pressure: boot with psi=1",
		})
		return
	}
	note := fmt.Sprintf("stalled: 1s %s, 10s %s, kernel's avg10 %.2f%%",
		share(s.share.Over1s, o.Watch, time.Second), share(s.share.Over10s, o.Watch, 10*time.Second),
		s.avg10)
	r.Signals = append(r.Signals, Signal{
		Name: string(signal), Threshold: thresholds(o, signal),
		Age: now.Sub(of.Time).Round(time.Millisecond).String(), Reason: note,
	})
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
