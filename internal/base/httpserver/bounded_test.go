package httpserver

import (
	"net"
	"net/netip"
	"testing"
)

// Limits of the test's listener, as the agent's.
const maxConnections, maxAddress = 32, 8

// queue is a listener whose connections come from a list of addresses.
type queue struct {
	net.Listener
	from []string
}

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (c from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.address), 40000))
}

func (from) Close() error { return nil }

func (q *queue) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero} }

func (q *queue) Accept() (net.Conn, error) {
	if len(q.from) == 0 {
		return nil, net.ErrClosed
	}
	next := q.from[0]
	q.from = q.from[1:]
	return from{address: next}, nil
}

// One peer, with however many addresses, leaves places for others. Closed connections release their
// places.
func TestConnectionsOfOneAddress(t *testing.T) {
	var all []string
	for range maxConnections {
		all = append(all, "192.0.2.1")
	}
	for i := range maxConnections {
		all = append(all, netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: byte(i)}).String(), netip.AddrFrom4([4]byte{127, 0, 0, byte(i)}).String())
	}
	q := &queue{from: append(all, "192.0.2.2", "::ffff:192.0.2.1")}
	b := newBounded(q, maxConnections, maxAddress, 0)
	served := map[netip.Prefix]int{}
	var conns []net.Conn
	for {
		c, err := b.Accept()
		if err != nil {
			break
		}
		conns = append(conns, c)
		served[peerOf(c.RemoteAddr())]++
	}
	for peer, n := range served {
		if n > maxAddress {
			t.Errorf("%v has %d of %d places, want at most %d", peer, n, maxConnections, maxAddress)
		}
	}
	if other := netip.MustParsePrefix("192.0.2.2/32"); served[other] != 1 || len(served) != 4 {
		t.Errorf("connections served by address = %v, want one of %v and 4 addresses", served, other)
	}
	for _, c := range conns {
		for range 2 {
			_ = c.Close()
		}
	}
	if n := b.places.Count(allClients); n != 0 || len(b.peers) != 0 {
		t.Errorf("after Close %d places are in use, by %v; want none", n, b.peers)
	}
}
