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
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

func TestServerClosesConnectionsBeyondLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		s := Start(t.Context(), p, Options{Handler: http.NotFoundHandler(), MaxConnections: 2})
		for i, want := range []int{http.StatusNotFound, http.StatusNotFound, 0} {
			c := p.dial()
			defer c.Close()
			if got := status(t, c); got != want {
				t.Errorf("connection %d of 2: status %d, want %d", i+1, got, want)
			}
			if i == 2 {
				break
			}
		}
		s.Shutdown(time.Second)
		if err := s.Err(); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Err after Shutdown = %v, want %v", err, http.ErrServerClosed)
		}
	})
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
