package kubeclient

import (
	"net"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"jettison/internal/base/retry"
)

// readSize is the size of one read, in bytes. After a read of half of it or more, the next one
// follows without a pause, because more data is probably available.
const readSize = 64 << 10

// BatchedReads returns a configuration for clients that read each connection at most once per gap.
// A watch of 5,000 Leases sends 500 events per second. The main cost of each is to wake the
// goroutines that read, decrypt and decode it: ten in one read cost little more than one.
func BatchedReads(c *rest.Config, gap time.Duration) *rest.Config {
	return wrapConnections(c, func(conn net.Conn) net.Conn {
		return &batchedConn{Conn: conn, gap: gap, closed: make(chan struct{})}
	})
}

// batchedConn is a connection that is read at most once per gap. Like each connection of net/http
// it has one reader.
type batchedConn struct {
	net.Conn
	gap      time.Duration
	closed   chan struct{}
	once     sync.Once // for Close
	buffer   []byte    // nil before the first read
	unread   []byte    // the part of buffer that was not returned yet
	readErr  error     // the error of the last read
	lastRead time.Time
	full     bool // the last read was large, more data may be available
}

// Close closes the connection and ends a waiting Read.
func (g *batchedConn) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Conn.Close()
}

// Read returns buffered data, or waits for the end of the gap and for new data.
func (g *batchedConn) Read(b []byte) (int, error) {
	if len(g.unread) == 0 {
		if g.readErr != nil {
			return 0, g.readErr
		}
		if g.buffer == nil {
			g.buffer = make([]byte, readSize)
		}
		if wait := g.gap - time.Since(g.lastRead); wait > 0 && !g.full {
			retry.Await(g.closed, wait)
		}
		var n int
		n, g.readErr = g.Conn.Read(g.buffer)
		g.unread, g.lastRead, g.full = g.buffer[:n], time.Now(), n >= readSize/2
		if n == 0 {
			return 0, g.readErr
		}
	}
	n := copy(b, g.unread)
	g.unread = g.unread[n:]
	return n, nil
}
