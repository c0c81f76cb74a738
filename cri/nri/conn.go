package nri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stream is the connection that a wire uses.
type stream interface {
	io.ReadWriter
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// conn is a connection on which the calling thread itself waits in the kernel, with poll(2). With
// the Go runtime's poller, another thread of ordinary priority would wait and then wake the thread
// with raised priority. That takes long on a node with busy CPUs.
type conn struct {
	fd          int
	read, write time.Time // deadlines; zero: none
	share       *cpuShare // limits the CPU time; nil: unlimited
}

// dial connects to a socket within a limit.
func dial(ctx context.Context, path string, limit time.Duration) (*conn, error) {
	c, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	out := &conn{}
	// a duplicate that Go's poller does not know; it stays non-blocking
	var dupErr error
	if err := raw.Control(func(fd uintptr) {
		out.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return nil, err
	}
	if dupErr != nil {
		return nil, fmt.Errorf("socket: %w", dupErr)
	}
	return out, nil
}

// hangUp ends reads and writes, from any goroutine. The descriptor stays open until close.
func (c *conn) hangUp() { _ = unix.Shutdown(c.fd, unix.SHUT_RDWR) } // ENOTCONN: closed by the peer

func (c *conn) close() { unix.Close(c.fd) }

func (c *conn) SetReadDeadline(t time.Time) error  { c.read = t; return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.write = t; return nil }

// Read reads the available data, or waits for data. After the deadline it reads nothing, even if
// data is available: the deadline also applies to a peer that sends without pause.
func (c *conn) Read(b []byte) (int, error) {
	if c.share != nil {
		c.share.limit()
	}
	if !c.read.IsZero() && !time.Now().Before(c.read) {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := c.try(unix.POLLIN, c.read, func() (int, error) { return unix.Read(c.fd, b) })
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// Write writes all of b.
func (c *conn) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part, err := c.try(unix.POLLOUT, c.write, func() (int, error) {
			return unix.SendmsgN(c.fd, b[n:], nil, nil, unix.MSG_NOSIGNAL)
		})
		if err != nil {
			return n, err
		}
		n += part
	}
	return n, nil
}

// try calls a function that does not block. While the call returns EAGAIN, try waits for the socket
// and repeats it.
func (c *conn) try(events int16, deadline time.Time, call func() (int, error)) (int, error) {
	for {
		n, err := call()
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if err := c.wait(events, deadline); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, fmt.Errorf("socket: %w", err)
		default:
			return n, nil
		}
	}
}

// wait waits until the socket is ready, or its other end is closed. It returns
// os.ErrDeadlineExceeded at the deadline.
func (c *conn) wait(events int16, deadline time.Time) error {
	for {
		timeout := -1
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return os.ErrDeadlineExceeded
			}
			timeout = int((left + time.Millisecond - 1) / time.Millisecond)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: events}}, timeout)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("poll the socket: %w", err)
		case n > 0:
			return nil
		}
	}
}
