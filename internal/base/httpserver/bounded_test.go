package httpserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
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
		c.(*conn).State(http.StateActive) // busy connections keep their places
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

// samePeer is a listener whose connections all come from one peer, such as the pods and the kubelet
// of a node in an IPv6 cluster.
type samePeer struct {
	*pipes
	next byte
}

func (s *samePeer) Accept() (net.Conn, error) {
	c, err := s.pipes.Accept()
	if err != nil {
		return nil, err
	}
	s.next++
	return piped{c, netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: s.next})}, nil
}

// piped is a connection from an address that is closed for real.
type piped struct {
	net.Conn
	address netip.Addr
}

func (p piped) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.address, 40000))
}

// A peer that holds all connections of its address does not keep out a later one, such as a probe of
// the kubelet: in an IPv6 cluster it comes from the prefix of the node's pods.
func TestHeldConnectionsOfOneAddressAreReplaced(t *testing.T) {
	p := newPipes()
	s := Start(t.Context(), &samePeer{pipes: p}, Options{MaxConnections: maxConnections, MaxPerAddress: maxAddress,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })})
	for range 3 * maxAddress {
		here, there := net.Pipe()
		p.conns <- there
		defer func() { _ = here.Close() }()
	}
	probe := p.dial()
	defer func() { _ = probe.Close() }()
	if err := probe.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := status(t, probe); got != http.StatusOK {
		t.Errorf("status of a probe after %d held connections = %d, want 200", 3*maxAddress, got)
	}
	s.Cut(time.Second)
	if err := s.Err(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, context.Canceled) {
		t.Errorf("Err after Cut = %v, want that of a closed listener", err)
	}
}

// fromList is a listener whose connections come from a list of addresses, in order.
type fromList struct {
	*pipes
	addresses []string
}

func (l *fromList) Accept() (net.Conn, error) {
	c, err := l.pipes.Accept()
	if err != nil {
		return nil, err
	}
	address := netip.MustParseAddr(l.addresses[0])
	l.addresses = l.addresses[1:]
	return piped{c, address}, nil
}

// A client with many connections takes no place from one with fewer, although that one has not sent
// its request yet, and loses its own places first.
func TestClientWithManyConnectionsTakesNoPlace(t *testing.T) {
	const many, probe, third = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	synctest.Test(t, func(t *testing.T) {
		p, release := newPipes(), make(chan struct{})
		s := Start(t.Context(), &fromList{p, []string{many, many, many, probe, many, third}}, Options{
			MaxConnections: 4, MaxPerAddress: 4, AnswerTimeout: time.Hour,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if host, _, _ := net.SplitHostPort(r.RemoteAddr); host == many {
					<-release
				}
				_, _ = io.WriteString(w, "ok")
			})})
		held := []net.Conn{p.dial(), p.dial(), p.dial()}
		kubelet, there := net.Pipe()
		p.conns <- there
		synctest.Wait()
		fourth := p.dial()
		synctest.Wait()
		close(release)
		if got := status(t, fourth); got != 0 {
			t.Errorf("status of a fourth request of a client = %d, want 0: the connection is closed", got)
		}
		for _, c := range held {
			if got := status(t, c); got != http.StatusOK {
				t.Errorf("status of a request in progress = %d, want 200", got)
			}
		}
		synctest.Wait() // all of them are idle, for a shorter time than the probe's
		if got := status(t, p.dial()); got != http.StatusOK {
			t.Errorf("status of a request of a third client = %d, want 200", got)
		}
		go func() { _, _ = io.WriteString(kubelet, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") }()
		if got := status(t, kubelet); got != http.StatusOK {
			t.Errorf("status of the probe = %d, want 200", got)
		}
		s.Cut(time.Second)
		for _, c := range append(held, kubelet, fourth) {
			_ = c.Close()
		}
	})
}
