package eventlog

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"jettison/api"
)

// read returns the events of a ring after a sequence number, as a reader gets them.
func read(t *testing.T, r *Ring, since uint64) (out []api.Event) {
	t.Helper()
	b := r.After(since)
	for i, line := range b.Lines {
		var e api.Event
		if err := json.Unmarshal(Append(nil, b.First+uint64(i), line), &e); err != nil {
			t.Fatalf("decode an event from line %s: %v", line, err)
		}
		out = append(out, e)
	}
	return out
}

// A line of level info or above becomes an event, whatever the level of the log, with the message
// and fields of the log.
func TestLogFillsRing(t *testing.T) {
	r := NewRing(time.Now())
	var text strings.Builder
	log := slog.New(NewHandler(r, slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Debug("nothing")
	log.Info("condition", api.EventCondition.Attr(), "condition", "MemoryPressure", "status", true, "since", time.Second)
	log.Warn("not kept", "error", errors.New("full"))
	got := read(t, r, 0)
	if len(got) != 2 || strings.Contains(text.String(), "condition") || !strings.Contains(text.String(), "not kept") {
		t.Fatalf("events = %+v, log = %s; want two events, and only the warning in the log", got, &text)
	}
	first, second := got[0], got[1]
	if first.Kind != api.EventCondition || first.Level != "info" || first.Fields["since"] != "1s" || first.Fields["status"] != true ||
		time.Since(first.Time) > time.Minute {
		t.Errorf("first event = %+v, want kind condition, level info and the fields of the log", first)
	}
	if second.Kind != api.EventAgent || second.Level != "warn" || second.Fields["error"] != "full" || second.Seq != first.Seq+1 {
		t.Errorf("second event = %+v, want kind agent, level warn, the error as text and the next seq", second)
	}
}

// A ring is bounded by number and by bytes, and reports lost events. Sequence numbers grow from one
// process to the next.
func TestRingIsBounded(t *testing.T) {
	began := time.Now()
	r := NewRing(began)
	log := slog.New(NewHandler(r, slog.NewTextHandler(io.Discard, nil)))
	for i := range 2 * maxEvents {
		log.Info("evicted", "n", i)
	}
	got := read(t, r, 0)
	if len(got) != maxEvents || got[0].Fields["n"] != float64(maxEvents) {
		t.Fatalf("got %d events, the first %+v; want %d, the first with n %d", len(got), got[0], maxEvents, maxEvents)
	}
	if b := r.After(got[0].Seq - 2); !b.Lost || len(b.Lines) != maxEvents {
		t.Errorf("after a dropped event: lost = %v with %d lines, want true with %d", b.Lost, len(b.Lines), maxEvents)
	}
	if b := r.After(got[0].Seq - 1); b.Lost || len(b.Lines) != maxEvents {
		t.Errorf("after the event before the first: lost = %v with %d lines, want false with %d", b.Lost, len(b.Lines), maxEvents)
	}
	last := got[len(got)-1].Seq
	if b := r.After(last); b.Lost || len(b.Lines) != 0 || b.First != last+1 {
		t.Errorf("after the last event: %+v, want no lines", b)
	}
	if b := r.After(last + 1); !b.Lost || len(b.Lines) != maxEvents {
		t.Errorf("after a seq of another process: lost = %v with %d lines, want true with %d", b.Lost, len(b.Lines), maxEvents)
	}
	long := strings.Repeat("x", maxLine/2)
	for range 100 {
		log.Info("evicted", "text", long)
	}
	if r.bytes > maxBytes {
		t.Errorf("ring keeps %d bytes, want at most %d", r.bytes, maxBytes)
	}
	log.Info("evicted", "text", long+long)
	if e := read(t, r, 0); e[len(e)-1].Fields["tooLong"] != true {
		t.Errorf("fields of a long event = %+v, want tooLong", e[len(e)-1].Fields)
	}
	if NewRing(began.Add(time.Second)).After(0).First <= last {
		t.Error("a later process starts with lower sequence numbers")
	}
}

// A waiting reader is woken by the next event.
func TestReaderIsWoken(t *testing.T) {
	r := NewRing(time.Now())
	more := r.After(0).More
	select {
	case <-more:
		t.Fatal("More is closed before an event")
	default:
	}
	r.add([]byte("{}"))
	<-more
}

// The kind of an event is an attribute of the log line and not one of the event's fields. The
// default is agent.
func TestKindIsAnAttribute(t *testing.T) {
	r := NewRing(time.Now())
	log := slog.New(NewHandler(r, slog.DiscardHandler))
	log.Info("evicted", "pod", "a/b", api.EventEviction.Attr(), "kind", "anon")
	log.Info("listening", api.EventRuntime.Attr())
	log.Info("started")
	got := read(t, r, 0)
	want := []struct {
		kind   api.EventKind
		fields map[string]any
	}{
		{api.EventEviction, map[string]any{"pod": "a/b", "kind": "anon"}},
		{api.EventRuntime, nil},
		{api.EventAgent, nil},
	}
	for i, w := range want {
		if e := got[i]; e.Kind != w.kind || !maps.Equal(e.Fields, w.fields) {
			t.Errorf("event %q: kind %q, fields %v; want %q, %v", e.Message, e.Kind, e.Fields, w.kind, w.fields)
		}
	}
}
