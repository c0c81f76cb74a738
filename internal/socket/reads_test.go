package socket

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/endpoints"
	"jettison/internal/eventlog"
)

// What is only read is found beside the rest, by GET and HEAD.
func TestWhatIsOnlyRead(t *testing.T) {
	e := endpoints.New(endpoints.Options{Turned: func() (time.Duration, string, bool) { return 0, "", true }})
	path, _ := start(t, Options{Reads: e}, patient)
	c := client(t, path)
	for _, x := range []struct {
		method, target string
		status         int
		says           string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"HEAD", "/readyz", 200, ""},
		{"POST", "/healthz", 405, "use GET or HEAD"},
		{"GET", "/health", 404, "there are /healthz, /readyz, /v1/admit, /v1/events, /v1/outlook, /v1/pods"},
	} {
		if got := ask(t, c, x.method, x.target, ""); got.status != x.status || !strings.Contains(got.text, x.says) {
			t.Errorf("%s %s: %d %s", x.method, x.target, got.status, got.text)
		}
	}
	conn := dial(t, path)
	go func() {
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: j\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a huge header: %v %v", res, err)
	}
}

// A reader of events may stay for longer than any request may take.
func TestAFollowerStays(t *testing.T) {
	ring := eventlog.NewRing(time.Now())
	log := slog.New(eventlog.NewHandler(ring, slog.NewTextHandler(io.Discard, nil)))
	hasty := patient
	hasty.request = 300 * time.Millisecond
	path, _ := start(t, Options{Reads: endpoints.New(endpoints.Options{Events: ring})}, hasty)
	follower := dial(t, path)
	send(t, follower, "GET "+api.PathEvents+"?follow=true HTTP/1.1\r\nHost: j\r\n\r\n")
	log.Info("one")
	res, err := http.ReadResponse(bufio.NewReader(follower), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"one"`) {
		t.Fatal(lines.Text(), lines.Err())
	}
	for range 3 { // requests that take too long
		slow := dial(t, path)
		send(t, slow, slowBody)
		if _, err := io.ReadAll(slow); err != nil {
			t.Log(err)
		}
	}
	log.Info("two")
	if !lines.Scan() || !strings.Contains(lines.Text(), `"two"`) {
		t.Error("cut off:", lines.Text(), lines.Err())
	}
}
