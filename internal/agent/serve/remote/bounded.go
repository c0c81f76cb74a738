package remote

import (
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"jettison/internal/agent/serve/connlimit"
)

// bounded accepts so many connections at the same time, and so many of one address; others are hung
// up on.
type bounded struct {
	net.Listener
	places connlimit.Places
	each   int // of one address
	mu     sync.Mutex
	peers  map[netip.Prefix]int
}

// newBounded bounds a listener's connections. Where it is reached by way of loopback alone all
// peers are the node's, and which process has how many places no address says: those are not
// bounded each.
func newBounded(l net.Listener, loopback bool) *bounded {
	each := maxAddress
	if loopback {
		each = math.MaxInt
	}
	return &bounded{Listener: l, places: connlimit.Places{Patience: answerLimit}, each: each,
		peers: map[netip.Prefix]int{}}
}

// everybody has places in common: whoever connects is nobody.
const everybody connlimit.Key = 0

// Accept waits for a connection that has a place.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if peer := peerOf(c.RemoteAddr()); b.enter(peer) {
			if place := b.places.Take(everybody, maxConnections, func() { _ = c.Close() }); place != nil {
				return &conn{Conn: c, place: place, leave: sync.OnceFunc(func() { b.leave(peer) })}, nil
			}
			b.leave(peer)
		}
		_ = c.Close()
	}
}

func (b *bounded) enter(peer netip.Prefix) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.peers[peer] >= b.each {
		return false
	}
	b.peers[peer]++
	return true
}

func (b *bounded) leave(peer netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.peers[peer]--; b.peers[peer] == 0 {
		delete(b.peers, peer)
	}
}

// peerOf is what counts as one peer: an IPv4 address; the 64 bits of an IPv6 address within which a
// host chooses its own (RFC 4291, 2.5.1); loopback as a whole, of which any process has millions of
// addresses.
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
	peer, _ := ip.Prefix(bits) // no address has fewer
	return peer
}

const (
	ip6Bits  = 128
	hostBits = 64
)

// conn is a connection that has a place.
type conn struct {
	net.Conn
	place *connlimit.Place
	leave func() // among those of its address
}

// State follows what net/http does with the connection.
func (c *conn) State(s http.ConnState) { c.place.State(s) }

// Write writes some of an answer.
func (c *conn) Write(b []byte) (int, error) { return c.place.Write(c.Conn, b) }

// CloseWrite tells the client that this is the end; net/http keeps the connection for a moment
// then.
func (c *conn) CloseWrite() error {
	c.place.Leaves()
	c.leave()
	if half, is := c.Conn.(*net.TCPConn); is {
		return half.CloseWrite()
	}
	return nil
}

// Close gives the place back.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.place.Leave()
	c.leave()
	return err
}
