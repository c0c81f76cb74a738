package kubeclient

import (
	"errors"
	"net"
	"net/http"

	"k8s.io/client-go/rest"
)

// ErrNotLeading is the error of a request that was not sent because another replica may lead.
var ErrNotLeading = errors.New("not sent: this replica is not the leader")

// Guarded returns a configuration for clients that send only while holds returns true. holds is
// called before each request, and again before each write to a connection: leadership may have
// ended while the request waited for the rate limit or a connection, or while the process was
// stopped. A client that reads while another replica leads needs a configuration of its own.
func Guarded(c *rest.Config, holds func() bool) *rest.Config {
	copied := wrapConnections(c, func(conn net.Conn) net.Conn { return &guardedConn{conn, holds} })
	copied.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &guard{next: next, holds: holds}
	})
	return copied
}

type guard struct {
	next  http.RoundTripper
	holds func() bool
}

// RoundTrip sends a request while holds returns true.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if !g.holds() {
		if r.Body != nil {
			_ = r.Body.Close() // required of each RoundTripper
		}
		return nil, ErrNotLeading
	}
	return g.next.RoundTrip(r)
}

// guardedConn is a connection that sends only while holds returns true.
type guardedConn struct {
	net.Conn
	holds func() bool
}

// Write sends data. After an error, net/http closes the connection.
func (g *guardedConn) Write(b []byte) (int, error) {
	if !g.holds() {
		return 0, ErrNotLeading
	}
	return g.Conn.Write(b)
}
