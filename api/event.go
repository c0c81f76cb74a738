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

// Event is something that the agent found, decided or did: a line of its log, as GET /v1/events has
// it.
type Event struct {
	// Seq grows with each event, over restarts of the agent too, by no fixed step.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	Kind EventKind `json:"kind"`
	// Level is info, warn or error.
	Level   string         `json:"level"`
	Message string         `json:"message"` // the log's, which stays the same from version to version
	Fields  map[string]any `json:"fields,omitempty"`
}

// EventKind says what an event is about.
type EventKind string

// Kinds of events.
const (
	EventAgent     EventKind = "agent"     // itself: what it starts with, and does without
	EventCondition EventKind = "condition" // a condition of the node, or the breaker
	EventEviction  EventKind = "eviction"
	EventGate      EventKind = "gate"    // pods that come, and room for them
	EventGarbage   EventKind = "garbage" // garbage collection and logs
	EventMemory    EventKind = "memory"  // cold memory that pods gave back, and what pods' cgroups say
	EventPod       EventKind = "pod"     // a pod or its object
	EventRuntime   EventKind = "runtime"
	EventSource    EventKind = "source" // what can be read, or cannot
	// EventLost is no line of the log: events between the one that was asked for and the next one are
	// not kept any more.
	EventLost EventKind = "lost"
)

// Messages of events that other programs go by. Each stays as it is.
const (
	MessageGarbageFails = "not all garbage could be collected" // its fields say why: error, problems
)

// EventOptions of Client.Events.
type EventOptions struct {
	Since  uint64 // only what came after the event with this Seq; 0: all that the agent still has
	Follow bool   // wait for more, until ctx ends
}

// maxEvent is the most that one event may have in bytes.
const maxEvent = 1 << 20

// Events hands each event to a function, the oldest first. It returns when there is none left, or,
// following, with the error by which ctx, the function or the agent ended it: the agent hangs up on
// a reader that is too slow for it, which may go on from the last Seq that it got.
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

// LogKind is the key of the log attribute that holds the kind of the event that a line becomes.
const LogKind = "eventKind"

// Attr returns the log attribute for an event of this kind. A line without one is EventAgent.
func (k EventKind) Attr() slog.Attr { return slog.String(LogKind, string(k)) }
