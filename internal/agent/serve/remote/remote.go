// Package remote serves on the network what may be read of the agent, where the configuration says
// so. Whoever connects is nobody: nothing there changes anything.
//
//	remote.go  Server: the listener, its bounds, and who is let in
//	bounded.go connections, all together and of one address
//	late.go    Late: an address that is not free yet
//	files.go   certificate, key and token, read again when they change
//	unread.go  answers, until clients have taken them
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
	maxConnections = 32      // each may keep an answer of some 300 KB that its client does not take
	maxAddress     = 8       // of one address, so that no peer takes the places of all others
	maxHeader      = 8 << 10 // bytes
	headerLimit    = 5 * time.Second
	requestLimit   = 30 * time.Second // as long again to take the answer
	idleLimit      = 30 * time.Second
	closeLimit     = 2 * time.Second
	// answerLimit is how long an answer may take, and a reader of events may follow, before another's
	// connection may have the place. The slowest look at pods takes 10 s.
	answerLimit = 15 * time.Second
)

// Options of Listen.
type Options struct {
	Listen                         string // IP address and port
	TLSCertFile, TLSPrivateKeyFile string // empty: no TLS, on loopback only
	BearerTokenFile                string // empty: whoever connects, on loopback only
	Reads                          Reads
}

// Reads answer GET and HEAD.
type Reads interface {
	// Remote is what answers at a path. nil: nothing does; why there is none although the unix socket
	// has it, is in words.
	Remote(path string) (h http.HandlerFunc, why string)
}

// Server serves until it is closed.
type Server struct{ http *httpserver.Server }

// Listen listens and serves. Errors say what is wrong with the address or a file.
func Listen(o Options) (*Server, error) {
	h := &handler{reads: o.Reads}
	at, err := netip.ParseAddrPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen %q: want an IP address and a port", o.Listen)
	}
	h.loopback = at.Addr().Unmap().IsLoopback()
	if !h.loopback && (o.TLSCertFile == "" || o.BearerTokenFile == "") {
		return nil, fmt.Errorf("listen %s: not loopback, so that it needs tlsCertFile, "+
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
	return serve(newBounded(l, h.loopback), config, h), nil
}

func serve(l net.Listener, config *tls.Config, h http.Handler) *Server {
	return &Server{httpserver.Start(context.Background(), l, httpserver.Options{
		Handler:           h,
		ReadHeaderTimeout: headerLimit, ReadTimeout: requestLimit, WriteTimeout: 2 * requestLimit,
		IdleTimeout:    idleLimit,
		MaxHeaderBytes: maxHeader, TLS: config,
	})}
}

// Address is where it listens.
func (s *Server) Address() string { return s.http.Address() }

// Close cuts off clients and waits for what they had asked for to end. The error says that
// something did not.
func (s *Server) Close() error {
	if !s.http.Cut(closeLimit) {
		return errors.New("listen: a request does not end")
	}
	return nil
}

// handler lets in who may read.
type handler struct {
	reads    Reads
	token    *token // nil: none is needed
	loopback bool
	unread   atomic.Int64 // bytes of answers that clients have not taken yet
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // nothing here takes a body, and nobody waits for the rest of one
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // it is closed
	}
	switch {
	case h.token != nil && !h.token.is(r.Header.Get("Authorization")):
		w.Header().Set("WWW-Authenticate", "Bearer")
		fail(w, http.StatusUnauthorized,
			"unauthorized: send the token of bearerTokenFile: Authorization: Bearer TOKEN")
		return
	case h.token == nil && !isLocal(r.Host):
		// A page in a browser on this node may have any name resolve to loopback, and would read what is
		// here.
		fail(w, http.StatusForbidden,
			fmt.Sprintf("forbidden: %.60q is no name of loopback: ask by 127.0.0.1, [::1] or localhost",
				r.Host))
		return
	}
	read, why := h.reads.Remote(r.URL.Path)
	switch {
	case read == nil && why != "":
		fail(w, http.StatusForbidden, "forbidden: "+why)
	case read == nil:
		fail(w, http.StatusNotFound, fmt.Sprintf("no such path on the network: %.100q: there are %s",
			r.URL.Path,
			strings.Join([]string{api.PathHealth, api.PathMetrics, api.PathReady, api.PathState,
				api.PathEvents}, ", ")))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "on the network nothing is changed: use GET or HEAD")
	default:
		read(&httpserver.Answer{ResponseWriter: w, Hold: h.hold, Refuse: refuse}, r)
	}
}

// isLocal reports whether a Host header names loopback.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	address, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && address.Unmap().IsLoopback()
}

func fail(w http.ResponseWriter, status int, text string) {
	body, _ := json.Marshal(api.ErrorAnswer{Error: text}) // cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
