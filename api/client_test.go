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
	"os/user"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socketPath returns a path that is short enough for a socket.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve serves handle on a socket and returns a client of it.
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

// serveRaw answers each connection with text, which need not be HTTP, and then calls finish.
func serveRaw(t testing.TB, limit time.Duration, text string, finish func(net.Conn)) *Client {
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
			finish(c)
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

// drain reads until the client closes the connection.
func drain(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func TestClientSendsRequests(t *testing.T) {
	var requests []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.EscapedPath()+r.URL.RawQuery, r.Header.Get("Content-Type"), body))
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
	if err != nil || s.Version != "v1" || s.Pods != (PodCount{Runtime: 3, Objects: 2, Clients: 1}) || s.InProgress != nil {
		t.Errorf("State() = %+v, %v, want version v1 and the pods that the server sent", s, err)
	}
	pods := []map[string]string{{"kind": "Pod"}}
	for _, put := range []func(context.Context, any) (PutAnswer, error){c.PutPods, c.ReplacePods} {
		if answer, err := put(ctx, pods); err != nil || !reflect.DeepEqual(answer, PutAnswer{Pods: 1, Version: 7}) {
			t.Errorf("put answer = %+v, %v, want 1 pod and version 7", answer, err)
		}
	}
	if err := c.DeletePod(ctx, "a/b c"); err != nil {
		t.Error(err)
	}
	want := []string{
		"GET /v1/state  ", `PUT /v1/pods application/json [{"kind":"Pod"}]`, `PUT /v1/podsreplace=true application/json [{"kind":"Pod"}]`,
		"DELETE /v1/pods/a%2Fb%20c  ",
	}
	if fmt.Sprint(requests) != fmt.Sprint(want) {
		t.Errorf("requests =\n%q\nwant\n%q", requests, want)
	}
}

// Each error is one line with the socket, the request, the cause and the remedy.
func TestClientErrors(t *testing.T) {
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
		text string
	}{
		"no socket":               {New(Options{Socket: socketPath(t)}), os.ErrNotExist, "socket does not exist: start the agent"},
		"no listener":             {New(Options{Socket: stale}), syscall.ECONNREFUSED, "no process listens on the socket: start the agent"},
		"no permission":           {refusing, os.ErrPermission, "permission denied, run as root or join socketGroup: "},
		"no answer":               {serveRaw(t, soon, "", drain), context.DeadlineExceeded, "no answer within 100ms: see the log of the agent"},
		"half a header":           {serveRaw(t, soon, "HTTP/1.1 200 OK\r\nContent-", drain), context.DeadlineExceeded, "no answer within 100ms"},
		"half a body":             {serveRaw(t, soon, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", drain), context.DeadlineExceeded, "no answer within 100ms"},
		"a fragment of 100 MB":    {serveRaw(t, soon, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n{", drain), context.DeadlineExceeded, "no answer within 100ms"},
		"a fragment, then closed": {serveRaw(t, 0, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n{", hangUp), io.ErrUnexpectedEOF, "the agent closed the connection"},
		"hung up":                 {serveRaw(t, 0, "", hangUp), nil, "the agent closed the connection: it has too many connections or has exited: try again"},
		"hung up in a body":       {serveRaw(t, 0, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", hangUp), io.ErrUnexpectedEOF, "the agent closed the connection"},
		"no HTTP":                 {serveRaw(t, 0, "\x1b[2Jhello\r\n\r\n", hangUp), nil, `no answer: net/http: HTTP/1.x transport connection broken: malformed HTTP response "\x1b[2Jhello"`},
		"endless headers":         {serveRaw(t, 0, "HTTP/1.1 200 OK\r\n"+strings.Repeat("A: b\r\n", maxHeaders), hangUp), nil, "no answer: "},
		"no JSON":                 {answers(200, "<html>\x1b[2J\nno"), ErrMalformed, "malformed answer, not from an agent or from another version of it: invalid character '<'"},
		"nothing":                 {answers(200, ""), ErrMalformed, "unexpected end of JSON input"},
		"null":                    {answers(200, "null"), ErrMalformed, "field pods.clients is missing"},
		"a wrong type":            {answers(200, `{"looks": "many", "pods": {"clients": 1}}`), ErrMalformed, "cannot unmarshal string into Go struct field State.looks of type uint64"},
		"a list":                  {answers(200, `[{"pods": {"clients": 1}}]`), ErrMalformed, "cannot unmarshal array"},
		"two values":              {answers(200, `{"pods": {"clients": 1}} {}`), ErrMalformed, "after top-level value"},
		"nulls":                   {answers(200, `{"pods": {"clients": null}}`), ErrMalformed, "field pods.clients is missing"},
		"an older agent":          {answers(200, `{"pods": {"runtime": 1, "objects": 0}}`), ErrMalformed, "field pods.clients is missing"},
		"not found":               {answers(404, "404 page not found\n"), ErrMalformed, "version of it: status 404, 404 page not found"},
		"a redirect":              {answers(302, ""), ErrMalformed, "status 302"},
		"busy":                    {answers(503, `{"error": "there is no state\u001b[2J\n yet: try again"}`), nil, "status 503: there is no state?[2J yet: try again"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := r.c.State(t.Context())
			if err == nil || s != nil || r.is != nil && !errors.Is(err, r.is) || !strings.Contains(err.Error(), r.text) {
				t.Fatalf("State() = %+v, %v, want error %v with %q", s, err, r.is, r.text)
			}
			if text := err.Error(); !strings.HasPrefix(text, "agent at /") || strings.ContainsAny(text, "\n\x1b") || len(text) > maxText+500 {
				t.Errorf("error = %q, want one short printable line that begins with the socket", text)
			}
		})
	}
}

func TestStatusErrorIsWrapped(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(ErrorAnswer{Error: "no client has put it"})
	})
	var status *StatusError
	if err := c.DeletePod(t.Context(), "x"); !errors.As(err, &status) || status.Status != 404 || status.Text != "no client has put it" {
		t.Errorf("DeletePod() error = %v, want StatusError 404 with the server's text", err)
	}
}

// The client sends no request for invalid arguments.
func TestInvalidArgumentsSendNoRequest(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("request sent for an invalid argument: %s %s", r.Method, r.URL)
	})
	page := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	if err := page.DeletePod(t.Context(), "x"); !errors.Is(err, ErrMalformed) {
		t.Errorf("DeletePod() error for an HTML answer = %v, want ErrMalformed", err)
	}
	if err := c.DeletePod(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "pod UID is empty") {
		t.Errorf("DeletePod() error for an empty UID = %v", err)
	}
	if _, err := c.PutPods(t.Context(), func() {}); err == nil || !strings.Contains(err.Error(), "encode pods as JSON: ") {
		t.Errorf("PutPods() error for a function = %v", err)
	}
	if _, err := c.PutPods(t.Context(), strings.Repeat("x", MaxPodsBytes)); err == nil || !strings.Contains(err.Error(), "send them in several requests") {
		t.Errorf("PutPods() error for too many bytes = %v", err)
	}
}

// The client keeps at most maxAnswer bytes of an endless answer.
func TestEndlessAnswer(t *testing.T) {
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
		t.Errorf("State() error for an endless answer = %v, want ErrMalformed with the limit", err)
	}
	if all := <-sent; all > 2*maxAnswer {
		t.Errorf("bytes read = %d, want at most %d", all, 2*maxAnswer)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8*maxAnswer {
		t.Errorf("bytes allocated = %d, want at most %d", allocated, 8*maxAnswer)
	}
}

// The end of the caller's context is reported as such, not as a slow agent.
func TestCallerEndsRequest(t *testing.T) {
	c := serveRaw(t, time.Hour, "", drain)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.State(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "request ended by the caller") {
		t.Errorf("State() error = %v, want the end of the caller's context", err)
	}
}

// parseState returns either a complete State or an error.
func FuzzState(f *testing.F) {
	for _, text := range []string{`{}`, `{"pods": {"clients": 1}}`, `{"pods": {"clients": 1}, "signals": [null, {"thresholds": null}], "errors": null}`,
		`{"pods": {"Clients": 1, "clients": null}}`, `[`, "\xff", `{"evicted": [{"pod": {"UID": 7}}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if (s == nil) == (err == nil) {
			t.Fatalf("parseState() = %+v, %v, want either a state or an error", s, err)
		}
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("error has several lines or control characters: %q", err)
			}
			return
		}
		if _, err := json.Marshal(s); err != nil {
			t.Errorf("encode the parsed state: %v", err)
		}
	})
}

// The error for a rejected request is one short line.
func FuzzRefusal(f *testing.F) {
	f.Add(403, []byte(`{"error": "no"}`))
	f.Add(500, []byte("\x00\n"))
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		if got := refused(status, text).Error(); strings.ContainsAny(got, "\n\r\x1b") || len(got) > maxText+200 {
			t.Errorf("refused() = %q, want one short line", got)
		}
	})
}

// A user without access to the socket learns which group has it.
func TestErrorNamesGroupOfSocket(t *testing.T) {
	path := socketPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 54321
	}
	if err := os.Chown(path, -1, gid); err != nil {
		t.Fatal(err)
	}
	name := strconv.Itoa(gid)
	if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	c := New(Options{Socket: path, Dial: func(context.Context) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}
	}})
	for mode, want := range map[os.FileMode]string{
		0o660: "permission denied, run as root or join group " + name + ": ",
		0o600: "permission denied, run as root, or set socketGroup in the agent's configuration and join it: ",
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := c.Health(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error with a socket of mode %o = %v, want %q", mode, err, want)
		}
	}
}
