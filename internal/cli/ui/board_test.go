package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/stats"
)

var noon = time.Date(2026, 7, 20, 12, 0, 0, 0, time.UTC)

// stateAt is what an agent says at a time; available: of memory, negative: not observed.
func stateAt(at time.Time, available int64) *api.State {
	return &api.State{Time: at, Version: "v1", Signals: []api.SignalState{
		{Signal: stats.SignalMemoryAvailable, Observed: available >= 0, Available: uint64(max(available, 0)), Capacity: 1000},
		{Signal: stats.SignalPIDAvailable, Observed: true, Available: 7},
	}}
}

// What is not known is a gap, not zero; what is older than an hour goes.
func TestHistory(t *testing.T) {
	var h history
	h.add(stateAt(noon, 500))
	h.add(stateAt(noon, 400)) // the same, for it is not newer
	h.add(stateAt(noon.Add(time.Second), -1))
	h.gap()
	h.gap()
	h.add(stateAt(noon.Add(9*time.Second), 0))
	const want = `{"most":3600,"signals":["memory.available","pid.available"],"samples":[` +
		`[1784548800000,500,7],[1784548801000,null,7],[1784548801001],[1784548809000,0,7]]}`
	if got := string(h.after(0)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := string(h.after(3)); !strings.HasSuffix(got, `"samples":[[1784548809000,0,7]]}`) {
		t.Errorf("from the last on: %s", got)
	}
	if got := string(h.after(h.next())); !strings.HasSuffix(got, `"samples":[]}`) || !json.Valid([]byte(got)) {
		t.Errorf("nothing new: %s", got)
	}
	for i := range 2 * maxSamples {
		h.add(stateAt(noon.Add(time.Minute+time.Duration(i)*time.Second), 1))
	}
	if len(h.samples) != maxSamples || h.next() != 2*maxSamples+4 {
		t.Errorf("%d samples, next %d", len(h.samples), h.next())
	}
	// A clock that is set back begins a new history.
	h.add(stateAt(noon, 3))
	if len(h.samples) != 1 || h.epoch != 1 {
		t.Errorf("%d samples of epoch %d", len(h.samples), h.epoch)
	}
}

// An agent that names ever new signals does not fill memory.
func TestHistoryIsBounded(t *testing.T) {
	var h history
	for i := range 10 {
		s := &api.State{Time: noon.Add(time.Duration(i) * time.Second)}
		for k := range maxSignals {
			s.Signals = append(s.Signals, api.SignalState{Signal: stats.Signal(fmt.Sprint(i, k)), Observed: true})
		}
		h.add(s)
	}
	if len(h.signals) != maxSignals || len(h.samples[9].values) != maxSignals {
		t.Errorf("%d signals, %d values", len(h.signals), len(h.samples[9].values))
	}
}

// events are the names of frames.
func names(frames []byte) (out []string) {
	for line := range strings.Lines(string(frames)) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

// A browser is sent everything once, then what has changed; one that is slow gets the newest and misses what was between.
func TestBrowsersAreSentWhatHasChanged(t *testing.T) {
	b := newBoard(Options{Node: "w1"})
	var c cursor
	expect := func(what string, want ...string) {
		t.Helper()
		frames, _ := b.frames(&c)
		if got := names(frames); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("at first", "agent", "history")
	expect("nothing new")
	b.away(noon, errors.New("no socket"))
	b.away(noon.Add(time.Second), errors.New("no socket"))
	expect("away", "agent")
	_, more := b.frames(&c)
	b.answered(noon, stateAt(noon, 1))
	<-more
	b.answered(noon, stateAt(noon.Add(time.Second), 2))
	b.answered(noon, stateAt(noon.Add(2*time.Second), 3))
	frames, _ := b.frames(&c)
	if got := names(frames); fmt.Sprint(got) != "[agent state samples]" || strings.Count(string(frames), `"available":3`) != 1 {
		t.Errorf("slow: %v\n%s", got, frames)
	}
	if !strings.Contains(string(frames), `[1784548800000,1,7],[1784548801000,2,7],[1784548802000,3,7]`) {
		t.Errorf("no sample is missed: %s", frames)
	}
	b.happened(api.Event{Seq: 1, Kind: api.EventGate, Message: "pod rejected"})
	b.happened(api.Event{Seq: 2, Kind: api.EventGarbage, Message: "garbage collected"})
	expect("events", "events")
	b.recorded([]*api.Record{{ID: "b", Outcome: api.OutcomeRunning}})
	b.recorded([]*api.Record{{ID: "b", Outcome: api.OutcomeRunning}})
	expect("records", "evictions")
	b.outlook(&api.Outlook{})
	expect("outlook", "outlook")
	b.answered(noon, stateAt(noon.Add(-time.Hour), 3))
	expect("the clock was set back", "state", "history")
}

// Records are kept over a restart of an agent that has none, each once, and bounded.
func TestRecordsAreKept(t *testing.T) {
	b := newBoard(Options{})
	b.recorded([]*api.Record{{ID: "a", Outcome: api.OutcomeRunning}, {ID: "b", Outcome: api.OutcomeBack}})
	if !b.running() {
		t.Error("one is running")
	}
	b.recorded(nil)
	b.recorded([]*api.Record{{ID: "a", Outcome: api.OutcomeBack}})
	if len(b.records) != 2 || b.records[0].ID != "a" || b.running() {
		t.Errorf("%+v", b.records)
	}
	for i := range 2 * maxRecords {
		b.recorded([]*api.Record{{ID: fmt.Sprintf("c%04d", i)}})
	}
	if len(b.records) != maxRecords || b.records[maxRecords-1].ID != "c0127" {
		t.Errorf("%d, last %s", len(b.records), b.records[len(b.records)-1].ID)
	}
}

// What a tenant has named is one line of JSON to a browser, without a character that markup begins with, and bounded.
func TestHostileNames(t *testing.T) {
	const name = "</script><img src=x onerror=alert(1)>\n\ndata: {}\r\nevent: agent\u2028\x00"
	b := newBoard(Options{Node: name})
	b.away(noon, errors.New(name))
	b.recorded([]*api.Record{{ID: name, Pod: api.Victim{Name: name}, Reason: name}})
	b.outlook(&api.Outlook{Thresholds: []api.ThresholdOutlook{{Threshold: name, Ranking: []api.RankedPod{{Candidate: api.Candidate{Pod: name}}}}}})
	state := stateAt(noon, 1)
	state.Underway = []api.UnderwayState{{Pod: stats.PodReference{Name: name}, Message: name}}
	state.Errors = map[string]string{name: name}
	b.answered(noon, state)
	for range 2 * maxEvents {
		b.happened(api.Event{Kind: api.EventGate, Message: name, Fields: map[string]any{name: strings.Repeat(name, 9999)}})
	}
	frames, _ := b.frames(&cursor{})
	if bytes.ContainsAny(frames, "<>\r\x00\u2028") {
		t.Error("a character that means something is not escaped")
	}
	for line := range strings.Lines(string(frames)) {
		line = strings.TrimSuffix(line, "\n")
		data, isData := strings.CutPrefix(line, "data: ")
		if isData && !json.Valid([]byte(data)) || !isData && line != "" && !strings.HasPrefix(line, "event: ") {
			t.Errorf("%.100s", line)
		}
	}
	if len(b.events.All) != maxEvents || len(b.events.Gate) != maxEvents || len(frames) > 1<<20 {
		t.Errorf("%d events, %d bytes", len(b.events.All), len(frames))
	}
}
