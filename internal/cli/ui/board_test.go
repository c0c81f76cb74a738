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

// stateAt returns an agent's state; available is of memory, negative: not observed.
func stateAt(at time.Time, available int64) *api.State {
	return &api.State{Time: at, Version: "v1", Signals: []api.SignalState{
		{Signal: stats.SignalMemoryAvailable, Observed: available >= 0, Available: uint64(max(available, 0)), Capacity: 1000},
		{Signal: stats.SignalPIDAvailable, Observed: true, Available: 7},
	}}
}

// An unknown value is a gap, not zero; samples older than an hour are dropped.
func TestHistory(t *testing.T) {
	var h history
	h.add(stateAt(noon, 500))
	h.add(stateAt(noon, 400)) // ignored: not newer
	h.add(stateAt(noon.Add(time.Second), -1))
	h.gap()
	h.gap()
	h.add(stateAt(noon.Add(9*time.Second), 0))
	const want = `{"most":3600,"signals":["memory.available","pid.available"],"samples":[` +
		`[1784548800000,500,7],[1784548801000,null,7],[1784548801001],[1784548809000,0,7]]}`
	if got := string(h.samplesFrom(0)); got != want {
		t.Errorf("history is %s\nwant %s", got, want)
	}
	if got := string(h.samplesFrom(3)); !strings.HasSuffix(got, `"samples":[[1784548809000,0,7]]}`) {
		t.Errorf("samples from number 3 on = %s, want the last one", got)
	}
	if got := string(h.samplesFrom(h.next())); !strings.HasSuffix(got, `"samples":[]}`) || !json.Valid([]byte(got)) {
		t.Errorf("samples after the last = %s, want none", got)
	}
	for i := range 2 * maxSamples {
		h.add(stateAt(noon.Add(time.Minute+time.Duration(i)*time.Second), 1))
	}
	if len(h.samples) != maxSamples || h.next() != 2*maxSamples+4 {
		t.Errorf("history has %d samples, next %d; want %d, next %d", len(h.samples), h.next(), maxSamples, 2*maxSamples+4)
	}
	// A clock that was set back begins a new history.
	h.add(stateAt(noon, 3))
	if len(h.samples) != 1 || h.epoch != 1 {
		t.Errorf("after the clock was set back: %d samples of epoch %d, want 1 of epoch 1", len(h.samples), h.epoch)
	}
}

// The history is bounded, even if the agent reports new signals repeatedly.
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
		t.Errorf("history has %d signals and %d values, want %d each", len(h.signals), len(h.samples[9].values), maxSignals)
	}
}

// names returns the event names of frames.
func names(frames []byte) (out []string) {
	for line := range strings.Lines(string(frames)) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

// A browser gets all data once, then changes; a slow one gets the newest content of each part.
func TestFramesHaveOnlyChanges(t *testing.T) {
	b := newBoard(Options{Node: "w1"})
	var c cursor
	expect := func(what string, want ...string) {
		t.Helper()
		frames, _ := b.frames(&c)
		if got := names(frames); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: frames %v, want %v", what, got, want)
		}
	}
	expect("at first", "agent", "history")
	expect("nothing new")
	b.setUnreachable(noon, errors.New("no socket"))
	b.setUnreachable(noon.Add(time.Second), errors.New("no socket"))
	expect("agent unreachable", "agent")
	_, change := b.frames(&c)
	b.setState(noon, stateAt(noon, 1))
	<-change
	b.setState(noon, stateAt(noon.Add(time.Second), 2))
	b.setState(noon, stateAt(noon.Add(2*time.Second), 3))
	frames, _ := b.frames(&c)
	if got := names(frames); fmt.Sprint(got) != "[agent state samples]" || strings.Count(string(frames), `"available":3`) != 1 {
		t.Errorf("frames of a slow browser = %v, want agent, state and samples once:\n%s", got, frames)
	}
	if !strings.Contains(string(frames), `[1784548800000,1,7],[1784548801000,2,7],[1784548802000,3,7]`) {
		t.Errorf("a slow browser misses samples: %s", frames)
	}
	b.addEvent(api.Event{Seq: 1, Kind: api.EventGate, Message: "a pod is refused"})
	b.addEvent(api.Event{Seq: 2, Kind: api.EventGarbage, Message: "garbage collected"})
	expect("events", "events")
	b.addRecords([]*api.Record{{ID: "b", Outcome: api.OutcomeRunning}})
	b.addRecords([]*api.Record{{ID: "b", Outcome: api.OutcomeRunning}})
	expect("records", "evictions")
	b.setOutlook(&api.Outlook{})
	expect("outlook", "outlook")
	b.setState(noon, stateAt(noon.Add(-time.Hour), 3))
	expect("the clock was set back", "state", "history")
}

// The board keeps records after the agent restarts without them, each once, and at most maxRecords.
func TestRecordsAreKept(t *testing.T) {
	b := newBoard(Options{})
	b.addRecords([]*api.Record{{ID: "a", Outcome: api.OutcomeRunning}, {ID: "b", Outcome: api.OutcomeBack}})
	if !b.evictionInProgress() {
		t.Error("evictionInProgress = false, want true for a running record")
	}
	b.addRecords(nil)
	b.addRecords([]*api.Record{{ID: "a", Outcome: api.OutcomeBack}})
	if len(b.records) != 2 || b.records[0].ID != "a" || b.evictionInProgress() {
		t.Errorf("records = %+v, want a and b without one in progress", b.records)
	}
	for i := range 2 * maxRecords {
		b.addRecords([]*api.Record{{ID: fmt.Sprintf("c%04d", i)}})
	}
	if len(b.records) != maxRecords || b.records[maxRecords-1].ID != "c0127" {
		t.Errorf("board has %d records, last %s; want %d, last c0127", len(b.records), b.records[len(b.records)-1].ID, maxRecords)
	}
}

// A name that a tenant chose reaches the browser as bounded JSON on one line, without characters of markup.
func TestHostileNames(t *testing.T) {
	const name = "</script><img src=x onerror=alert(1)>\n\ndata: {}\r\nevent: agent\u2028\x00"
	b := newBoard(Options{Node: name})
	b.setUnreachable(noon, errors.New(name))
	b.addRecords([]*api.Record{{ID: name, Pod: api.Victim{Name: name}, Reason: name}})
	b.setOutlook(&api.Outlook{Thresholds: []api.ThresholdOutlook{{Threshold: name, Ranking: []api.RankedPod{{Candidate: api.Candidate{Pod: name}}}}}})
	state := stateAt(noon, 1)
	state.InProgress = []api.EvictionInProgress{{Pod: stats.PodReference{Name: name}, Message: name}}
	state.Errors = map[string]string{name: name}
	b.setState(noon, state)
	for range 2 * maxEvents {
		b.addEvent(api.Event{Kind: api.EventGate, Message: name, Fields: map[string]any{name: strings.Repeat(name, 9999)}})
	}
	frames, _ := b.frames(&cursor{})
	if bytes.ContainsAny(frames, "<>\r\x00\u2028") {
		t.Error("frames contain an unescaped character of markup or of lines")
	}
	for line := range strings.Lines(string(frames)) {
		line = strings.TrimSuffix(line, "\n")
		data, isData := strings.CutPrefix(line, "data: ")
		if isData && !json.Valid([]byte(data)) || !isData && line != "" && !strings.HasPrefix(line, "event: ") {
			t.Errorf("unexpected line in the frames: %.100s", line)
		}
	}
	if len(b.events.All) != maxEvents || len(b.events.Gate) != maxEvents || len(frames) > 1<<20 {
		t.Errorf("board has %d events in %d bytes of frames, want %d events in at most 1 MiB", len(b.events.All), len(frames), maxEvents)
	}
}
