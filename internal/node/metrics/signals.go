package metrics

import (
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/api"
	"jettison/stats"
)

// Units of signals, which are the suffixes of families' names.
const (
	inBytes  = "bytes"
	inInodes = "inodes"
	inTasks  = "tasks"
	inRatio  = "ratio" // of pressure
)

// unit returns the unit of a signal.
func unit(s stats.Signal) string {
	switch {
	case s.Pressure():
		return inRatio
	case strings.HasSuffix(string(s), ".inodesFree"):
		return inInodes
	case s == stats.SignalPIDAvailable:
		return inTasks
	}
	return inBytes
}

// amount returns a value of a signal in its unit. For pressure, which is in millionths of stalled
// time, it returns the share without stalls.
func amount(s stats.Signal, v uint64) float64 {
	if unit(s) == inRatio {
		return 1 - float64(v)/stats.ShareUnit
	}
	return float64(v)
}

func sorted(m map[string]uint64) []string { return slices.Sorted(maps.Keys(m)) }

// state writes the current values.
func (w *families) state(now *Now) {
	s := now.State
	w.mode(now, s)
	w.signals(now)
	w.thresholds(now)
	w.pressure(&now.Pressure)
	name := w.begin("condition_status")
	for _, c := range s.Conditions {
		w.Sample(name, oneIf(c.Status), time.Time{}, "condition", string(c.Type))
	}
	w.single("headroom_needed_bytes", float64(s.Headroom.NeededBytes))
	w.single("evictions_in_progress", float64(len(s.InProgress)))
	w.pods(now)
	w.single("breaker_open", oneIf(s.BreakerOpen != ""))
	w.single("runtime_connected", oneIf(!s.Runtime.Lost))
	w.single("nri_connected", oneIf(s.Gate != nil && s.Gate.Asked))
}

// signals writes the available amounts and capacities, by unit.
func (w *families) signals(now *Now) {
	s := now.State
	for _, f := range []struct {
		name  string
		units []string
		of    func(*api.SignalState) uint64
	}{
		{"signal_available_", []string{inBytes, inInodes, inTasks, inRatio},
			func(s *api.SignalState) uint64 { return s.Available }},
		{"signal_capacity_", []string{inBytes, inInodes, inTasks},
			func(s *api.SignalState) uint64 { return s.Capacity }},
	} {
		for _, u := range f.units {
			name := ""
			for i := range s.Signals {
				signal := &s.Signals[i]
				if unit(signal.Signal) != u || !signal.Observed {
					continue
				}
				if name == "" {
					name = w.begin(f.name + u)
				}
				w.Sample(name, amount(signal.Signal, f.of(signal)), time.Time{}, signalLabel,
					string(signal.Signal))
			}
		}
	}
	name := w.begin("signal_observed")
	for i := range s.Signals {
		if now.Missing[s.Signals[i].Signal] {
			continue
		}
		w.Sample(name, oneIf(s.Signals[i].Observed), time.Time{}, signalLabel,
			string(s.Signals[i].Signal))
	}
}

func (w *families) thresholds(now *Now) {
	type key struct {
		signal stats.Signal
		hard   bool
	}
	for _, u := range []string{inBytes, inInodes, inTasks, inRatio} {
		name, written := "", map[key]bool{}
		for _, t := range now.Thresholds {
			// the first of several with different windows
			if unit(t.Signal) != u || !t.Known || written[key{t.Signal, t.Hard}] {
				continue
			}
			written[key{t.Signal, t.Hard}] = true
			if name == "" {
				name = w.begin("threshold_" + u)
			}
			kind := "soft"
			if t.Hard {
				kind = "hard"
			}
			w.Sample(name, amount(t.Signal, t.Limit), time.Time{}, signalLabel, string(t.Signal), "kind",
				kind)
		}
	}
	name := w.begin("threshold_met")
	for i := range now.State.Signals {
		signal := now.State.Signals[i].Signal
		w.Sample(name, oneIf(now.Met[signal]), time.Time{}, signalLabel, string(signal))
	}
}

func (w *families) pressure(p *stats.NodePressure) {
	name := w.begin("pressure_stalled_ratio")
	for _, r := range []struct {
		resource string
		of       *stats.Pressure
	}{{"cpu", &p.CPU}, {"io", &p.IO}, {"memory", &p.Memory}} {
		if !r.of.Stats.OK {
			continue
		}
		v := &r.of.Stats.V
		for _, k := range []struct {
			kind string
			has  bool
			of   *stats.PSIData
		}{{"full", v.HasFull, &v.Full}, {"some", v.HasSome, &v.Some}} {
			if !k.has {
				continue
			}
			for _, over := range []struct {
				window  string
				percent float64
			}{{"10s", k.of.Avg10}, {"1m", k.of.Avg60}, {"5m", k.of.Avg300}} {
				w.Sample(name, over.percent/100, time.Time{}, "resource", r.resource, "kind", k.kind, "window",
					over.window)
			}
		}
	}
}

func (w *families) pods(now *Now) {
	name, p := w.begin("pods"), now.State.Pods
	sample := func(state string, n int) { w.Sample(name, float64(n), time.Time{}, "state", state) }
	sample("at_own_limit", len(now.State.AtOwnLimit))
	sample("held_off", now.HeldOff)
	sample("listed", p.Runtime)
	if p.UnknownPriority != nil {
		sample("priority_unknown", p.UnknownPriority.Pods)
		sample("protected", now.Protected)
		sample("unprotected", p.UnknownPriority.Unprotected)
	}
	sample("with_client_object", p.Clients)
	sample("with_object", p.Objects)
	sample("with_stale_object", p.Stale)
}
