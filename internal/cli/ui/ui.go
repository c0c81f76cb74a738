// Package ui is jettison ui: a page for a browser on this machine, of what the agent on this node
// sees, decides and does. It is a process of the user's own that reads the agent's socket. The
// agent serves no page and knows of none.
//
//	command.go  Command: jettison ui
//	ui.go       Run: what it is made of, and how it ends
//	listen.go   where it listens: on loopback only
//	handler.go  who is answered, with what headers: the page, and its stream
//	stream.go   what a browser is sent as it changes
//	watch.go    what the agent is asked, and when
//	board.go    board: what is known, in parts that browsers are sent
//	history.go  what signals were, second by second
//
// The page lies in page/: hand-written, embedded, without anything from elsewhere.
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
	headerLimit    = 5 * time.Second
	idleLimit      = 30 * time.Second
	// patience is how long a browser may take for what it is sent at once. One that is cut off comes
	// again by itself.
	patience   = 10 * time.Second
	closeLimit = 2 * time.Second
)

// Options of Run.
type Options struct {
	Socket  string // of the agent
	Listen  string // as ParseListen takes it
	Version string // of this program
	Node    string // its name; empty: the machine's
}

// Run serves the page until ctx ends. It prints the page's address on stdout, and how to see it
// from another machine on stderr.
func Run(ctx context.Context, o Options, stdout, stderr io.Writer) error {
	at, err := ParseListen(o.Listen)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("ui: listen: %w: name a port that is free, or 0 for any, with --listen", err)
	}
	if o.Node == "" {
		o.Node, _ = os.Hostname()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := newBoard(o)
	h := &handler{board: b, key: rand.Text(), port: port(l), patience: patience}
	w := &watch{client: api.New(api.Options{Socket: o.Socket, Limit: askLimit}), board: b,
		poked: make(chan struct{}, 1)}
	var beside sync.WaitGroup
	beside.Go(func() { w.run(ctx) })
	beside.Go(func() { w.keep(ctx) })
	beside.Go(func() { w.follow(ctx) })
	defer beside.Wait()
	defer cancel()
	if err := say(stdout, stderr, l, h, o.Node); err != nil {
		_ = l.Close()
		return err
	}
	return serve(ctx, l, h)
}

// say prints where the page is.
func say(stdout, stderr io.Writer, l net.Listener, h *handler, node string) error {
	if _, err := fmt.Fprintf(stdout, "http://%s/?key=%s\n", l.Addr(), h.key); err != nil {
		return fmt.Errorf("ui: print the address: %w", err)
	}
	fmt.Fprintf(stderr, "jettison: ui: from another machine: ssh -L %s:%s %s, and open the same "+
		"address there; Ctrl-C ends the page\n",
		h.port, l.Addr(), node)
	return nil
}

// serve answers until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := httpserver.Start(ctx, l, httpserver.Options{ // streams end with ctx
		Handler: h, ReadHeaderTimeout: headerLimit, ReadTimeout: headerLimit, WriteTimeout: patience,
		IdleTimeout:    idleLimit,
		MaxHeaderBytes: maxHeader, MaxConnections: maxConnections,
	})
	select {
	case <-server.Served():
		return fmt.Errorf("ui: serve: %w", server.Err())
	case <-ctx.Done():
	}
	server.Shutdown(closeLimit)
	if err := server.Err(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("ui: serve: %w", err)
	}
	return nil
}
