package ui

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"jettison/api"
	"jettison/stats"
)

// Bounds of the history: an hour, a sample a second.
const (
	maxSamples = 3600
	maxSignals = 32
)

// backwards is how far the agent's clock may seem to go back; beyond it the clock was set, and what
// was before cannot be drawn with what comes.
const backwards = 5 * time.Second

// history is what signals were, by the agent's clock. A sample that has no value is a gap: the
// agent was away, or could not read it.
type history struct {
	signals []stats.Signal // the order of values; it only grows
	samples []sample       // oldest first
	dropped uint64         // before the first one: the number of samples[0]
	epoch   uint64         // another one: what was before does not count any more
}

// sample is what was seen at one moment.
type sample struct {
	at     int64               // milliseconds since 1970
	values []stats.Opt[uint64] // by history.signals, as many as there were then
}

// add adds what the agent says. One that is not newer than the last is the same.
func (h *history) add(s *api.State) {
	at := s.Time.UnixMilli()
	if n := len(h.samples); n > 0 && at <= h.samples[n-1].at {
		if h.samples[n-1].at-at < backwards.Milliseconds() {
			return
		}
		h.samples, h.dropped, h.epoch = nil, 0, h.epoch+1
	}
	one := sample{at: at, values: make([]stats.Opt[uint64], len(h.signals), len(h.signals)+
		len(s.Signals))}
	for i := range s.Signals {
		signal := &s.Signals[i]
		if !signal.Observed {
			continue
		}
		index := slices.Index(h.signals, signal.Signal)
		if index < 0 && len(h.signals) == maxSignals {
			continue
		}
		if index < 0 {
			index = len(h.signals)
			h.signals = append(h.signals, signal.Signal)
			one.values = append(one.values, stats.Opt[uint64]{})
		}
		one.values[index] = stats.Opt[uint64]{V: signal.Available, OK: true}
	}
	h.push(one)
}

// gap says that nothing is known from here on.
func (h *history) gap() {
	if n := len(h.samples); n > 0 && len(h.samples[n-1].values) > 0 {
		h.push(sample{at: h.samples[n-1].at + 1})
	}
}

func (h *history) push(s sample) {
	h.samples = append(h.samples, s)
	if over := len(h.samples) - maxSamples; over > 0 {
		h.samples, h.dropped = h.samples[over:], h.dropped+uint64(over)
	}
}

// next is the number of the sample that comes next.
func (h *history) next() uint64 { return h.dropped + uint64(len(h.samples)) }

// after is what came from a sample on, as JSON: the signals, and of each sample its time and their
// values, null for what is not known. More signals than before may stand in it, never others.
func (h *history) after(from uint64) []byte {
	names, _ := json.Marshal(h.signals) // cannot fail
	out := append([]byte(`{"most":`), strconv.Itoa(maxSamples)...)
	out = append(append(out, `,"signals":`...), names...)
	out = append(out, `,"samples":[`...)
	for i, s := range h.samples[min(max(from, h.dropped)-h.dropped, uint64(len(h.samples))):] {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(append(out, '['), s.at, 10)
		for _, v := range s.values {
			if !v.OK {
				out = append(out, ",null"...)
				continue
			}
			out = strconv.AppendUint(append(out, ','), v.V, 10)
		}
		out = append(out, ']')
	}
	return append(out, "]}"...)
}
