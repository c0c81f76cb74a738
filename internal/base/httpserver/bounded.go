package httpserver

import (
	"net"
	"sync"
)

// bounded is a listener that closes connections beyond a limit.
type bounded struct {
	net.Listener
	places chan struct{}
}

// Accept waits for the next connection and returns it if a place is free.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &placed{Conn: c, release: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

// placed is a connection with a place.
type placed struct {
	net.Conn
	release func()
}

// Close closes the connection and releases its place.
func (p *placed) Close() error {
	defer p.release()
	return p.Conn.Close()
}
