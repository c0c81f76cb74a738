package socket

import (
	"errors"
	"jettison/api"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of connections at the same time. Root's are counted apart from the group's, and each member's apart from the others', so
// that none takes the place of another. Those that are refused need a moment to be told so.
const (
	maxOwner   = 32 // a node's scrapers come at the same second
	maxMembers = 16
	maxMember  = 8 // of one user
	maxRefused = 16
)

var (
	errStranger = &failure{
		status: http.StatusForbidden, text: "forbidden: only root and the members of socketGroup may use this socket",
	}
	errMember = &failure{
		status: http.StatusForbidden,
		text:   "forbidden: members of socketGroup may read, put or delete pods, and ask for admission; the rest is root's",
	}
	errCrowded = &failure{status: http.StatusServiceUnavailable, text: "too many connections: close some, or try again"}
	errNoState = &failure{status: http.StatusServiceUnavailable, text: "there is no state yet, or the loop hangs: try again"}
)

// memberMay is what a member of socketGroup may do, whatever is served later (docs/reference/socket.md).
func memberMay(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return !strings.HasPrefix(r.URL.Path, api.PathPprof) // a profile takes CPU for as long as it is asked for
	case http.MethodPut, http.MethodDelete:
		return r.URL.Path == api.PathPods || strings.HasPrefix(r.URL.Path, api.PathPods+"/")
	}
	return r.Method == http.MethodPost && r.URL.Path == api.PathAdmit // which does not let them preempt
}

// limited accepts connections, asks the kernel which user connected, and counts.
type limited struct {
	*net.UnixListener
	gid int

	mu      sync.Mutex
	owners  int
	refused int
	members map[uint32]int // by uid
	all     int            // of members
}

// conn is a connection with what is known of its other end.
type conn struct {
	*net.UnixConn
	role    role
	refusal *failure // what it is told instead of being served; nil: it is served
	release func()   // gives its place back, once

	mu       sync.Mutex
	deadline time.Time // of reads, as net/http has it; zero: none
}

// Accept waits for a connection. An error is the listener's end.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS):
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
	if c.release, c.refusal = l.place(c.role, p.uid); c.release == nil {
		return nil
	}
	return c
}

// place counts a peer. It returns how to give the place back, which may be called again, and what the peer is told if it is not to
// be served. No release: it is not even to be told.
func (l *limited) place(r role, uid uint32) (release func(), refusal *failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r == owner && l.owners < maxOwner:
		l.owners++
		return sync.OnceFunc(func() { l.leave(&l.owners) }), nil
	case r == member && l.all < maxMembers && l.members[uid] < maxMember:
		l.all++
		l.members[uid]++
		return sync.OnceFunc(func() { l.leaveMember(uid) }), nil
	case l.refused == maxRefused:
		return nil, nil
	case r == stranger:
		refusal = errStranger
	default:
		refusal = errCrowded
	}
	l.refused++
	return sync.OnceFunc(func() { l.leave(&l.refused) }), refusal
}

func (l *limited) leave(count *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*count--
}

func (l *limited) leaveMember(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.members[uid]--; l.members[uid] == 0 {
		delete(l.members, uid)
	}
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
