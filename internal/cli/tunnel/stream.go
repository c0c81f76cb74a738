package tunnel

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream is a connection that reads from one file and writes to another. It has no deadlines.
type stream struct {
	in     io.ReadCloser
	out    io.WriteCloser
	once   sync.Once
	closed chan struct{}
}

func newStream(in io.ReadCloser, out io.WriteCloser) *stream {
	return &stream{in: in, out: out, closed: make(chan struct{})}
}

// Read reads from the first file.
func (s *stream) Read(b []byte) (int, error) { return s.in.Read(b) }

// Write writes to the second file.
func (s *stream) Write(b []byte) (int, error) { return s.out.Write(b) }

// Close closes both files.
func (s *stream) Close() error {
	s.once.Do(func() {
		_ = s.out.Close()
		_ = s.in.Close()
		close(s.closed)
	})
	return nil
}

// LocalAddr returns an address without a name.
func (*stream) LocalAddr() net.Addr { return &net.UnixAddr{Net: "pipe"} }

// RemoteAddr returns an address without a name.
func (*stream) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "pipe"} }

// SetDeadline returns an error.
func (*stream) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline returns an error.
func (*stream) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline returns an error.
func (*stream) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
