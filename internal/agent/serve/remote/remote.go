// Package remote serves the readable part of the agent on the network, if the configuration enables
// it. Clients are not identified, so nothing there changes anything.
//
//	remote.go  Server: the listener, its bounds, and authentication
//	late.go    Late: an address that is not available yet
//	files.go   certificate, key and token, read again when they change
//	unread.go  responses that clients have not read yet
package remote

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/internal/base/httpserver"
)

// Bounds of connections and requests.
const (
	maxConnections = 32      // each may hold an unread response of some 300 KB
	maxAddress     = 8       // from one address, so that no peer uses all places
	maxHeader      = 8 << 10 // bytes
	headerLimit    = 5 * time.Second
	requestLimit   = 30 * time.Second // as long again to read the response
	idleLimit      = 30 * time.Second
	closeLimit     = 2 * time.Second
	// answerLimit is the time a response, or a stream of events, may take before another connection
	// may take the place. The slowest look at pods takes 10 s.
	answerLimit = 15 * time.Second
)

// Options of Listen.
type Options struct {
	Listen                         string // IP address and port
	TLSCertFile, TLSPrivateKeyFile string // empty: no TLS, on loopback only
	BearerTokenFile                string // empty: no authentication, on loopback only
	Reads                          Reads
}

// Reads serves GET and HEAD.
type Reads interface {
	// Remote returns the handler of a path; nil: the network has no such path. why is the reason if
	// the path exists on the unix socket only.
	Remote(path string) (h http.HandlerFunc, why string)
}

// Server serves until it is closed.
type Server struct{ http *httpserver.Server }

// Listen listens and serves. It returns an error if the address or a file is invalid, or the
// address is not available.
func Listen(o Options) (*Server, error) {
	h := &handler{reads: o.Reads}
	at, err := netip.ParseAddrPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen %q: want an IP address and a port", o.Listen)
	}
	if !at.Addr().Unmap().IsLoopback() && (o.TLSCertFile == "" || o.BearerTokenFile == "") {
		return nil, fmt.Errorf("listen %s: not a loopback address: set tlsCertFile, "+
			"tlsPrivateKeyFile and bearerTokenFile", o.Listen)
	}
	if o.BearerTokenFile != "" {
		if h.token, err = openToken(o.BearerTokenFile); err != nil {
			return nil, err
		}
	}
	var config *tls.Config
	if o.TLSCertFile != "" {
		c, err := openCertificate(o.TLSCertFile, o.TLSPrivateKeyFile)
		if err != nil {
			return nil, err
		}
		config = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get,
			NextProtos: []string{"http/1.1"}}
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", o.Listen, err)
	}
	return serve(l, config, h), nil
}

func serve(l net.Listener, config *tls.Config, h http.Handler) *Server {
	return &Server{httpserver.Start(context.Background(), l, httpserver.Options{
		Handler:           h,
		ReadHeaderTimeout: headerLimit, ReadTimeout: requestLimit, WriteTimeout: 2 * requestLimit,
		IdleTimeout:    idleLimit,
		MaxHeaderBytes: maxHeader, TLS: config,
		MaxConnections: maxConnections, MaxPerAddress: maxAddress, AnswerTimeout: answerLimit,
	})}
}

// Address returns the address that it listens on.
func (s *Server) Address() string { return s.http.Address() }

// Close closes all connections and waits for their requests. It returns an error if a request does
// not end.
func (s *Server) Close() error {
	if !s.http.Cut(closeLimit) {
		return errors.New("listen: a request did not end in time")
	}
	return nil
}

// handler authenticates and routes requests.
type handler struct {
	reads  Reads
	token  *token       // nil: not required
	unread atomic.Int64 // bytes of responses that clients have not read yet
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpserver.SkipBody(w, r)
	switch {
	case h.token != nil && !h.token.matches(r.Header.Get("Authorization")):
		w.Header().Set("WWW-Authenticate", "Bearer")
		fail(w, http.StatusUnauthorized,
			"unauthorized: send the token of bearerTokenFile: Authorization: Bearer TOKEN")
		return
	case h.token == nil && !httpserver.IsLoopbackHost(r.Host):
		fail(w, http.StatusForbidden,
			fmt.Sprintf("forbidden: host %.60q is not a loopback name: use 127.0.0.1, [::1] or localhost",
				r.Host))
		return
	}
	read, why := h.reads.Remote(r.URL.Path)
	switch {
	case read == nil && why != "":
		fail(w, http.StatusForbidden, "forbidden: "+why)
	case read == nil:
		fail(w, http.StatusNotFound, fmt.Sprintf("no path %.100q on the network: the paths are %s",
			r.URL.Path,
			strings.Join([]string{api.PathHealth, api.PathMetrics, api.PathReady, api.PathState,
				api.PathEvents}, ", ")))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "the network listener is read-only: use GET or HEAD")
	default:
		read(&httpserver.Answer{ResponseWriter: w, Hold: h.hold, Refuse: refuse}, r)
	}
}

func fail(w http.ResponseWriter, status int, text string) {
	body, _ := json.Marshal(api.ErrorAnswer{Error: text}) // cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
