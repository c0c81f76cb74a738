package events

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
)

// serve runs a fake agent on a socket.
func serve(t *testing.T, handle http.HandlerFunc) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "h") // socket paths are limited to 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handle}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return path
}

const (
	one = `{"seq":1,"time":"2026-01-01T00:00:01Z","kind":"condition","level":"warn","message":"condition","fields":{"b":12345678901,"a":"x y\u001b[2J"}}`
	two = `{"seq":2,"time":"2026-01-01T00:00:02Z","kind":"eviction","level":"info","message":"evicted"}`
)

// Each selected event is printed on one line.
func TestEvents(t *testing.T) {
	path := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "%s\n%s\n", one, two) })
	for name, c := range map[string]struct {
		o    options
		want string
	}{
		"all": {options{}, "2026-01-01T00:00:01Z  condition  condition  a=\"x y\\u001b[2J\"  b=12345678901\n" +
			"2026-01-01T00:00:02Z  eviction   evicted\n"},
		"of a kind":  {options{kinds: []string{"eviction"}}, "2026-01-01T00:00:02Z  eviction   evicted\n"},
		"later":      {options{since: time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC), format: output.AsJSONL}, two + "\n"},
		"a document": {options{since: time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC), format: output.AsJSON}, "[" + two + "]\n"},
		"no event":   {options{kinds: []string{"gate"}, format: output.AsJSON}, "[]\n"},
	} {
		var out, errs bytes.Buffer
		c.o.socket = path
		if err := run(t.Context(), c.o, terminal.Fixed(&out, 0), &errs); err != nil || out.String() != c.want || errs.Len() > 0 {
			t.Errorf("%s: error %v, stderr %s, stdout\n%q, want\n%q", name, err, &errs, out.String(), c.want)
		}
	}
}

// With follow, run reconnects after the last event; no agent at the start is an error.
func TestFollow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	path := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Get("follow") != "true":
			t.Errorf("unexpected request to the agent: %s", r.URL)
		case q.Get("since") == "":
			fmt.Fprintln(w, one)
		case q.Get("since") == "1":
			fmt.Fprintln(w, two)
			w.(http.Flusher).Flush()
			cancel()
			<-r.Context().Done()
		default:
			t.Errorf("unexpected request to the agent: %s", r.URL)
		}
	})
	var out, errs bytes.Buffer
	if err := run(ctx, options{socket: path, follow: true}, terminal.Fixed(&out, 0), &errs); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "condition") || strings.Count(out.String(), "a=") != 1 {
		t.Errorf("want each event printed once, got\n%s", out.String())
	}
	if err := run(t.Context(), options{socket: path + "none", follow: true}, terminal.Fixed(&out, 0), &errs); err == nil {
		t.Error("run without an agent returned no error")
	}
}

// A lost connection is reported once, until the agent answers again.
func TestLostConnectionIsReportedOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	path := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch asked++; asked {
		case 1:
			fmt.Fprintln(w, one)
			w.(http.Flusher).Flush()
		case 4:
			cancel()
		}
		panic(http.ErrAbortHandler) // the agent ends
	})
	var out, errs bytes.Buffer
	if err := run(ctx, options{socket: path, follow: true}, terminal.Fixed(&out, 0), &errs); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(errs.String(), "\n"); n != 1 {
		t.Errorf("want one line for three failed connections, got\n%s", errs.String())
	}
}

// A ranking is printed as pods, and with -o wide as JSON.
func TestRankingInATable(t *testing.T) {
	fields := map[string]any{"ranking": []any{map[string]any{"pod": "a/b", "usage": 1.5}, map[string]any{"pod": "a/c"}}}
	if got, want := fieldsText(fields, false), `  ranking="[a/b a/c]"`; got != want {
		t.Errorf("fieldsText = %s, want %s", got, want)
	}
	if got, want := fieldsText(fields, true), `  ranking="[{\"pod\":\"a/b\",\"usage\":1.5} {\"pod\":\"a/c\"}]"`; got != want {
		t.Errorf("fieldsText = %s, want %s", got, want)
	}
}

// --kind accepts the event kinds of package api.
func TestKinds(t *testing.T) {
	if len(kinds) != 10 || kinds[2] != string(api.EventEviction) {
		t.Errorf("kinds = %v, want 10 with eviction third", kinds)
	}
}

// Quotation marks in a value are escaped, so that no value looks like another field.
func TestFieldsTextEscapesQuotes(t *testing.T) {
	fields := map[string]any{"a": `x" b="y`, "c": `"`, "d": `C:\ x\`, "e": `\n`}
	want := `  a="x\" b=\"y"  c="\""  d="C:\\ x\\"  e=\n`
	if got := fieldsText(fields, true); got != want {
		t.Errorf("fieldsText = %s, want %s", got, want)
	}
}
