package httpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener for clients of the test.
type pipes struct {
	conns chan net.Conn
	ctx   context.Context
	end   context.CancelFunc
}

func newPipes() *pipes {
	ctx, end := context.WithCancel(context.Background())
	return &pipes{make(chan net.Conn), ctx, end}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.end(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects, and sends a request.
func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	go func() { _, _ = io.WriteString(here, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") }()
	return here
}

// status returns the status of a response; 0: the server closed the connection.
func status(t *testing.T, c net.Conn) int {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

// Idle connections lose their places to new ones, connections with a request keep them.
func TestConnectionsBeyondLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			busy bool
			want int // status of the third connection
		}{{false, http.StatusNotFound}, {true, 0}} {
			release, p := make(chan struct{}), newPipes()
			s := Start(t.Context(), p, Options{MaxConnections: 2, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.busy {
					<-release
				}
				http.NotFound(w, r)
			})})
			var clients []net.Conn
			for range 2 {
				clients = append(clients, p.dial())
				if !c.busy {
					if got := status(t, clients[len(clients)-1]); got != http.StatusNotFound {
						t.Errorf("status of a connection within the limit = %d, want %d", got, http.StatusNotFound)
					}
				}
				synctest.Wait()
			}
			clients = append(clients, p.dial())
			if got := status(t, clients[2]); got != c.want {
				t.Errorf("status of connection 3 of 2, others busy %v = %d, want %d", c.busy, got, c.want)
			}
			close(release)
			for _, client := range clients {
				_ = client.Close()
			}
			s.Shutdown(time.Second)
			if err := s.Err(); !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("Err after Shutdown = %v, want %v", err, http.ErrServerClosed)
			}
		}
	})
}

func TestHosts(t *testing.T) {
	for host, want := range map[string]struct{ loopback, named bool }{
		"localhost": {true, false}, "LOCALHOST:9100": {true, false}, "127.0.0.1:1": {true, false}, "127.1.2.3": {true, false},
		"[::1]:9100": {true, false}, "::1": {true, false}, "[::ffff:127.0.0.1]:1": {true, false},
		"10.0.0.1:9100": {false, false}, "[2001:db8::1]:1": {false, false},
		"": {false, true}, "evil.example": {false, true}, "127.0.0.1.evil.example:1": {false, true}, "localhost.evil.example": {false, true},
	} {
		if got := IsLoopbackHost(host); got != want.loopback {
			t.Errorf("IsLoopbackHost(%q) = %v, want %v", host, got, want.loopback)
		}
		if got := IsNamedHost(host); got != want.named {
			t.Errorf("IsNamedHost(%q) = %v, want %v", host, got, want.named)
		}
	}
}

func TestCutWaitsAtMostTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			ends   bool // whether the handler ends with its context
			waited time.Duration
		}{{true, time.Second}, {false, time.Minute}} {
			release := make(chan struct{})
			p := newPipes()
			s := Start(t.Context(), p, Options{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				if time.Sleep(time.Second); !c.ends {
					<-release
				}
			})})
			client := p.dial()
			synctest.Wait()
			began := time.Now()
			if ended := s.Cut(time.Minute); ended != c.ends || time.Since(began) != c.waited {
				t.Errorf("Cut(1m) = %v after %v, want %v after %v", ended, time.Since(began), c.ends, c.waited)
			}
			close(release)
			_ = client.Close()
			synctest.Wait()
		}
	})
}

func TestAnswerIsRefusedWithoutBudget(t *testing.T) {
	budget, w := 5, httptest.NewRecorder()
	a := &Answer{
		ResponseWriter: w,
		Hold:           func(n int) (func(), bool) { budget -= n; return func() { budget += n }, budget >= 0 },
		Refuse:         func(w http.ResponseWriter) { fmt.Fprintf(w, "; refused") },
	}
	for _, text := range []string{"12345", "123456", "1"} {
		_, err := a.Write([]byte(text))
		if got := err == nil; got != (text == "12345") {
			t.Errorf("Write(%q): error %v, want only the first to succeed", text, err)
		}
	}
	if got, want := w.Body.String(), "12345; refused"; got != want {
		t.Errorf("answer = %q, want %q", got, want)
	}
}
