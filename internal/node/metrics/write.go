package metrics

import (
	"runtime"
	"strconv"
	"time"

	"jettison/api"
)

// Inputs are the data for Write.
type Inputs struct {
	Version string
	Parts   *Parts // nil: the agent has no parts yet
	Now     *Now   // nil: the loop has published nothing yet
	// LogLines and Events are the numbers of dropped lines and events.
	LogLines, Events uint64
	Proc             string // mount of /proc
}

// families writes families by name.
type families struct {
	Writer
	named map[string]*Family
}

// begin writes the header of a family and returns its full name.
func (w *families) begin(name string) string {
	f := w.named[name]
	w.Family(Prefix+name, f.Type, f.Meaning)
	return Prefix + name
}

// single writes a family with one sample.
func (w *families) single(name string, v float64) { w.Sample(w.begin(name), v, time.Time{}) }

// Write returns all families with data, in the text format of Prometheus.
func Write(in *Inputs) []byte {
	w := &families{named: make(map[string]*Family, len(Families))}
	for i := range Families {
		w.named[Families[i].Name] = &Families[i]
	}
	w.Sample(w.begin("build_info"), 1, time.Time{}, "version", in.Version, "goversion",
		runtime.Version())
	if in.Now != nil {
		w.state(in.Now)
	}
	if in.Parts != nil {
		w.parts(in.Parts, in.Now)
	}
	w.single("log_lines_dropped_total", float64(in.LogLines))
	w.single("events_dropped_total", float64(in.Events))
	if in.Now != nil && in.Now.State.Config != nil {
		w.config(in.Now.State.Config)
	}
	Process(&w.Writer, in.Proc)
	return w.Text()
}

// config writes the reloads of the configuration.
func (w *families) config(c *api.ConfigState) {
	name := w.begin("config_reloads_total")
	w.Sample(name, float64(c.Failed), time.Time{}, "outcome", "failed")
	w.Sample(name, float64(c.Reloads), time.Time{}, "outcome", "taken")
	good := 1.0
	if c.Error != "" {
		good = 0
	}
	w.single("config_last_reload_successful", good)
	w.single("config_last_reload_success_timestamp_seconds", seconds(c.Read))
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// parts writes the counts of the agent's parts.
func (w *families) parts(p *Parts, now *Now) {
	w.sources(p)
	w.evictions(p.Evictions, now)
	w.gate(p, now)
	if r := p.Reclaim; r != nil {
		w.single("memory_reclaim_asked_bytes_total", float64(r.Asked.Value()))
		w.single("memory_reclaim_freed_bytes_total", float64(r.Freed.Value()))
		w.single("memory_reclaim_refaulted_bytes_total", float64(r.Refaulted.Value()))
	}
	if g := p.Garbage; g != nil {
		w.vec("gc_removed_total", &g.Removed, "kind")
		w.vec("gc_freed_bytes_total", &g.Freed, "kind")
		w.vec("gc_failed_total", &g.Failed, "kind")
		w.histograms("gc_duration_seconds", g.Took, "kind")
		w.vec("gc_last_success_timestamp_seconds", &g.Success, "kind")
	}
	w.looks(p)
	w.histograms("runtime_operations_duration_seconds", p.Operations, "operation")
	w.single("records_dropped_total", float64(p.Records()))
	w.single("frames_dropped_total", float64(p.Frames()))
}

func (w *families) vec(name string, v *Vec, labels ...string) { w.Vec(w.begin(name), v, labels...) }

func (w *families) histograms(name string, v *HistogramVec, label string) {
	name = w.begin(name)
	v.each(func(h *Histogram, value string) { w.histogram(name, h, label, value) })
}

// sources writes the sources of signals, sorted by name in each family.
func (w *families) sources(p *Parts) {
	type row struct {
		name   string
		up     bool
		last   time.Time
		errors uint64
	}
	var all []row
	for _, s := range []struct {
		name string
		of   *Source
	}{{"allocatable", &p.Looks.Allocatable}, {"memory", &p.Looks.Memory}, {"node", &p.Looks.Node},
		{"tasks", &p.Looks.Tasks}} {
		r := row{name: s.name, up: s.of.up.Load(), errors: s.of.errors.Value()}
		if at := s.of.last.Load(); at != 0 {
			r.last = time.Unix(0, at)
		}
		if !r.last.IsZero() || r.errors > 0 { // otherwise the source is not in use
			all = append(all, r)
		}
	}
	if p.Background != nil {
		for _, s := range p.Background(time.Now()) {
			all = append(all, row{name: s.Name, up: s.Err == nil, last: s.Time, errors: s.Failures})
		}
	}
	name := w.begin("source_up")
	for _, r := range all {
		w.Sample(name, oneIf(r.up), time.Time{}, "source", r.name)
	}
	name = w.begin("source_last_success_timestamp_seconds")
	for _, r := range all {
		if !r.last.IsZero() {
			w.Sample(name, seconds(r.last), time.Time{}, "source", r.name)
		}
	}
	name = w.begin("source_errors_total")
	for _, r := range all {
		w.Sample(name, float64(r.errors), time.Time{}, "source", r.name)
	}
}

func (w *families) evictions(e *Evictions, now *Now) {
	w.outcomes(&e.Outcomes, now)
	w.histogram(w.begin("eviction_crossing_to_kill_seconds"), e.ToKill)
	w.histogram(w.begin("eviction_kill_to_recovery_seconds"), e.ToRecovery)
	w.single("eviction_predicted_bytes_total", float64(e.Predicted.Value()))
	w.single("eviction_released_bytes_total", float64(e.Released.Value()))
	w.vec("kill_step_errors_total", &e.StepErrors, "step")
}

// outcomes writes the outcomes of evictions. Prometheus sees no increase in a counter that starts
// with 1, so the first eviction of a kind would trigger no alert. Therefore the expected outcomes
// of signals with a threshold start with 0.
func (w *families) outcomes(v *Vec, now *Now) {
	name, written := w.begin("evictions_total"), map[[4]string]bool{}
	sample := func(n float64, labels []string) {
		w.Sample(name, n, time.Time{}, signalLabel, labels[0], "outcome", labels[1], "qos_class",
			labels[2], "dry_run", labels[3])
	}
	v.each(func(n float64, labels []string) {
		written[[4]string(labels)] = true
		sample(n, labels)
	})
	if now == nil {
		return
	}
	outcomes := []string{"back", "notBack", "undying"}
	if now.State.DryRun {
		outcomes = []string{"dryRun"}
	}
	for i := range now.State.Signals {
		for _, outcome := range outcomes {
			for _, qos := range []string{"BestEffort", "Burstable", "Guaranteed"} {
				row := [4]string{string(now.State.Signals[i].Signal), outcome, qos,
					strconv.FormatBool(now.State.DryRun)}
				if !written[row] {
					sample(0, row[:])
				}
			}
		}
	}
}

// gate writes the decisions of the gate, some with their reasons.
func (w *families) gate(p *Parts, now *Now) {
	if now == nil || now.State.Gate == nil {
		return
	}
	g := now.State.Gate
	name := w.begin("gate_decisions_total")
	sample := func(decision, reason string, n uint64) {
		w.Sample(name, float64(n), time.Time{}, "decision", decision, "reason", reason)
	}
	sample("admitted", "", g.Admitted)
	sample("held_off", "", g.HeldOff)
	sample("unknown", "", g.Unknown)
	for _, d := range []struct {
		decision string
		reasons  func() map[string]uint64
	}{{"observed", p.Observed}, {"refused", p.Refused}} {
		reasons := d.reasons()
		for _, reason := range sorted(reasons) {
			sample(d.decision, reason, reasons[reason])
		}
	}
	name = w.begin("preemptions_total")
	w.Sample(name, float64(g.PreemptFailed), time.Time{}, "outcome", "failed")
	w.Sample(name, float64(g.Preempted), time.Time{}, "outcome", "made")
}

func (w *families) looks(p *Parts) {
	w.histogram(w.begin("look_delay_seconds"), p.Looks.Delay)
	name := w.begin("looks_total")
	for _, k := range []struct {
		kind string
		of   *Counter
	}{{"cheap", &p.Looks.Cheap}, {"full", &p.Looks.Full}, {"slow", &p.Looks.Slow},
		{"victims", &p.Looks.Victims}} {
		w.Sample(name, float64(k.of.Value()), time.Time{}, "kind", k.kind)
	}
	name = w.begin("wakeups_total")
	for _, k := range []struct {
		source string
		of     *Counter
	}{
		{"cgroup.events", &p.Wakes.CgroupEvents}, {"memory.events", &p.Wakes.MemoryEvents},
		{"memory.pressure", &p.Wakes.Pressure},
		{"pids.events", &p.Wakes.PIDsEvents},
	} {
		w.Sample(name, float64(k.of.Value()), time.Time{}, "source", k.source)
	}
}

// mode writes mode_info.
func (w *families) mode(now *Now, s *api.State) {
	w.Sample(w.begin("mode_info"), 1, time.Time{}, "beside_kubelet", strconv.FormatBool(s.Kubelet),
		"disk", s.Disk, "gc", now.GC,
		"dry_run", strconv.FormatBool(s.DryRun), "pods", now.Pods)
}
