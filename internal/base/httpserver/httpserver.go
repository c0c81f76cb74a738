// Package httpserver serves HTTP on a unix socket or on TCP with limits for connections, requests
// and the shutdown.
//
//	httpserver.go  Server: its parts, and how it ends
//	bounded.go     a listener that limits connections, in total and from one address
//	request.go     checks of requests: their host and their body
//	answer.go      responses that count until clients have read them
package httpserver

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"jettison/internal/base/retry"
)

// Options of Start. The timeouts are those of net/http.
type Options struct {
	Handler http.Handler

	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	MaxHeaderBytes                                            int

	// MaxConnections limits connections; 0: limited by the listener. When all places are in use, a new
	// connection replaces one that is idle, stalled or answered for longer than AnswerTimeout.
	MaxConnections int
	MaxPerAddress  int           // of them from one address, unless the server is on loopback; 0: all
	AnswerTimeout  time.Duration // 0: a connection that does not stall keeps its place

	TLS *tls.Config // nil: no TLS
	// ConnContext changes the context of a connection's requests; nil: unchanged.
	ConnContext func(context.Context, net.Conn) context.Context
}

// Stater is a connection that tracks its own state. The Server calls State from the connection's
// goroutine.
type Stater interface{ State(http.ConnState) }

// Server serves until Cut or Shutdown.
type Server struct {
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	served   chan struct{} // closed when no more connections are accepted
	err      error         // of serving; written before served is closed
	conns    sync.WaitGroup
}

// Start serves a listener, which belongs to the Server from then on. Contexts of requests end with
// ctx, or with Cut. Errors of clients are answered, not logged.
func Start(ctx context.Context, l net.Listener, o Options) *Server {
	ctx, cancel := context.WithCancel(ctx)
	s := &Server{listener: l, cancel: cancel, served: make(chan struct{})}
	s.http = &http.Server{
		Handler: o.Handler, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: o.ReadHeaderTimeout, ReadTimeout: o.ReadTimeout,
		WriteTimeout: o.WriteTimeout, IdleTimeout: o.IdleTimeout,
		MaxHeaderBytes: o.MaxHeaderBytes,
		TLSNextProto:   map[string]func(*http.Server, *tls.Conn, http.Handler){}, // one request at a time
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ConnContext:    o.ConnContext,
		ConnState:      s.count,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	if o.MaxConnections > 0 {
		l = newBounded(l, o.MaxConnections, o.MaxPerAddress, o.AnswerTimeout)
	}
	if o.TLS != nil {
		l = tls.NewListener(l, o.TLS)
	}
	go func() {
		defer close(s.served)
		s.err = s.http.Serve(l)
	}()
	return s
}

// Address returns the address of the listener.
func (s *Server) Address() string { return s.listener.Addr().String() }

// count counts the goroutines of connections: net/http reports their start and their end.
func (s *Server) count(c net.Conn, state http.ConnState) {
	if tlsConn, ok := c.(*tls.Conn); ok {
		c = tlsConn.NetConn()
	}
	if c, ok := c.(Stater); ok {
		c.State(state)
	}
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Done()
	}
}

// Cut closes the listener and all connections and waits for the requests in flight, at most limit.
// It reports whether they ended in time.
func (s *Server) Cut(limit time.Duration) bool {
	s.cancel()
	_ = s.listener.Close() // it may be closed already
	return retry.AwaitFunc(func() {
		<-s.served
		_ = s.http.Close() // after the last Accept, whose connection it would miss
		s.conns.Wait()
	}, limit)
}

// Served is closed when the Server accepts no more connections. Err returns the reason then.
func (s *Server) Served() <-chan struct{} { return s.served }

// Err waits until the Server accepts no more connections, and returns the reason:
// http.ErrServerClosed after Shutdown.
func (s *Server) Err() error {
	<-s.served
	return s.err
}

// Shutdown waits for the requests in flight, at most limit, and closes the connections of the
// others.
func (s *Server) Shutdown(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	s.cancel()
}
