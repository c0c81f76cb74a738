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
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"jettison/api"
	"jettison/internal/agent/serve/eventlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask serves one request.
func ask(e *Endpoints, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	w := httptest.NewRecorder()
	e.Find(r.URL.Path)(w, r)
	return w
}

// An agent is ready as long as its loop turns, and alive until that has not happened for so long that a new process is better.
func TestHealthAndReadiness(t *testing.T) {
	for _, c := range []struct {
		ago          time.Duration
		runs         bool
		alive, ready int
		says         string
	}{
		{0, false, 200, 503, "it waits"},
		{time.Second, true, 200, 200, "ok"},
		{6 * time.Second, true, 200, 503, "the loop hangs: it turned 6s ago"},
		{2 * time.Minute, true, 503, 503, "the loop hangs: it turned 2m0s ago"},
	} {
		e := New(Options{Turned: func() (time.Duration, string, bool) { return c.ago, "it waits", c.runs }})
		alive, ready := ask(e, api.PathHealth), ask(e, api.PathReady)
		if alive.Code != c.alive || ready.Code != c.ready || !strings.Contains(ready.Body.String(), c.says) {
			t.Errorf("%v ago: %d, %d %s", c.ago, alive.Code, ready.Code, ready.Body)
		}
		if got := ask(e, api.PathHealth+"?verbose=1").Code; got != http.StatusBadRequest {
			t.Errorf("a parameter: %d", got)
		}
	}
}

// logged is a ring and a log that fills it.
func logged() (*eventlog.Ring, *slog.Logger) {
	r := eventlog.NewRing(time.Now())
	return r, slog.New(eventlog.NewHandler(r, slog.NewTextHandler(io.Discard, nil)))
}

func parse(t *testing.T, text string) (out []api.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e api.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
	return out
}

// Events are JSON lines, from where a reader says on; that some are not kept any more is an event itself.
func TestEvents(t *testing.T) {
	ring, log := logged()
	e := New(Options{Events: ring})
	if got := ask(e, api.PathEvents); got.Code != 200 || got.Body.Len() != 0 {
		t.Errorf("none yet: %d %s", got.Code, got.Body)
	}
	for _, message := range []string{"one", "two\u009b", "three"} {
		log.Info(message)
	}
	all := parse(t, ask(e, api.PathEvents).Body.String())
	if len(all) != 3 || all[1].Message != "two\u009b" || strings.Contains(ask(e, api.PathEvents).Body.String(), "\u009b") {
		t.Fatalf("%+v", all)
	}
	since := func(seq uint64) []api.Event {
		b, _ := json.Marshal(seq)
		return parse(t, ask(e, api.PathEvents+"?since="+string(b)).Body.String())
	}
	if got := since(all[1].Seq); len(got) != 1 || got[0].Seq != all[2].Seq {
		t.Errorf("since the second: %+v", got)
	}
	if got := since(1); len(got) != 4 || got[0].Kind != api.EventLost || got[0].Seq != all[0].Seq-1 {
		t.Errorf("since long ago: %+v", got)
	}
	for _, query := range []string{"?since=-1", "?since=x", "?follow=1", "?until=3", "?since=1&since=2"} {
		if got := ask(e, api.PathEvents+query); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "error") {
			t.Errorf("%s: %d %s", query, got.Code, got.Body)
		}
	}
}

// serve has a server of its own, for connections.
func serve(t *testing.T, e *Endpoints) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.Find(r.URL.Path)(w, r) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// Who follows gets each event when it comes.
func TestFollowing(t *testing.T) {
	ring, log := logged()
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
		t.Errorf("%+v, %+v", one, two)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "request ended by the caller") {
		t.Errorf("ended: %v", err)
	}
}

// A reader that takes nothing is dropped, and whoever logs never waits for it.
func TestASlowReaderIsDropped(t *testing.T) {
	ring, log := logged()
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

// Profiles are there where the configuration says so, and never on the network.
func TestProfiles(t *testing.T) {
	if New(Options{}).Find(api.PathPprof+"heap") != nil {
		t.Error("served although nobody wants it")
	}
	e := New(Options{Pprof: true})
	for target, want := range map[string]string{
		"": "goroutine\n", "goroutine?debug=1": "goroutine profile:", "profile?seconds=0.01": "", "profile?seconds=9999": "at most 60",
		"nothing": "no such profile",
	} {
		if got := ask(e, api.PathPprof+target); !strings.Contains(got.Body.String(), want) || got.Body.Len() == 0 {
			t.Errorf("%s: %d %s", target, got.Code, got.Body)
		}
	}
	if h, _ := e.Remote(api.PathPprof + "heap"); h != nil {
		t.Error("served on the network")
	}
}
