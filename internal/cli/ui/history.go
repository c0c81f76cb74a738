package ui

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"jettison/api"
	"jettison/stats"
)

// Bounds of the history: one sample a second for an hour.
const (
	maxSamples = 3600
	maxSignals = 32
)

// maxSkew is the largest step back of the agent's clock that is ignored. After a larger step the
// clock was set, and a new history begins.
const maxSkew = 5 * time.Second

// history holds samples of signals, by the agent's clock. A missing value is a gap: the agent was
// unreachable, or could not observe the signal.
type history struct {
	signals []stats.Signal // order of the values; append-only
	samples []sample       // oldest first
	dropped uint64         // number of samples dropped before samples[0]
	epoch   uint64         // changes when a new history begins
}

// sample holds the values of one look.
type sample struct {
	at     int64               // milliseconds since 1970
	values []stats.Opt[uint64] // in the order of history.signals; may be shorter
}

// add adds a sample of a state. It ignores a state that is not newer than the last sample.
func (h *history) add(s *api.State) {
	at := s.Time.UnixMilli()
	if n := len(h.samples); n > 0 && at <= h.samples[n-1].at {
		if h.samples[n-1].at-at < maxSkew.Milliseconds() {
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

// gap adds a gap after the last sample.
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

// next returns the number of the next sample.
func (h *history) next() uint64 { return h.dropped + uint64(len(h.samples)) }

// samplesFrom returns the samples from number from on as JSON: the signals, and for each sample its
// time and values, null if unknown. Later answers may have more signals, in the same order.
func (h *history) samplesFrom(from uint64) []byte {
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
