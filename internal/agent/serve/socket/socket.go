// Package socket serves the agent's unix socket: HTTP and JSON for users that may use it, as the
// kernel names them.
//
//	socket.go     Server: what it is made of, and how it ends
//	listen.go     the socket's file: its folder, mode, group and lock
//	refuse.go     who is refused: by role, and by how many connections each has
//	peer.go       which user connected, and what it may do
//	handler.go    requests and answers
//	admission.go  whether the node takes a pod
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
	requestLimit = 30 * time.Second // to send it, and as long again to take the answer
	// progressLimit is for each MiB of a body once it has begun: a client on the same node needs some
	// milliseconds.
	progressLimit = 10 * time.Second
	idleLimit     = 30 * time.Second // between two requests of a connection
)

// closeLimit is how long Close waits for requests under way. None of them waits for anything but
// its client, which is cut off, and the decoder, which looks up after each pod.
const closeLimit = 2 * time.Second

// Options of Listen.
type Options struct {
	Path string // of the socket
	// socketGroup, by name or number; empty: only root and the user that the agent runs as
	Group string
	Pods  *podstore.Store
	// State is what GET /v1/state answers with, as encoding/json writes it: a value that is never
	// changed, at any time, from any goroutine. nil, or a value that is nil: 503, there is no state
	// yet.
	State func() any
	// Outlook is what GET /v1/outlook answers with, likewise.
	Outlook func() any
	// Admission answers POST /v1/admit. nil: 503.
	Admission Admission
	// Reads are further paths that are read, and change nothing. nil: there are none.
	Reads Reads
}

// Reads answer GET and HEAD.
type Reads interface {
	Find(path string) http.HandlerFunc // nil: there is no such path
	Paths() []string                   // those that there are, for people
}

// Server serves the socket until it is closed.
type Server struct {
	bound *bound
	http  *httpserver.Server
	limit time.Duration // of Close
}

// limits are those that tests change.
type limits struct {
	header, request, idle time.Duration
	close                 time.Duration // closeLimit
	body                  int64         // maxBody
	progress              time.Duration // progressLimit
}

// Listen makes the socket and serves it. Errors say what is wrong with the path or the group, or
// that another agent has it.
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

// connKey is where a request's context has its *conn.
type connKey struct{}

// Close removes the socket, cuts off clients and waits for what they had asked for to end. The
// error says that something did not.
func (s *Server) Close() error {
	s.bound.release()
	if !s.http.Cut(s.limit) {
		return errors.New("socket: a request does not end")
	}
	return nil
}
