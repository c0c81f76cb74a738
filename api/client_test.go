package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socketPath is one that is short enough.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve has handle answer on a socket, and returns a client of it.
func serve(t testing.TB, handle http.HandlerFunc) *Client {
	t.Helper()
	path := socketPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, done := &http.Server{Handler: handle}, make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return New(Options{Socket: path})
}

// raw has each connection answered with a text that need not be HTTP, and then does what rest says.
func raw(t testing.TB, limit time.Duration, text string, rest func(net.Conn)) *Client {
	t.Helper()
	path := socketPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 4096)
			_, _ = c.Read(buf) // the request
			_, _ = io.WriteString(c, text)
			rest(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return New(Options{Socket: path, Limit: limit})
}

func hangUp(net.Conn) {}

// untilGone reads until the client has hung up.
func untilGone(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func TestTheClientAsks(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.EscapedPath()+r.URL.RawQuery, r.Header.Get("Content-Type"), body))
		switch r.Method {
		case http.MethodGet:
			_, _ = io.WriteString(w, `{"version": "v1", "pods": {"runtime": 3, "objects": 2, "clients": 1}, "later": [1], "underway": null}`)
		case http.MethodPut:
			_, _ = io.WriteString(w, `{"pods": 1, "version": 7}`)
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	ctx := t.Context()
	s, err := c.State(ctx)
	if err != nil || s.Version != "v1" || s.Pods != (PodCount{Runtime: 3, Objects: 2, Clients: 1}) || s.Underway != nil {
		t.Errorf("%+v, %v", s, err)
	}
	pods := []map[string]string{{"kind": "Pod"}}
	for _, put := range []func(context.Context, any) (PutAnswer, error){c.PutPods, c.ReplacePods} {
		if answer, err := put(ctx, pods); err != nil || !reflect.DeepEqual(answer, PutAnswer{Pods: 1, Version: 7}) {
			t.Errorf("%+v, %v", answer, err)
		}
	}
	if err := c.DeletePod(ctx, "a/b c"); err != nil {
		t.Error(err)
	}
	want := []string{
		"GET /v1/state  ", `PUT /v1/pods application/json [{"kind":"Pod"}]`, `PUT /v1/podsreplace=true application/json [{"kind":"Pod"}]`,
		"DELETE /v1/pods/a%2Fb%20c  ",
	}
	if fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("asked\n%q\nwant\n%q", asked, want)
	}
}

// Each error is one line that says what was asked, where, what is wrong, and what to do.
func TestErrorsOfTheClient(t *testing.T) {
	answers := func(status int, body string) *Client {
		return serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	stale := socketPath(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	refusing := New(Options{Dial: func(context.Context) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}
	}})
	soon := 100 * time.Millisecond
	for name, r := range map[string]struct {
		c    *Client
		is   error // wrapped; nil: any
		says string
	}{
		"no socket":                {New(Options{Socket: socketPath(t)}), os.ErrNotExist, "there is no socket: start the agent"},
		"no listener":              {New(Options{Socket: stale}), syscall.ECONNREFUSED, "no process listens there: start the agent"},
		"no permission":            {refusing, os.ErrPermission, "only root and the members of socketGroup may"},
		"no answer":                {raw(t, soon, "", untilGone), context.DeadlineExceeded, "no answer within 100ms: its log says"},
		"half a header":            {raw(t, soon, "HTTP/1.1 200 OK\r\nContent-", untilGone), context.DeadlineExceeded, "no answer within 100ms"},
		"half a body":              {raw(t, soon, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", untilGone), context.DeadlineExceeded, "no answer within 100ms"},
		"a fragment of 100 MB":     {raw(t, soon, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n{", untilGone), context.DeadlineExceeded, "no answer within 100ms"},
		"a fragment, and hangs up": {raw(t, 0, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n{", hangUp), io.ErrUnexpectedEOF, "it hung up"},
		"hung up":                  {raw(t, 0, "", hangUp), nil, "it hung up: it has too many connections, or it ended: try again"},
		"hung up in a body":        {raw(t, 0, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", hangUp), io.ErrUnexpectedEOF, "it hung up"},
		"no HTTP":                  {raw(t, 0, "\x1b[2Jhello\r\n\r\n", hangUp), nil, `no answer: net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x1b[2Jhello"`},
		"endless headers":          {raw(t, 0, "HTTP/1.1 200 OK\r\n"+strings.Repeat("A: b\r\n", maxHeaders), hangUp), nil, "no answer: "},
		"no JSON":                  {answers(200, "<html>\x1b[2J\nno"), ErrMalformed, "what answers is no agent, or one of another version: it says invalid character '<'"},
		"nothing":                  {answers(200, ""), ErrMalformed, "unexpected end of JSON input"},
		"null":                     {answers(200, "null"), ErrMalformed, "not how many pods its clients named"},
		"a wrong type":             {answers(200, `{"looks": "many", "pods": {"clients": 1}}`), ErrMalformed, "cannot unmarshal string into Go struct field State.looks of type uint64"},
		"a list":                   {answers(200, `[{"pods": {"clients": 1}}]`), ErrMalformed, "cannot unmarshal array"},
		"two values":               {answers(200, `{"pods": {"clients": 1}} {}`), ErrMalformed, "after top-level value"},
		"nulls":                    {answers(200, `{"pods": {"clients": null}}`), ErrMalformed, "not how many pods its clients named"},
		"an older agent":           {answers(200, `{"pods": {"runtime": 1, "objects": 0}}`), ErrMalformed, "not how many pods its clients named"},
		"not found":                {answers(404, "404 page not found\n"), ErrMalformed, "it says status 404, 404 page not found"},
		"a redirect":               {answers(302, ""), ErrMalformed, "status 302"},
		"busy":                     {answers(503, `{"error": "there is no state\u001b[2J\n yet: try again"}`), nil, "status 503: there is no state?[2J yet: try again"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := r.c.State(t.Context())
			if err == nil || s != nil || r.is != nil && !errors.Is(err, r.is) || !strings.Contains(err.Error(), r.says) {
				t.Fatalf("%+v, %v", s, err)
			}
			if text := err.Error(); !strings.HasPrefix(text, "ask the agent at /") || strings.ContainsAny(text, "\n\x1b") || len(text) > maxText+500 {
				t.Errorf("%q", text)
			}
		})
	}
}

func TestAStatusCanBeAskedFor(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(ErrorAnswer{Error: "no client has put it"})
	})
	var status *StatusError
	if err := c.DeletePod(t.Context(), "x"); !errors.As(err, &status) || status.Status != 404 || status.Text != "no client has put it" {
		t.Error(err)
	}
}

// What cannot be asked is not asked.
func TestAWrongQuestionIsNotAsked(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked %s %s", r.Method, r.URL) })
	page := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	if err := page.DeletePod(t.Context(), "x"); !errors.Is(err, ErrMalformed) {
		t.Errorf("a page is taken for an answer: %v", err)
	}
	if err := c.DeletePod(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "uid is empty") {
		t.Error(err)
	}
	if _, err := c.PutPods(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), "cannot be written as JSON") {
		t.Error(err)
	}
	if _, err := c.PutPods(t.Context(), strings.Repeat("x", MaxPodsBytes)); err == nil || !strings.Contains(err.Error(), "put them in parts") {
		t.Error(err)
	}
}

// Of an answer that does not end no more is held than an answer may have.
func TestAnEndlessAnswer(t *testing.T) {
	sent := make(chan int64, 1)
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		text, all := []byte(strings.Repeat(`[`, 1<<16)), int64(0)
		for {
			n, err := w.Write(text)
			if all += int64(n); err != nil {
				sent <- all
				return
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.State(t.Context())
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), fmt.Sprintf("more than %d bytes", maxAnswer)) {
		t.Error(err)
	}
	if all := <-sent; all > 2*maxAnswer {
		t.Errorf("%d bytes were taken", all)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*maxAnswer {
		t.Errorf("%d bytes were allocated", took)
	}
}

// A caller who gives up is told so, and not that the agent is slow.
func TestGivingUp(t *testing.T) {
	c := raw(t, time.Hour, "", untilGone)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.State(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "given up") {
		t.Error(err)
	}
}

// Whatever answers, a State is whole or an error.
func FuzzState(f *testing.F) {
	for _, text := range []string{`{}`, `{"pods": {"clients": 1}}`, `{"pods": {"clients": 1}, "signals": [null, {"thresholds": null}], "errors": null}`,
		`{"pods": {"Clients": 1, "clients": null}}`, `[`, "\xff", `{"evicted": [{"pod": {"UID": 7}}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if (s == nil) == (err == nil) {
			t.Fatalf("%+v, %v", s, err)
		}
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%q", err)
			}
			return
		}
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
	})
}

// Whatever a refusal says, it is one short line.
func FuzzRefusal(f *testing.F) {
	f.Add(403, []byte(`{"error": "no"}`))
	f.Add(500, []byte("\x00\n"))
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		if got := refused(status, text).Error(); strings.ContainsAny(got, "\n\r\x1b") || len(got) > maxText+200 {
			t.Errorf("%q", got)
		}
	})
}
