// Package socket serves the agent's unix socket: HTTP and JSON for authorized users, identified by
// the kernel.
//
//	socket.go       Server: its parts, and how it ends
//	listen.go       the socket's file: its directory, mode, group and lock
//	permissions.go  refusals by role, and limits of connections
//	peer.go         the user that connected, and its role
//	handler.go      requests and answers
//	admission.go    admission of pods
package socket

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/base/httpserver"
)

// Bounds of a request.
const (
	maxHeader    = 8 << 10 // bytes
	maxBody      = api.MaxPodsBytes
	headerLimit  = 5 * time.Second
	requestLimit = 30 * time.Second // to send it, and as long again to read the answer
	// progressLimit is for each MiB of a body: a client on the same node needs some milliseconds.
	progressLimit = 10 * time.Second
	idleLimit     = 30 * time.Second // between two requests of a connection
)

// closeLimit is the time for which Close waits for requests in flight. They wait only for their
// clients, whose connections are closed, and for the decoder, which checks for the end after each
// pod.
const closeLimit = 2 * time.Second

// Options of Listen.
type Options struct {
	Path string // of the socket
	// socketGroup, by name or number; empty: only root and the user that the agent runs as
	Group string
	Pods  *podstore.Store
	// State returns the answer to GET /v1/state, encoded by encoding/json. It is called from any
	// goroutine, and the value never changes. nil function or value: status 503, no state yet.
	State func() any
	// Outlook returns the answer to GET /v1/outlook. It is called from any goroutine, and the value
	// never changes. An error, or nil function: status 503.
	Outlook func(context.Context) (*api.Outlook, error)
	// Admission answers POST /v1/admit. nil: 503.
	Admission Admission
	// Reads serves further read-only paths; nil: none.
	Reads Reads
}

// Reads serves GET and HEAD.
type Reads interface {
	Find(path string) http.HandlerFunc // nil: no such path
	Paths() []string                   // for error texts
}

// Server serves the socket until it is closed.
type Server struct {
	bound *bound
	http  *httpserver.Server
	limit time.Duration // for Close
}

// limits are the limits that tests change.
type limits struct {
	header, request, idle time.Duration
	close                 time.Duration // closeLimit
	body                  int64         // maxBody
	progress              time.Duration // progressLimit
}

// Listen creates the socket and serves it. It returns an error if the path or the group is invalid,
// or if another agent uses the socket.
func Listen(o Options) (*Server, error) {
	return listen(o, limits{headerLimit, requestLimit, idleLimit, closeLimit, maxBody, progressLimit})
}

func listen(o Options, l limits) (*Server, error) {
	gid, err := groupID(o.Group)
	if err != nil {
		return nil, err
	}
	b, err := bind(o.Path, gid)
	if err != nil {
		return nil, err
	}
	h := &handler{
		pods: o.Pods, state: o.State, outlook: o.Outlook, admission: o.Admission, reads: o.Reads,
		limit: 2 * l.request,
		body:  l.body, progress: l.progress,
	}
	server := httpserver.Start(context.Background(), &limited{UnixListener: b.UnixListener, gid: gid},
		httpserver.Options{
			Handler:           h,
			ReadHeaderTimeout: l.header, ReadTimeout: l.request, WriteTimeout: 2 * l.request,
			IdleTimeout: l.idle, MaxHeaderBytes: maxHeader,
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, c)
			},
		})
	return &Server{bound: b, http: server, limit: l.close}, nil
}

// connKey is the context key of a request's *conn.
type connKey struct{}

// Close removes the socket, closes all connections and waits for their requests. It returns an
// error if a request does not end.
func (s *Server) Close() error {
	s.bound.release()
	if !s.http.Cut(s.limit) {
		return errors.New("socket: a request did not end in time")
	}
	return nil
}
