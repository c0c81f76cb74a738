package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"time"
)

// Event is a line of the agent's log, as served by GET /v1/events.
type Event struct {
	// Seq grows with each event, even across restarts of the agent, but not always by 1.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Kind EventKind `json:"kind"`
	// Level is info, warn or error.
	Level   string         `json:"level"`
	Message string         `json:"message"` // of the log line
	Fields  map[string]any `json:"fields,omitempty"`
}

// EventKind is the subject of an event.
type EventKind string

// Kinds of events.
const (
	EventAgent     EventKind = "agent"     // the agent itself: its start, disabled features
	EventCondition EventKind = "condition" // a condition of the node, or the breaker
	EventEviction  EventKind = "eviction"
	EventGate      EventKind = "gate"    // admission of pods, preemption for them
	EventGarbage   EventKind = "garbage" // garbage collection and logs
	EventMemory    EventKind = "memory"  // proactive reclaim, and memory events of pods' cgroups
	EventPod       EventKind = "pod"     // a pod or its object
	EventRuntime   EventKind = "runtime"
	EventSource    EventKind = "source" // a source can, or cannot, be read
	// EventLost is not a line of the log. It reports that the agent has dropped events after the
	// requested Seq and before the next event.
	EventLost EventKind = "lost"
)

// Messages of events that other programs match. They never change.
const (
	MessageGarbageFails = "not all garbage could be collected" // reason in fields error, problems
)

// EventOptions selects the events of Client.Events.
type EventOptions struct {
	Since  uint64 // only events after the one with this Seq; 0: all that the agent still has
	Follow bool   // wait for more, until ctx ends
}

// maxEvent limits the size of one event in bytes.
const maxEvent = 1 << 20

// Events calls each with every event, oldest first. Without Follow it returns after the last event.
// With Follow it returns the error of ctx, of each, or of the connection: the agent disconnects a
// slow reader, which may continue after the last Seq that it received.
func (c *Client) Events(ctx context.Context, o EventOptions, each func(Event) error) error {
	query := url.Values{}
	if o.Since > 0 {
		query.Set("since", strconv.FormatUint(o.Since, 10))
	}
	if o.Follow {
		query.Set("follow", "true")
	}
	path := PathEvents
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.lines(ctx, path, o.Follow, maxEvent, func(text []byte) error {
		var e Event
		if err := json.Unmarshal(text, &e); err != nil || e.Kind == "" {
			return malformed(errors.Join(err, fmt.Errorf("%.200q", text)))
		}
		return each(e)
	})
}

// LogKind is the key of the log attribute that holds the kind of a line's event.
const LogKind = "eventKind"

// Attr returns the log attribute for an event of this kind. A line without one is EventAgent.
func (k EventKind) Attr() slog.Attr { return slog.String(LogKind, string(k)) }
