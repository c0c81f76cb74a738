package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"jettison/api"
)

// NewHandler returns a log handler that passes each line to next. It also keeps those of level info
// and above in r, independent of the level of next.
func NewHandler(r *Ring, next slog.Handler) slog.Handler { return handler{r, next} }

type handler struct {
	ring *Ring
	next slog.Handler
}

// Enabled reports whether a line is kept or logged.
func (h handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.next.Enabled(ctx, l)
}

// Handle keeps the line and passes it on.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.ring.add(line(&r))
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs affects the log only: the agent gives each line all its fields.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.ring, h.next.WithAttrs(attrs)}
}

// WithGroup affects the log only.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.ring, h.next.WithGroup(name)}
}

// Append appends an event of a Batch as a line of JSON.
func Append(to []byte, seq uint64, line []byte) []byte {
	to = append(to, `{"seq":`...)
	to = strconv.AppendUint(to, seq, 10)
	to = append(to, ',')
	return append(append(to, line...), '\n')
}

// Lost returns the line of the event that reports dropped events: those after the number after, up
// to the one before first, which is the first that is kept.
func Lost(now time.Time, after, first uint64) []byte {
	record := slog.NewRecord(now, slog.LevelWarn, "events lost", 0)
	record.Add("since", after)
	return Append(nil, first-1, encode(&record, api.EventLost, true))
}

// line encodes a log line as an event, without its seq.
func line(r *slog.Record) []byte {
	kind := kindOf(r)
	b := encode(r, kind, true)
	if len(b) > maxLine {
		b = encode(r, kind, false)
	}
	return b
}

// kindOf returns the event kind that a log line has as an attribute, or EventAgent.
func kindOf(r *slog.Record) api.EventKind {
	kind := api.EventAgent
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != api.LogKind {
			return true
		}
		kind = api.EventKind(a.Value.String())
		return false
	})
	return kind
}

func encode(r *slog.Record, kind api.EventKind, fields bool) []byte {
	b := append(make([]byte, 0, 512), `"time":`...)
	b = appendJSON(b, r.Time)
	b = append(b, `,"kind":`...)
	b = appendJSON(b, kind)
	b = append(b, `,"level":`...)
	b = appendJSON(b, strings.ToLower(r.Level.String()))
	b = append(b, `,"message":`...)
	b = appendJSON(b, r.Message[:min(len(r.Message), maxLine/2)])
	if fields {
		next := `,"fields":{`
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == api.LogKind {
				return true
			}
			b = append(b, next...)
			b = append(appendJSON(b, a.Key), ':')
			b = appendJSON(b, plain(a.Value))
			next = ","
			return true
		})
		if next == "," {
			b = append(b, '}')
		}
	} else {
		b = append(b, `,"fields":{"tooLong":true}`...)
	}
	return append(b, '}')
}

// plain returns a value that JSON can represent: errors and durations as text, as in the log.
func plain(v slog.Value) any {
	switch x := v.Resolve().Any().(type) {
	case time.Duration:
		return x.String()
	case json.Marshaler:
		return x
	case error:
		return x.Error()
	default:
		return x
	}
}

func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		text, _ = json.Marshal(fmt.Sprint(v)) // cannot fail
	}
	return append(b, text...)
}
