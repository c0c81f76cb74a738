package ui

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/cli/status"
)

// Bounds of what is kept for browsers.
const (
	maxRecords = 64
	maxEvents  = 100      // of the gate, of garbage, and of all kinds
	maxEvent   = 16 << 10 // bytes; of one with more the fields are left out
)

// Parts of what is known. Each is sent whole when it has changed.
const (
	partAgent     = "agent"     // does it answer?
	partState     = "state"     // what it knows now, and what is wrong
	partOutlook   = "outlook"   // who would go next
	partEvictions = "evictions" // records
	partEvents    = "events"    // of the gate, of garbage, and the last of all kinds
)

// board is what is known of the agent, as JSON. It is safe for concurrent use, and no browser holds
// up who writes.
type board struct {
	mu      sync.Mutex
	parts   map[string]piece
	version uint64        // of the newest piece
	more    chan struct{} // closed at the next change
	history history
	agent   agentPart
	records []*api.Record // by ID, so by when they began
	events  eventsPart
	stale   bool // the piece of events is older than these
	viewers int
	arrived chan struct{} // one slot: a browser has come
}

// piece is a part as it is now. Its text never changes.
type piece struct {
	version uint64
	text    []byte
}

// agentPart is whether the agent answers.
type agentPart struct {
	Node    string     `json:"node"`
	UI      string     `json:"ui"`    // version of this program
	Agent   string     `json:"agent"` // of the agent; empty: not known yet
	Socket  string     `json:"socket"`
	Answers bool       `json:"answers"`
	Since   *time.Time `json:"since,omitempty"` // that it does, or does not; nil: it was not asked yet
	Error   string     `json:"error,omitempty"` // why it does not
}

// statePart is what the agent knows now.
type statePart struct {
	State    *api.State       `json:"state"`
	Problems []status.Problem `json:"problems"`
}

// eventsPart are events as JSON, oldest first.
type eventsPart struct {
	Gate    []json.RawMessage `json:"gate"`
	Garbage []json.RawMessage `json:"garbage"`
	All     []json.RawMessage `json:"all"`
}

func newBoard(o Options) *board {
	b := &board{
		parts: map[string]piece{}, more: make(chan struct{}), arrived: make(chan struct{}, 1),
		agent: agentPart{Node: o.Node, UI: o.Version, Socket: o.Socket},
	}
	b.set(partAgent, b.agent)
	return b
}

// set has a part sent. mu is held, or nobody else knows the board yet.
func (b *board) set(part string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // what was read as JSON can be written
	}
	if old, had := b.parts[part]; had && string(old.text) == string(text) {
		return
	}
	b.version++
	b.parts[part] = piece{b.version, text}
	b.changed()
}

func (b *board) changed() {
	close(b.more)
	b.more = make(chan struct{})
}

// answered takes what the agent said of itself.
func (b *board) answered(now time.Time, s *api.State) {
	problems := status.Problems(s)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.agent.Answers {
		b.agent.Answers, b.agent.Since, b.agent.Error = true, &now, ""
	}
	b.agent.Agent = s.Version
	b.set(partAgent, b.agent)
	b.set(partState, statePart{s, problems})
	b.history.add(s)
	b.changed()
}

// away takes that the agent did not answer.
func (b *board) away(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agent.Answers || b.agent.Since == nil {
		b.agent.Answers, b.agent.Since = false, &now
		b.history.gap()
	}
	b.agent.Error = output.OneLine(err.Error())
	b.set(partAgent, b.agent)
}

// outlook takes who would go next; nil: the agent does not tell.
func (b *board) outlook(o *api.Outlook) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(partOutlook, o)
}

// recorded takes the last evictions. Those that the agent does not have any more stay.
func (b *board) recorded(records []*api.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byID := map[string]*api.Record{}
	for _, r := range slices.Concat(b.records, records) {
		byID[r.ID] = r
	}
	b.records = slices.SortedFunc(maps.Values(byID),
		func(x, y *api.Record) int { return strings.Compare(x.ID, y.ID) })
	b.records = b.records[max(0, len(b.records)-maxRecords):]
	b.set(partEvictions, api.RecordsAnswer{Records: b.records})
}

// running reports whether a record is of an eviction that is not over.
func (b *board) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.records,
		func(r *api.Record) bool { return r.Outcome == api.OutcomeRunning })
}

// happened takes events.
func (b *board) happened(e api.Event) {
	text, err := json.Marshal(e)
	if err != nil || len(text) > maxEvent {
		e.Message, e.Fields = e.Message[:min(len(e.Message), maxEvent/8)], map[string]any{"tooLong": true}
		if text, err = json.Marshal(e); err != nil {
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case api.EventGate:
		b.events.Gate = lastOf(b.events.Gate, text)
	case api.EventGarbage:
		b.events.Garbage = lastOf(b.events.Garbage, text)
	}
	b.events.All = lastOf(b.events.All, text)
	b.stale = true
	b.changed()
}

// encodeEvents makes the piece of events, once for a burst of them. mu is held.
func (b *board) encodeEvents() {
	if b.stale {
		b.stale = false
		b.set(partEvents, b.events)
	}
}

// lastOf are the last of events and one more.
func lastOf(events []json.RawMessage, one json.RawMessage) []json.RawMessage {
	return append(slices.Clone(events[max(0, len(events)-maxEvents+1):]), one)
}

// viewed counts the browsers that look.
func (b *board) viewed(more int) {
	b.mu.Lock()
	b.viewers += more
	b.mu.Unlock()
	if more > 0 {
		select {
		case b.arrived <- struct{}{}:
		default:
		}
	}
}

// seen reports whether a browser looks.
func (b *board) seen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.viewers > 0
}
