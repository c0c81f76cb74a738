package httpserver

import (
	"net"
	"sync"
)

// bounded is a listener that hangs up on connections beyond so many at once.
type bounded struct {
	net.Listener
	places chan struct{}
}

// Accept waits for the next connection that there is a place for.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &placed{Conn: c, leave: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

// placed is a connection that has a place.
type placed struct {
	net.Conn
	leave func()
}

// Close gives the place back.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
