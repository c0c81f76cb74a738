package socket

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"jettison/api"
	"jettison/internal/base/connlimit"
)

// Bounds of concurrent connections. Root's are counted separately from the group's, and those of
// each member separately from the others', so that none uses another's places. A new connection
// replaces the user's longest idle one. Refused connections get a place to receive the error.
const (
	maxOwner   = 32 // all scrapers of a node may connect in the same second
	maxMembers = 16
	maxMember  = 8 // for one user
	maxRefused = 16
	maxProbes  = 4 // of root beyond maxOwner, for liveness and readiness only
)

var (
	errStranger = &failure{
		status: http.StatusForbidden,
		text:   "forbidden: only root and the members of socketGroup may use this socket",
	}
	errMember = &failure{
		status: http.StatusForbidden,
		text: "forbidden: members of socketGroup may read, put or delete pods, and request admission; " +
			"only root may do more",
	}
	errCrowded = &failure{status: http.StatusServiceUnavailable,
		text: "too many connections: close some, or try again"}
	errNoState = &failure{status: http.StatusServiceUnavailable,
		text: "no state yet, or the loop hangs: try again"}
)

// memberMay reports whether a member of socketGroup may send the request. It does not depend on the
// paths that exist (docs/reference/socket.md).
func memberMay(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		// a profile uses CPU for as long as the client requests
		return !strings.HasPrefix(r.URL.Path, api.PathPprof)
	case http.MethodPut, http.MethodDelete:
		return r.URL.Path == api.PathPods || strings.HasPrefix(r.URL.Path, api.PathPods+"/")
	}
	// preemption is checked in postAdmit
	return r.Method == http.MethodPost && r.URL.Path == api.PathAdmit
}

// isProbe reports whether root gets an answer even beyond its connection limit.
func isProbe(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.URL.Path == api.PathHealth || r.URL.Path == api.PathReady)
}

// limited accepts connections, identifies their users and counts them.
type limited struct {
	*net.UnixListener
	gid    int
	places connlimit.Places

	mu  sync.Mutex
	all int // connections of members
}

// Keys of places. The key of a member is its uid.
const (
	ownerKey   connlimit.Key = -1
	refusedKey connlimit.Key = -2
	probeKey   connlimit.Key = -3
)

// conn is a connection and the role of its other end.
type conn struct {
	*net.UnixConn
	role    role
	refusal *failure // the answer to each request; nil: requests are served
	place   *connlimit.Place
	release func() // releases its place; further calls do nothing

	mu       sync.Mutex
	deadline time.Time // for reads, as set by net/http; zero: none
}

// Accept waits for a connection. An error ends the server, except a shortage.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM),
			errors.Is(err, unix.ENOBUFS):
			return nil, shortage{err} // net/http waits and retries
		default:
			return nil, err
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
		_ = c.Close()
	}
}

// shortage is a temporary error.
type shortage struct{ error }

func (shortage) Timeout() bool   { return false }
func (shortage) Temporary() bool { return true }

// admit gives a connection a place; nil: no place, not even for an error answer.
func (l *limited) admit(u *net.UnixConn) *conn {
	p, err := peerOf(u)
	c := &conn{UnixConn: u, role: p.role(l.gid)}
	if err != nil {
		c.role = stranger
	}
	if !l.seat(c, p.uid) {
		return nil
	}
	return c
}

// seat gives a peer a place, or one for an error answer. false: neither is available.
func (l *limited) seat(c *conn, uid uint32) bool {
	closeConn := func() { _ = c.UnixConn.Close() }
	switch c.role {
	case owner:
		c.place = l.places.Acquire(ownerKey, maxOwner, closeConn)
	case member:
		own := l.places.Count(connlimit.Key(uid))
		c.place = l.places.Acquire(connlimit.Key(uid), min(maxMember, own+maxMembers-l.addMembers(0)),
			closeConn)
	}
	if c.place != nil {
		c.release = c.place.Release
		if c.role == member {
			l.addMembers(1)
			c.release = sync.OnceFunc(func() { l.addMembers(-1); c.place.Release() })
		}
		return true
	}
	c.refusal = errCrowded
	if c.role == stranger {
		c.refusal = errStranger
	}
	if c.role == owner { // otherwise many connections of root could fail the liveness probe
		c.place = l.places.Acquire(probeKey, maxProbes, closeConn)
	}
	if c.place != nil {
		c.release = c.place.Release
		return true
	}
	if c.place = l.places.Acquire(refusedKey, maxRefused, closeConn); c.place == nil {
		return false
	}
	c.release = c.place.Release
	return true
}

// addMembers changes the number of members' connections by delta and returns it.
func (l *limited) addMembers(delta int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all += delta
	return l.all
}

// State records the state that net/http reports for the connection.
func (c *conn) State(s http.ConnState) { c.place.State(s) }

// Write writes a part of a response.
func (c *conn) Write(b []byte) (int, error) { return c.place.Write(c.UnixConn, b) }

// CloseWrite sends the end of the connection. net/http keeps the connection open for a moment
// afterwards.
func (c *conn) CloseWrite() error {
	c.place.Closing()
	return c.UnixConn.CloseWrite()
}

// readBody reads a part of a request body. c may be nil.
func (c *conn) readBody(from io.Reader, b []byte) (int, error) {
	if c == nil || c.place == nil {
		return from.Read(b)
	}
	return c.place.Read(from, b)
}

// Close closes the connection and releases its place.
func (c *conn) Close() error {
	err := c.UnixConn.Close()
	c.release()
	return err
}

// refusedLimit is the time within which a refused client must send its request.
const refusedLimit = time.Second

// SetReadDeadline keeps net/http from setting a later deadline than refusedLimit for a refused
// peer.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.refusal != nil && !t.IsZero() && time.Until(t) > refusedLimit {
		t = time.Now().Add(refusedLimit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.UnixConn.SetReadDeadline(t)
}

// setProgressDeadline sets the deadline for the next bytes of a body, if it is earlier than that of
// net/http.
func (c *conn) setProgressDeadline(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now().Add(limit)
	if !c.deadline.IsZero() && c.deadline.Before(t) {
		t = c.deadline
	}
	_ = c.UnixConn.SetReadDeadline(t) // fails only if it is closed: the next read returns the error
}
