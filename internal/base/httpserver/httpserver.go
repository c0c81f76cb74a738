// Package httpserver serves HTTP on a unix socket or on TCP with bounds on connections, requests
// and its own end.
//
//	httpserver.go  Server: what it is made of, and how it ends
//	bounded.go     a listener that hangs up on connections beyond a bound
//	answer.go      answers whose bytes count until clients have taken them
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

// Options of Start. The time-outs are those of net/http.
type Options struct {
	Handler http.Handler

	ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	MaxHeaderBytes                                            int

	MaxConnections int         // the server hangs up on others; 0: the listener bounds them
	TLS            *tls.Config // nil: none
	// ConnContext changes the context of a connection's requests; nil: it stays.
	ConnContext func(context.Context, net.Conn) context.Context
}

// Stater is a connection that follows its own state. Server calls State from the connection's
// goroutine.
type Stater interface{ State(http.ConnState) }

// Server serves until Cut or Shutdown.
type Server struct {
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	served   chan struct{} // closed when no connection is accepted any more
	err      error         // of serving; written before served is closed
	conns    sync.WaitGroup
}

// Start serves a listener, which belongs to the Server from then on. Contexts of requests end with
// ctx, or with Cut. What clients do wrong is answered, not logged.
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
		l = &bounded{Listener: l, places: make(chan struct{}, o.MaxConnections)}
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

// Address is where the Server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// count follows the goroutines of connections: net/http reports when one begins and when it is
// about to end.
func (s *Server) count(c net.Conn, state http.ConnState) {
	if over, is := c.(*tls.Conn); is {
		c = over.NetConn()
	}
	if c, is := c.(Stater); is {
		c.State(state)
	}
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Done()
	}
}

// Cut closes the listener, cuts off clients and waits, limit at most, for the requests under way.
// It reports whether they ended in time.
func (s *Server) Cut(limit time.Duration) bool {
	s.cancel()
	_ = s.listener.Close() // it may be closed already
	return retry.AwaitFunc(func() {
		<-s.served
		_ = s.http.Close() // now that none is being accepted, which it would not see
		s.conns.Wait()
	}, limit)
}

// Served is closed when the Server accepts no connection any more. Err is the reason then.
func (s *Server) Served() <-chan struct{} { return s.served }

// Err waits until the Server accepts no connection any more, and returns why: http.ErrServerClosed
// after Shutdown.
func (s *Server) Err() error {
	<-s.served
	return s.err
}

// Shutdown ends the Server as the function Shutdown does.
func (s *Server) Shutdown(limit time.Duration) {
	Shutdown(s.http, limit)
	s.cancel()
}

// Shutdown ends a server of net/http: it waits for the requests under way, limit at most, and cuts
// off those that take longer.
func Shutdown(s *http.Server, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
