package endpoints

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"jettison/api"
	"jettison/internal/agent/serve/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get serves one request.
func get(e *Endpoints, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	w := httptest.NewRecorder()
	e.Find(r.URL.Path)(w, r)
	return w
}

// An agent is ready while its loop runs. It is alive until the loop has hung for so long that a
// restart helps.
func TestHealthAndReadiness(t *testing.T) {
	for _, c := range []struct {
		ago          time.Duration
		runs         bool
		alive, ready int
		text         string
	}{
		{0, false, 200, 503, "the agent waits"},
		{time.Second, true, 200, 200, "ok"},
		{6 * time.Second, true, 200, 503, "the loop hangs: last run 6s ago"},
		{2 * time.Minute, true, 503, 503, "the loop hangs: last run 2m0s ago"},
	} {
		e := New(Options{LoopAge: func() (time.Duration, string, bool) { return c.ago, "the agent waits", c.runs }})
		alive, ready := get(e, api.PathHealth), get(e, api.PathReady)
		if alive.Code != c.alive || ready.Code != c.ready || !strings.Contains(ready.Body.String(), c.text) {
			t.Errorf("loop last run %v ago: /healthz = %d, /readyz = %d %s; want %d, %d with %q", c.ago, alive.Code, ready.Code, ready.Body,
				c.alive, c.ready, c.text)
		}
		if got := get(e, api.PathHealth+"?verbose=1").Code; got != http.StatusBadRequest {
			t.Errorf("status with an unknown parameter = %d, want 400", got)
		}
	}
}

// newLog returns a ring and a log that fills it.
func newLog() (*eventlog.Ring, *slog.Logger) {
	r := eventlog.NewRing(time.Now())
	return r, slog.New(eventlog.NewHandler(r, slog.NewTextHandler(io.Discard, nil)))
}

func parse(t *testing.T, text string) (out []api.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e api.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("decode an event from line %s: %v", line, err)
		}
		out = append(out, e)
	}
	return out
}

// Events are JSON lines, optionally from a sequence number on. The loss of events is reported as an
// event.
func TestEvents(t *testing.T) {
	ring, log := newLog()
	e := New(Options{Events: ring})
	if got := get(e, api.PathEvents); got.Code != 200 || got.Body.Len() != 0 {
		t.Errorf("response without events = %d %q, want 200 and no lines", got.Code, got.Body)
	}
	for _, message := range []string{"one", "two\u009b", "three"} {
		log.Info(message)
	}
	all := parse(t, get(e, api.PathEvents).Body.String())
	if len(all) != 3 || all[1].Message != "two\u009b" || strings.Contains(get(e, api.PathEvents).Body.String(), "\u009b") {
		t.Fatalf("events = %+v, want three with U+009B escaped", all)
	}
	since := func(seq uint64) []api.Event {
		b, _ := json.Marshal(seq)
		return parse(t, get(e, api.PathEvents+"?since="+string(b)).Body.String())
	}
	if got := since(all[1].Seq); len(got) != 1 || got[0].Seq != all[2].Seq {
		t.Errorf("events since the second = %+v, want the third", got)
	}
	if got := since(1); len(got) != 4 || got[0].Kind != api.EventLost || got[0].Seq != all[0].Seq-1 {
		t.Errorf("events since seq 1 = %+v, want a lost event and three others", got)
	}
	for _, query := range []string{"?since=-1", "?since=x", "?follow=1", "?until=3", "?since=1&since=2"} {
		if got := get(e, api.PathEvents+query); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "error") {
			t.Errorf("response to %s = %d %s, want 400 with an error", query, got.Code, got.Body)
		}
	}
}

// serve starts a server of the endpoints, for tests that need connections.
func serve(t *testing.T, e *Endpoints) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.Find(r.URL.Path)(w, r) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// A following client receives each event when it happens.
func TestFollowing(t *testing.T) {
	ring, log := newLog()
	address := serve(t, New(Options{Events: ring}))
	ctx, cancel := context.WithCancel(t.Context())
	client := api.New(api.Options{Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }})
	got := make(chan api.Event)
	ended := make(chan error)
	go func() {
		ended <- client.Events(ctx, api.EventOptions{Follow: true}, func(e api.Event) error { got <- e; return nil })
	}()
	log.Info("one")
	one := <-got
	log.Info("two")
	if two := <-got; one.Message != "one" || two.Message != "two" || two.Seq != one.Seq+1 {
		t.Errorf("events = %+v and %+v, want one and two with consecutive seqs", one, two)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "request ended by the caller") {
		t.Errorf("error after cancel = %v, want the caller's end", err)
	}
}

// The connection of a reader that is too slow is closed, and logging does not wait for it.
func TestSlowReaderIsDropped(t *testing.T) {
	ring, log := newLog()
	e := New(Options{Events: ring})
	e.patient = 50 * time.Millisecond
	conn, err := net.Dial("tcp", serve(t, e))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+api.PathEvents+"?follow=true HTTP/1.1\r\nHost: j\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil { // it is being served
		t.Fatal(err)
	}
	text := strings.Repeat("x", 8<<10)
	for e.dropped.Load() == 0 { // until all buffers on the way are full
		log.Info("evicted", "text", text)
	}
}

// Profiles are served if the configuration enables them, and never on the network. They have the parameters of net/http/pprof; one
// without effect is an error.
func TestProfiles(t *testing.T) {
	if New(Options{}).Find(api.PathPprof+"heap") != nil {
		t.Error("profile served although pprof is off")
	}
	e := New(Options{Pprof: true})
	for target, want := range map[string]string{
		"": "goroutine\n", "goroutine?debug=1": "goroutine profile:", "profile?seconds=0.01": "", "profile?seconds=9999": "at most 60",
		"nothing": "unknown profile", "heap?seconds=1": "only /debug/pprof/profile has this parameter",
	} {
		if got := get(e, api.PathPprof+target); !strings.Contains(got.Body.String(), want) || got.Body.Len() == 0 {
			t.Errorf("profile %q = %d %s, want text with %q", target, got.Code, got.Body, want)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := get(e, api.PathPprof+"heap?gc=1&debug=1")
	if runtime.ReadMemStats(&after); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "heap profile:") || after.NumForcedGC == before.NumForcedGC {
		t.Errorf("heap profile with gc=1 = %d %.100s after %d forced collections, want 200 after at least one", got.Code, got.Body, after.NumForcedGC-before.NumForcedGC)
	}
	if h, _ := e.Remote(api.PathPprof + "heap"); h != nil {
		t.Error("profile served on the network")
	}
}
