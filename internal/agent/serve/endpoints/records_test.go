package endpoints

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/records"
)

// newQueue returns a queue and a keeper that fills it.
func newQueue(t *testing.T) (*records.Queue, *records.Keeper) {
	t.Helper()
	q := records.NewQueue()
	k, _, _ := records.StartKeeper(time.Now(), records.KeeperOptions{
		Dir: t.TempDir(), Proc: t.TempDir(), Log: logthrottle.New(slog.New(slog.DiscardHandler)), Queue: q,
	})
	t.Cleanup(func() { _ = k.Close() })
	return q, k
}

// Without parameters the last records are one value. From an ID on they are lines, with synced as
// the last.
func TestRecordsAreServed(t *testing.T) {
	if got := get(New(Options{Records: records.NewQueue()}), api.PathRecords); got.Code != http.StatusServiceUnavailable {
		t.Errorf("response before the records are read = %d %s, want 503", got.Code, got.Body)
	}
	q, k := newQueue(t)
	e := New(Options{Records: q})
	if got := get(e, api.PathRecords); got.Body.String() != "{\"records\":[]}\n" {
		t.Errorf("response without records = %d %s, want an empty list", got.Code, got.Body)
	}
	k.Begin(&api.Record{ID: "a", Pod: api.Victim{Name: "<b>\u009b"}, Outcome: api.OutcomeRunning})
	k.Begin(&api.Record{ID: "b", Outcome: api.OutcomeRunning})
	var all api.RecordsAnswer
	if got := get(e, api.PathRecords); json.Unmarshal(got.Body.Bytes(), &all) != nil || len(all.Records) != 2 ||
		strings.Contains(got.Body.String(), "\u009b") {
		t.Errorf("records = %d %s, want two with U+009B escaped", got.Code, got.Body)
	}
	lines := strings.Split(strings.TrimSpace(get(e, api.PathRecords+"?after=a").Body.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `{"record":{"version":0,"id":"b"`) || lines[1] != `{"synced":true}` {
		t.Errorf("records after a = %q, want record b and synced", lines)
	}
	for _, query := range []string{"?after=%20", "?after=a&after=b", "?follow=1", "?since=a", "?after=" + strings.Repeat("x", 65)} {
		if got := get(e, api.PathRecords+query); got.Code != http.StatusBadRequest || !strings.Contains(got.Body.String(), "error") {
			t.Errorf("response to %s = %d %s, want 400 with an error", query, got.Code, got.Body)
		}
	}
	if h, why := e.Remote(api.PathRecords); h != nil || why == "" {
		t.Error("records served on the network")
	}
}

// A following client receives each record whole when it begins and when it changes.
func TestFollowingRecords(t *testing.T) {
	q, k := newQueue(t)
	address := serve(t, New(Options{Records: q}))
	client := api.New(api.Options{Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }})
	r := &api.Record{ID: "a", Outcome: api.OutcomeRunning}
	k.Begin(r)
	ctx, cancel := context.WithCancel(t.Context())
	got, ended := make(chan string), make(chan error)
	go func() {
		ended <- client.FollowRecords(ctx, api.RecordsOptions{Follow: true}, func(l *api.RecordsLine) error {
			if l.Synced {
				got <- "synced"
			} else {
				got <- l.Record.ID + " " + string(l.Record.Outcome)
			}
			return nil
		})
	}()
	want := func(line string) {
		t.Helper()
		if l := <-got; l != line {
			t.Errorf("followed line = %q, want %q", l, line)
		}
	}
	want("a running")
	want("synced")
	r.Outcome = api.OutcomeBack
	k.Update(r)
	want("a back")
	k.Begin(&api.Record{ID: "b", Outcome: api.OutcomeRunning})
	want("b running")
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "request ended by the caller") {
		t.Errorf("error after cancel = %v, want the caller's end", err)
	}
}

// The connection of a reader that is too slow is closed, and the keeper does not wait for it. The
// client ignores a truncated line.
func TestSlowRecordsReaderIsDropped(t *testing.T) {
	q, k := newQueue(t)
	e := New(Options{Records: q})
	e.patient = 50 * time.Millisecond
	gone := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { gone <- struct{}{} }()
		e.Find(r.URL.Path)(w, r)
	}))
	t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+api.PathRecords+"?follow=true HTTP/1.1\r\nHost: j\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil { // it is being served
		t.Fatal(err)
	}
	for i := 0; ; i++ { // until all buffers on the way are full
		k.Update(&api.Record{ID: fmt.Sprintf("a%03d", i%16), Message: strings.Repeat("x", 2048), Reason: strings.Repeat("y", 2048)})
		select {
		case <-gone:
		default:
			continue
		}
		break
	}
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "{\"synced\":true}\n{\"record\":{\"id\":")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	client := api.New(api.Options{Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", cut.Listener.Addr().String())
	}})
	lines := 0
	err = client.FollowRecords(t.Context(), api.RecordsOptions{}, func(*api.RecordsLine) error { lines++; return nil })
	if lines != 1 || errors.Is(err, api.ErrMalformed) || err == nil || !strings.Contains(err.Error(), "the agent closed the connection") {
		t.Errorf("client read %d lines, error %v; want 1 line and a closed connection", lines, err)
	}
}
