package kubeclient

import (
	"context"
	"net"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"jettison/internal/base/retry"
)

// gatherRead is how many bytes are read at once. Whoever has read half of that reads on without a
// pause: more is there.
const readSize = 64 << 10

// Gathered is a configuration whose clients read what has come at most once in a gap. A watch of
// 5,000 Leases says something 500 times a second, and what each costs is the waking of whoever
// reads it, decrypts it and takes it apart: ten at once cost little more than one.
func BatchedReads(c *rest.Config, gap time.Duration) *rest.Config {
	own := rest.CopyConfig(c)
	dial := own.Dial
	if dial == nil {
		// as client-go's own
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	own.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &batchedConn{Conn: conn, gap: gap, closed: make(chan struct{})}, nil
	}
	return own
}

// gathered is a connection that is read from at most once in a gap. As any connection of net/http's
// it has one reader.
type batchedConn struct {
	net.Conn
	gap      time.Duration
	closed   chan struct{}
	once     sync.Once // closes it
	buffer   []byte    // nil until it is read from
	unread   []byte    // of the buffer: read, and not asked for yet
	readErr  error     // what came with the last of them
	lastRead time.Time
	full     bool // the last read brought so much that more may be there
}

// Close closes it. Nobody waits to read from it any more.
func (g *batchedConn) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Conn.Close()
}

// Read gives what was read, or else waits until the gap is over, and for something to come.
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
