// Package ui implements jettison ui: it serves a web page about the agent on this node, or on
// another one through internal/cli/tunnel, to browsers on this machine. It runs as a process of the
// user and reads the agent's socket. The agent itself serves no page.
//
//	command.go  Command: jettison ui
//	ui.go       Run: starts and stops the server
//	listen.go   the address: loopback only
//	handler.go  HTTP handler: access checks, headers, files of the page
//	stream.go   the stream of changes to a browser
//	watch.go    queries to the agent
//	board.go    board: the data, in parts that are sent to browsers
//	history.go  samples of signals, one a second
//
// The page in page/ is hand-written and embedded, and loads nothing from other sites.
package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"jettison/api"
	"jettison/internal/base/httpserver"
)

// Bounds of connections and requests.
const (
	maxConnections = 64
	maxHeader      = 8 << 10 // bytes
	headerTimeout  = 5 * time.Second
	idleTimeout    = 30 * time.Second
	// writeTimeout bounds one write to a browser. A disconnected browser reconnects by itself.
	writeTimeout    = 10 * time.Second
	shutdownTimeout = 2 * time.Second
)

// Options of Run.
type Options struct {
	Socket  string // the agent's socket; with Transport, the agent's name
	Listen  string // address, as in ParseListen
	Version string // version of jettison ui
	Node    string // node name; empty: the host name
	// Transport sends the requests to the agent of another machine; nil: to Socket.
	Transport http.RoundTripper
}

// Run serves the page until ctx ends. It prints the page's address on stdout, and on stderr how to
// open it from another machine.
func Run(ctx context.Context, o Options, stdout, stderr io.Writer) error {
	address, err := ParseListen(o.Listen)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("ui: listen: %w: choose a free port with --listen, or 0 for any", err)
	}
	if o.Node == "" {
		o.Node, _ = os.Hostname()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := newBoard(o)
	h := &handler{board: b, key: rand.Text(), port: port(l), writeTimeout: writeTimeout}
	w := &watch{client: api.New(api.Options{Socket: o.Socket, Limit: queryTimeout,
		Transport: o.Transport}), board: b,
		recordsDue: make(chan struct{}, 1)}
	var pollers sync.WaitGroup
	pollers.Go(func() { w.pollState(ctx) })
	pollers.Go(func() { w.pollOutlook(ctx) })
	pollers.Go(func() { w.pollRecords(ctx) })
	pollers.Go(func() { w.followEvents(ctx) })
	defer pollers.Wait()
	defer cancel()
	if err := printAddress(stdout, stderr, l, h, &o); err != nil {
		_ = l.Close()
		return err
	}
	return serve(ctx, l, h)
}

// printAddress prints the page's address, and how to open it from another machine. With a Transport
// the browser is on this machine.
func printAddress(stdout, stderr io.Writer, l net.Listener, h *handler, o *Options) error {
	if _, err := fmt.Fprintf(stdout, "http://%s/?key=%s\n", l.Addr(), h.key); err != nil {
		return fmt.Errorf("ui: print the address: %w", err)
	}
	hint := fmt.Sprintf("from another machine, run ssh -L %s:%s %s and open the same address there",
		h.port, l.Addr(), o.Node)
	if o.Transport != nil {
		hint = "connected to node " + o.Node
	}
	fmt.Fprintf(stderr, "jettison: ui: %s; stop with Ctrl-C\n", hint)
	return nil
}

// serve serves requests until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := httpserver.Start(ctx, l, httpserver.Options{ // streams end with ctx
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, MaxConnections: maxConnections,
	})
	select {
	case <-server.Served():
		return fmt.Errorf("ui: serve: %w", server.Err())
	case <-ctx.Done():
	}
	server.Shutdown(shutdownTimeout)
	if err := server.Err(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("ui: serve: %w", err)
	}
	return nil
}
