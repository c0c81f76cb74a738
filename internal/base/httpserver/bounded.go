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
	places connlimit.Places
	total  int
	each   int // limit for each address
	mu     sync.Mutex
	peers  map[netip.Prefix]int
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
		each: each, peers: map[netip.Prefix]int{}}
}

// allClients is the one key of all connections: clients are not identified.
const allClients connlimit.Key = 0

// Accept waits for a connection and returns it once it has a place.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if peer := peerOf(c.RemoteAddr()); b.count(peer) {
			if place := b.places.Acquire(allClients, b.total, func() { _ = c.Close() }); place != nil {
				return &conn{Conn: c, place: place, forget: sync.OnceFunc(func() { b.forget(peer) })}, nil
			}
			b.forget(peer)
		}
		_ = c.Close()
	}
}

func (b *bounded) count(peer netip.Prefix) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.peers[peer] >= b.each {
		return false
	}
	b.peers[peer]++
	return true
}

func (b *bounded) forget(peer netip.Prefix) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.peers[peer]--; b.peers[peer] == 0 {
		delete(b.peers, peer)
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

// conn is a connection that has a place.
type conn struct {
	net.Conn
	place  *connlimit.Place
	forget func() // removes it from the count of its address
}

// State records the state that net/http reports for the connection.
func (c *conn) State(s http.ConnState) { c.place.State(s) }

// Write writes a part of a response.
func (c *conn) Write(b []byte) (int, error) { return c.place.Write(c.Conn, b) }

// CloseWrite sends the end of the connection. net/http keeps the connection open for a moment
// afterwards.
func (c *conn) CloseWrite() error {
	c.place.Closing()
	c.forget()
	if half, is := c.Conn.(*net.TCPConn); is {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection and releases its place.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.place.Release()
	c.forget()
	return err
}
