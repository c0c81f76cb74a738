package socket

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/agent/serve/endpoints"
	"jettison/internal/agent/serve/eventlog"
)

// Read-only paths are served next to the socket's own, by GET and HEAD.
func TestReadOnlyPaths(t *testing.T) {
	e := endpoints.New(endpoints.Options{LoopAge: func() (time.Duration, string, bool) { return 0, "", true }})
	path, _ := start(t, Options{Reads: e}, patient)
	c := client(t, path)
	for _, x := range []struct {
		method, target string
		status         int
		text           string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"HEAD", "/readyz", 200, ""},
		{"POST", "/healthz", 405, "use GET or HEAD"},
		{"GET", "/health", 404, "the paths are /healthz, /readyz, /v1/admit, /v1/events, /v1/outlook, /v1/pods"},
	} {
		if got := ask(t, c, x.method, x.target, ""); got.status != x.status || !strings.Contains(got.text, x.text) {
			t.Errorf("%s %s = %d %s, want %d with %q", x.method, x.target, got.status, got.text, x.status, x.text)
		}
	}
	conn := dial(t, path)
	go func() {
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: j\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("response to a header of 64 KiB = %v %v, want 431", res, err)
	}
}

// A follower of events may stay longer than the request limit.
func TestFollowerOutlastsRequestLimit(t *testing.T) {
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
	for range 3 { // requests that time out
		slow := dial(t, path)
		send(t, slow, slowBody)
		if _, err := io.ReadAll(slow); err != nil {
			t.Log(err)
		}
	}
	log.Info("two")
	if !lines.Scan() || !strings.Contains(lines.Text(), `"two"`) {
		t.Error("follower closed before the second event:", lines.Text(), lines.Err())
	}
}

// large is a path with an answer that exceeds all buffers.
type large []byte

func (l large) Find(path string) http.HandlerFunc {
	if path != api.PathSummary {
		return nil
	}
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(l) }
}

func (large) Paths() []string { return []string{api.PathSummary} }

// Unread answers to members are bounded by the budget for pods; root is still answered.
func TestUnreadAnswersToMembers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	const size = 3 << 20
	path, _ := start(t, Options{Group: group, Reads: make(large, size)}, patient)
	begin := func(c net.Conn) int {
		send(t, c, "GET "+api.PathSummary+" HTTP/1.1\r\nHost: j\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	unread := 0
	for _, uid := range []int{4001, 4002} {
		var all []net.Conn
		as(t, uid, 54321, nil, func() {
			for range maxMember {
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { c.Close() })
				all = append(all, c)
			}
		})
		for _, c := range all {
			switch status := begin(c); status {
			case http.StatusOK:
				unread += size
			case http.StatusServiceUnavailable:
			default:
				t.Errorf("status of a large answer = %d, want 200 or 503", status)
			}
		}
	}
	if unread == 0 || unread > 10<<20 {
		t.Errorf("unread answers to members = %d bytes, want 1 to %d", unread, 10<<20)
	}
	if status := begin(dial(t, path)); status != http.StatusOK {
		t.Errorf("status of the answer to root = %d, want 200", status)
	}
}

// Many connections of root, or of refused strangers, cannot make the liveness probe fail.
func TestProbeIsServed(t *testing.T) {
	entered, answer := make(chan struct{}), make(chan struct{})
	path, _ := start(t, Options{Reads: health{entered, answer}}, patient)
	defer close(answer)
	for range maxOwner {
		send(t, dial(t, path), "GET "+api.PathEvents+" HTTP/1.1\r\nHost: j\r\n\r\n")
		<-entered
	}
	for range 3 * maxProbes { // in sequence
		for target, want := range map[string]int{api.PathHealth: 200, api.PathReady: 200, api.PathEvents: 503} {
			if status, text, err := rawAsk(path, "GET", target, ""); status != want {
				t.Errorf("%s with all places in use = %d %s %v, want %d", target, status, text, err, want)
			}
		}
	}
	if status, text, err := rawAsk(path, "PUT", api.PathHealth, "[]"); status != 503 {
		t.Errorf("PUT with all places in use = %d %s %v, want 503", status, text, err)
	}
	l := &limited{}
	for _, r := range []struct {
		role
		n int
	}{{owner, maxOwner}, {stranger, maxRefused}} {
		for range r.n {
			c := &conn{role: r.role}
			l.seat(c, 1)
			c.place.State(http.StateActive) // an idle connection would be replaced
		}
	}
	if c := (&conn{role: owner}); !l.seat(c, 0) || c.refusal != errCrowded {
		t.Errorf("probe beside refused strangers: refusal %v, want errCrowded", c.refusal)
	}
}

// health answers probes immediately and keeps followers of events waiting.
type health struct{ entered, answer chan struct{} }

func (h health) Find(path string) http.HandlerFunc {
	switch path {
	case api.PathHealth, api.PathReady:
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
	case api.PathEvents:
		return func(http.ResponseWriter, *http.Request) { h.entered <- struct{}{}; <-h.answer }
	}
	return nil
}

func (health) Paths() []string { return nil }
