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
	"jettison/internal/agent/serve/connlimit"
)

// Bounds of connections at the same time. Root's are counted apart from the group's, and each
// member's apart from the others', so that none takes the place of another; of one's own that ask
// nothing the oldest goes for a new one. Those that are refused need a moment to be told so.
const (
	maxOwner   = 32 // a node's scrapers come at the same second
	maxMembers = 16
	maxMember  = 8 // of one user
	maxRefused = 16
	maxProbes  = 4 // of root's that have no place: they may ask whether the agent lives
)

var (
	errStranger = &failure{
		status: http.StatusForbidden,
		text:   "forbidden: only root and the members of socketGroup may use this socket",
	}
	errMember = &failure{
		status: http.StatusForbidden,
		text:   "forbidden: members of socketGroup may read, put or delete pods, and ask for admission; the rest is root's",
	}
	errCrowded = &failure{status: http.StatusServiceUnavailable,
		text: "too many connections: close some, or try again"}
	errNoState = &failure{status: http.StatusServiceUnavailable,
		text: "there is no state yet, or the loop hangs: try again"}
)

// memberMay is what a member of socketGroup may do, whatever is served later
// (docs/reference/socket.md).
func memberMay(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		// a profile takes CPU for as long as it is asked for
		return !strings.HasPrefix(r.URL.Path, api.PathPprof)
	case http.MethodPut, http.MethodDelete:
		return r.URL.Path == api.PathPods || strings.HasPrefix(r.URL.Path, api.PathPods+"/")
	}
	// which does not let them preempt
	return r.Method == http.MethodPost && r.URL.Path == api.PathAdmit
}

// isProbe is what root is answered whatever places others have.
func isProbe(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.URL.Path == api.PathHealth || r.URL.Path == api.PathReady)
}

// limited accepts connections, asks the kernel which user connected, and counts.
type limited struct {
	*net.UnixListener
	gid    int
	places connlimit.Places

	mu  sync.Mutex
	all int // of members
}

// Keys of places; a member's is its uid.
const (
	ofOwners  connlimit.Key = -1
	ofRefused connlimit.Key = -2
	ofProbes  connlimit.Key = -3
)

// conn is a connection with what is known of its other end.
type conn struct {
	*net.UnixConn
	role    role
	refusal *failure // what it is told instead of being served; nil: it is served
	place   *connlimit.Place
	release func() // gives its place back; it may be called again

	mu       sync.Mutex
	deadline time.Time // of reads, as net/http has it; zero: none
}

// Accept waits for a connection. An error is the listener's end.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM),
			errors.Is(err, unix.ENOBUFS):
			return nil, shortage{err} // net/http waits and accepts again
		default:
			return nil, err
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
		_ = c.Close()
	}
}

// shortage is an error that passes.
type shortage struct{ error }

func (shortage) Timeout() bool   { return false }
func (shortage) Temporary() bool { return true }

// admit gives a connection a place; nil: there is none, not even to be refused.
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

// seat gives a peer a place, or one to be told that there is none for it. false: it is not even to
// be told.
func (l *limited) seat(c *conn, uid uint32) bool {
	hangUp := func() { _ = c.UnixConn.Close() }
	switch c.role {
	case owner:
		c.place = l.places.Take(ofOwners, maxOwner, hangUp)
	case member:
		own := l.places.Count(connlimit.Key(uid))
		c.place = l.places.Take(connlimit.Key(uid), min(maxMember, own+maxMembers-l.members(0)), hangUp)
	}
	if c.place != nil {
		c.release = c.place.Leave
		if c.role == member {
			l.members(1)
			c.release = sync.OnceFunc(func() { l.members(-1); c.place.Leave() })
		}
		return true
	}
	c.refusal = errCrowded
	if c.role == stranger {
		c.refusal = errStranger
	}
	if c.role == owner { // else whoever follows in numbers has the agent killed by its liveness probe
		c.place = l.places.Take(ofProbes, maxProbes, hangUp)
	}
	if c.place != nil {
		c.release = c.place.Leave
		return true
	}
	if c.place = l.places.Take(ofRefused, maxRefused, hangUp); c.place == nil {
		return false
	}
	c.release = c.place.Leave
	return true
}

// members adds to how many connections of members there are.
func (l *limited) members(more int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all += more
	return l.all
}

// State follows what net/http does with the connection.
func (c *conn) State(s http.ConnState) { c.place.State(s) }

// Write writes some of an answer.
func (c *conn) Write(b []byte) (int, error) { return c.place.Write(c.UnixConn, b) }

// CloseWrite tells the client that this is the end; net/http keeps the connection for a moment
// then.
func (c *conn) CloseWrite() error {
	c.place.Leaves()
	return c.UnixConn.CloseWrite()
}

// readBody reads some of a request's body. c may be nil, without a connection.
func (c *conn) readBody(from io.Reader, b []byte) (int, error) {
	if c == nil || c.place == nil {
		return from.Read(b)
	}
	return c.place.Read(from, b)
}

// Close closes the connection and gives its place back.
func (c *conn) Close() error {
	err := c.UnixConn.Close()
	c.release()
	return err
}

// refusedLimit is how long a client that is refused may take to ask.
const refusedLimit = time.Second

// SetReadDeadline keeps net/http from giving a refused peer more time than it is to have.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.refusal != nil && !t.IsZero() && time.Until(t) > refusedLimit {
		t = time.Now().Add(refusedLimit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.UnixConn.SetReadDeadline(t)
}

// within has the next bytes of a body arrive sooner than net/http would have them.
func (c *conn) within(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now().Add(limit)
	if !c.deadline.IsZero() && c.deadline.Before(t) {
		t = c.deadline
	}
	_ = c.UnixConn.SetReadDeadline(t) // it is closed: the next read says so
}
