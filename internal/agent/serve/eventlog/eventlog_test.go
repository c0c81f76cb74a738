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

// lines of a ring after an event, as a reader gets them.
func read(t *testing.T, r *Ring, since uint64) (out []api.Event) {
	t.Helper()
	b := r.After(since)
	for i, line := range b.Lines {
		var e api.Event
		if err := json.Unmarshal(Append(nil, b.First+uint64(i), line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
	return out
}

// What is logged from info on is an event, whatever the log's own level: its words, and its fields as the log has them.
func TestTheLogFillsTheRing(t *testing.T) {
	r := NewRing(time.Now())
	var text strings.Builder
	log := slog.New(NewHandler(r, slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Debug("nothing")
	log.Info("condition", api.EventCondition.Attr(), "condition", "MemoryPressure", "status", true, "since", time.Second)
	log.Warn("not kept", "error", errors.New("full"))
	got := read(t, r, 0)
	if len(got) != 2 || strings.Contains(text.String(), "condition") || !strings.Contains(text.String(), "not kept") {
		t.Fatalf("%+v; log %s", got, &text)
	}
	first, second := got[0], got[1]
	if first.Kind != api.EventCondition || first.Level != "info" || first.Fields["since"] != "1s" || first.Fields["status"] != true ||
		time.Since(first.Time) > time.Minute {
		t.Errorf("%+v", first)
	}
	if second.Kind != api.EventAgent || second.Level != "warn" || second.Fields["error"] != "full" || second.Seq != first.Seq+1 {
		t.Errorf("%+v", second)
	}
}

// A ring is bounded, by events and by bytes, and says what it lost. Numbers go on from one process to the next.
func TestARingIsBounded(t *testing.T) {
	began := time.Now()
	r := NewRing(began)
	log := slog.New(NewHandler(r, slog.NewTextHandler(io.Discard, nil)))
	for i := range 2 * maxEvents {
		log.Info("evicted", "n", i)
	}
	got := read(t, r, 0)
	if len(got) != maxEvents || got[0].Fields["n"] != float64(maxEvents) {
		t.Fatalf("%d events, the first %+v", len(got), got[0])
	}
	if b := r.After(got[0].Seq - 2); !b.Lost || len(b.Lines) != maxEvents {
		t.Errorf("what is not kept any more: %+v", b.Lost)
	}
	if b := r.After(got[0].Seq - 1); b.Lost || len(b.Lines) != maxEvents {
		t.Errorf("the event before the first: lost %v, %d", b.Lost, len(b.Lines))
	}
	last := got[len(got)-1].Seq
	if b := r.After(last); b.Lost || len(b.Lines) != 0 || b.First != last+1 {
		t.Errorf("after the last: %+v", b)
	}
	if b := r.After(last + 1); !b.Lost || len(b.Lines) != maxEvents {
		t.Errorf("of another time: %+v", b.Lost)
	}
	long := strings.Repeat("x", maxLine/2)
	for range 100 {
		log.Info("evicted", "text", long)
	}
	if r.bytes > maxBytes {
		t.Errorf("%d bytes are kept", r.bytes)
	}
	log.Info("evicted", "text", long+long)
	if e := read(t, r, 0); e[len(e)-1].Fields["tooLong"] != true {
		t.Errorf("too long: %+v", e[len(e)-1].Fields)
	}
	if NewRing(began.Add(time.Second)).After(0).First <= last {
		t.Error("a process that begins later has lower numbers")
	}
}

// Who waits is woken by the next event.
func TestAReaderIsWoken(t *testing.T) {
	r := NewRing(time.Now())
	more := r.After(0).More
	select {
	case <-more:
		t.Fatal("without an event")
	default:
	}
	r.add([]byte("{}"))
	<-more
}

// The kind of an event is the line's attribute, which is none of the event's fields; agent where a line has none.
func TestTheKindIsAnAttribute(t *testing.T) {
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
