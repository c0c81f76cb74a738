package agent

import (
	"cmp"
	"sync"
	"time"

	"jettison/eviction"
	"jettison/internal/node/metrics"
	"jettison/stats"
)

// meter writes the metrics. It is safe for concurrent use, and requests nothing from the loop
// except a State.
type meter struct {
	o         Options
	publisher *publisher
	// nil until the agent has parts; set before the loop runs, and published with its first State
	parts *metrics.Parts

	mu   sync.Mutex
	of   *publication // the source of text; nil: none was written yet
	at   time.Time    // when text was written
	text []byte
}

// metrics returns the metrics as text, which callers must not change. events is the number of
// events that slow readers lost. The text is written once for each published State, or once a
// second if the loop publishes none: writing it for each reader could take the CPU from a kill on a
// small node.
func (m *meter) metrics(events uint64) []byte {
	p := m.publisher.latest()
	if p.state == nil {
		return m.write(p, events)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.of != p || now.Sub(m.at) >= maxStateAge {
		m.of, m.at, m.text = p, now, m.write(p, events)
	}
	return m.text
}

func (m *meter) write(p *publication, events uint64) []byte {
	in := metrics.Inputs{
		Version: m.o.Version, Events: events, Proc: cmp.Or(m.o.ProcMount, "/proc"),
	}
	if m.o.LogDropped != nil {
		in.LogLines = m.o.LogDropped()
	}
	if p.state != nil {
		in.Now, in.Parts = p.now, m.parts
	}
	return metrics.Write(&in)
}

// collectCounts collects the counts of all parts, before the loop runs.
func (b *builder) collectCounts(l *loop) {
	p := &metrics.Parts{
		Looks: l.looks.Counts(), Wakes: l.wakes.Counts(), Evictions: l.evictions.Counts(),
		Reclaim: l.relief.memory.Counts(),
		Garbage: l.relief.disk.Counts(), Operations: metrics.NewHistogramVec(metrics.Kills...),
		Records: b.keeper.Dropped, Frames: b.recording.Dropped, Refused: l.gate.admission.Refused,
		Observed: l.gate.admission.Observed,
	}
	if background := l.looks.Background(); background != nil {
		p.Background = background.Sources
	}
	b.s.Client.Timed(func(method string, took time.Duration) { p.Operations.Observe(took, method) })
	b.meter.parts = p
}

// currentMetrics returns the current values for metrics that the State lacks.
func (l *loop) currentMetrics(now time.Time, ready *eviction.Ready) *metrics.Now {
	out := &metrics.Now{
		Pressure: l.looks.Node().Pressure, Met: map[stats.Signal]bool{}, Missing: map[stats.Signal]bool{},
		Pods: "off", HeldOff: l.gate.Count(now),
		Protected: l.upkeep.unknown.Protected(), GC: string(l.o.Config.GC.Resolve(l.kubelet.Found())),
	}
	for _, m := range ready.Met {
		out.Met[m.Threshold.Signal] = true
	}
	for _, t := range l.o.Config.Thresholds {
		o := l.manager.Observed(t.Signal)
		// As in eviction.Manager.Lost: the cgroup above all pods exists only with the first pod.
		if o.Gone || !o.OK && t.Signal == stats.SignalAllocatableMemoryAvailable {
			out.Missing[t.Signal] = true
		}
		capacity := o.Capacity
		if !t.Amount() {
			capacity = stats.ShareUnit
		}
		out.Thresholds = append(out.Thresholds, metrics.Threshold{
			Signal: t.Signal, Hard: t.Hard(), Limit: t.Value.Of(capacity), Known: t.Value.Quantity != nil ||
				capacity > 0,
		})
	}
	return out
}
