package httpserver

import (
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"jettison/internal/base/connlimit"
)

// bounded accepts a limited number of connections, in total and from each address. It closes
// further ones.
type bounded struct {
	net.Listener
	places        connlimit.Places
	total         int
	each          int // limit for each address
	answerTimeout time.Duration
	mu            sync.Mutex
	peers         map[netip.Prefix]*peer
}

// peer has the places of an address. When all are in use, a new connection replaces one that is
// idle, stalled or too slow, too: the kubelet's probes may come from the address of a hostile pod,
// as on the host's network, or from its prefix.
type peer struct {
	places connlimit.Places
	conns  int // connections that are not closed; 0: forgotten
}

// newBounded bounds the connections of a listener; each 0: any number from one address. On loopback
// all peers are processes of this host, which their addresses cannot tell apart, so each does not
// apply.
func newBounded(l net.Listener, total, each int, answerTimeout time.Duration) *bounded {
	at, ok := l.Addr().(*net.TCPAddr)
	if each == 0 || ok && at.IP.IsLoopback() {
		each = math.MaxInt
	}
	return &bounded{Listener: l, places: connlimit.Places{AnswerTimeout: answerTimeout}, total: total,
		each: each, answerTimeout: answerTimeout, peers: map[netip.Prefix]*peer{}}
}

// allClients is the one key of all connections: clients are not identified.
const allClients connlimit.Key = 0

// Accept waits for a connection and returns it once it has a place, in total and of its address.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := peerOf(c.RemoteAddr())
		from, cut := b.join(address), func() { _ = c.Close() }
		if own := from.places.Acquire(allClients, b.each, cut); own != nil {
			if place := b.places.AcquireFor(b.sizeOf(from), allClients, b.total, cut); place != nil {
				return &conn{Conn: c, place: place, own: own,
					forget: sync.OnceFunc(func() { b.leave(address) })}, nil
			}
			own.Release()
		}
		b.leave(address)
		_ = c.Close()
	}
}

// join counts a connection of an address.
func (b *bounded) join(address netip.Prefix) *peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[address]
	if p == nil {
		p = &peer{places: connlimit.Places{AnswerTimeout: b.answerTimeout}}
		b.peers[address] = p
	}
	p.conns++
	return p
}

// sizeOf returns the number of connections of an address.
func (b *bounded) sizeOf(p *peer) func() int {
	return func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return p.conns
	}
}

func (b *bounded) leave(address netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[address]
	if p.conns--; p.conns == 0 {
		delete(b.peers, address)
	}
}

// peerOf returns the prefix that counts as one peer: an IPv4 address; the 64 bits of an IPv6
// address within which a host chooses its own address (RFC 4291, 2.5.1); or all of loopback, where
// each process has millions of addresses.
func peerOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.IsLoopback() {
		return netip.PrefixFrom(netip.IPv6Loopback(), ip6Bits)
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = hostBits
	}
	peer, _ := ip.Prefix(bits) // cannot fail: each address has as many bits
	return peer
}

const (
	ip6Bits  = 128
	hostBits = 64
)

// conn is a connection that has a place in total and one of its address.
type conn struct {
	net.Conn
	place, own *connlimit.Place
	forget     func() // removes it from the connections of its address
}

// State records the state that net/http reports for the connection.
func (c *conn) State(s http.ConnState) {
	c.place.State(s)
	c.own.State(s)
}

// Write writes a part of a response.
func (c *conn) Write(b []byte) (int, error) { return c.place.Write(ownWriter{c}, b) }

// ownWriter writes for the place of the address.
type ownWriter struct{ *conn }

// Write writes a part of a response.
func (o ownWriter) Write(b []byte) (int, error) { return o.own.Write(o.Conn, b) }

// CloseWrite sends the end of the connection. net/http keeps the connection open for a moment
// afterwards.
func (c *conn) CloseWrite() error {
	c.place.Closing()
	c.own.Closing()
	if half, is := c.Conn.(*net.TCPConn); is {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection and releases its places.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.place.Release()
	c.own.Release()
	c.forget()
	return err
}
