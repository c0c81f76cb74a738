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

// Bounds of the data kept for browsers.
const (
	maxRecords = 64
	maxEvents  = 100      // each: of the gate, of garbage collection, of all kinds
	maxEvent   = 16 << 10 // bytes of an event; the fields of a larger one are dropped
)

// Parts of the data. A part is sent whole when it has changed.
const (
	partAgent     = "agent"     // whether the agent answers
	partState     = "state"     // the agent's state and problems
	partOutlook   = "outlook"   // the ranking of pods
	partEvictions = "evictions" // records
	partEvents    = "events"    // last events of the gate, of garbage collection, and of all kinds
)

// board holds the data about the agent as JSON. It is safe for concurrent use. Browsers do not
// block writers.
type board struct {
	mu      sync.Mutex
	parts   map[string]piece
	version uint64        // of the newest piece
	change  chan struct{} // closed at the next change
	history history
	agent   agentPart
	outlook outlookPart
	records []*api.Record // sorted by ID, which is by start
	events  eventsPart
	stale   bool // the piece of events lacks the last events
	// number of browsers that show the page, without those where it is hidden
	viewers    int
	attendedAt time.Time     // when the last of them connected
	arrived    chan struct{} // one slot: a browser has connected
	attended   chan struct{} // one slot: a browser that shows the page has connected
}

// piece is the current content of a part. Its text is immutable.
type piece struct {
	version uint64
	text    []byte
}

// agentPart reports whether the agent answers.
type agentPart struct {
	Node    string     `json:"node"`
	UI      string     `json:"ui"`    // version of jettison ui
	Agent   string     `json:"agent"` // version of the agent; empty: unknown
	Socket  string     `json:"socket"`
	Answers bool       `json:"answers"`
	Since   *time.Time `json:"since,omitempty"` // time of the last change of Answers; nil: not queried yet
	Error   string     `json:"error,omitempty"` // error of the last query
}

// outlookPart is the last ranking of pods.
type outlookPart struct {
	Outlook *api.Outlook `json:"outlook"`         // nil: none yet, or the agent provides none
	Error   string       `json:"error,omitempty"` // error of the last query; Outlook is older
}

// statePart is the agent's state with its problems.
type statePart struct {
	State    *api.State       `json:"state"`
	Problems []status.Problem `json:"problems"`
}

// eventsPart holds events as JSON, oldest first.
type eventsPart struct {
	Gate    []json.RawMessage `json:"gate"`
	Garbage []json.RawMessage `json:"garbage"`
	All     []json.RawMessage `json:"all"`
}

func newBoard(o Options) *board {
	b := &board{
		parts: map[string]piece{}, change: make(chan struct{}), arrived: make(chan struct{}, 1),
		attended: make(chan struct{}, 1),
		agent:    agentPart{Node: o.Node, UI: o.Version, Socket: o.Socket},
	}
	b.set(partAgent, b.agent)
	return b
}

// set replaces a part, which is then sent to browsers. The caller holds mu, or owns the board
// alone.
func (b *board) set(part string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // impossible: v was decoded from JSON
	}
	if old, ok := b.parts[part]; ok && string(old.text) == string(text) {
		return
	}
	b.version++
	b.parts[part] = piece{b.version, text}
	b.notify()
}

// notify wakes the streams. The caller holds mu.
func (b *board) notify() {
	close(b.change)
	b.change = make(chan struct{})
}

// setState stores a state of the agent, which therefore answers.
func (b *board) setState(now time.Time, s *api.State) {
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
	b.notify()
}

// setUnreachable stores the error of a query to the agent.
func (b *board) setUnreachable(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agent.Answers || b.agent.Since == nil {
		b.agent.Answers, b.agent.Since = false, &now
		b.history.gap()
	}
	b.agent.Error = output.OneLine(err.Error())
	b.set(partAgent, b.agent)
}

// setOutlook stores the ranking of pods; nil: the agent does not provide one.
func (b *board) setOutlook(o *api.Outlook) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outlook = outlookPart{Outlook: o}
	b.set(partOutlook, b.outlook)
}

// setOutlookError stores why the last ranking is not replaced.
func (b *board) setOutlookError(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outlook.Error = output.OneLine(err.Error())
	b.set(partOutlook, b.outlook)
}

// addRecords merges the last records of the agent. Records that the agent has dropped are kept.
func (b *board) addRecords(records []*api.Record) {
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

// evictionInProgress reports whether a record has no outcome yet.
func (b *board) evictionInProgress() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.records,
		func(r *api.Record) bool { return r.Outcome == api.OutcomeRunning })
}

// addEvent stores an event.
func (b *board) addEvent(e api.Event) {
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
		b.events.Gate = appendLast(b.events.Gate, text)
	case api.EventGarbage:
		b.events.Garbage = appendLast(b.events.Garbage, text)
	}
	b.events.All = appendLast(b.events.All, text)
	b.stale = true
	b.notify()
}

// encodeEvents updates the piece of events, once for a burst of them. The caller holds mu.
func (b *board) encodeEvents() {
	if b.stale {
		b.stale = false
		b.set(partEvents, b.events)
	}
}

// appendLast returns the last events with one more, at most maxEvents.
func appendLast(events []json.RawMessage, event json.RawMessage) []json.RawMessage {
	return append(slices.Clone(events[max(0, len(events)-maxEvents+1):]), event)
}

// connect records that a browser has connected, and returns a function for its end. hidden: the
// browser does not show the page.
func (b *board) connect(now time.Time, hidden bool) (disconnect func()) {
	signal(b.arrived)
	if hidden {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.viewers++
	b.attendedAt = now
	signal(b.attended)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.viewers--
	}
}

// signal fills a channel with one slot.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Intervals between two queries for the ranking, for which the agent reads all pods. A page that is
// used connects again within attention.
const (
	attention    = 10 * time.Minute // without a connection: the page may be forgotten
	idleInterval = 10 * time.Second // from then on
)

// outlookInterval returns the interval between two queries for the ranking; 0: no browser shows it.
func (b *board) outlookInterval(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.viewers == 0:
		return 0
	case now.Sub(b.attendedAt) < attention:
		return pollInterval
	}
	return idleInterval
}
