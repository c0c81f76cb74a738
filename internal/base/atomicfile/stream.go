package atomicfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pollEvery is the interval in which a Stream checks whether its context has ended.
const pollEvery = 100 * time.Millisecond

// Stream reads a file, pipe, terminal or device, and waits for data until its context ends: then
// Read returns the context's cause.
type Stream struct {
	ctx  context.Context
	file *os.File
}

// OpenStream opens any kind of file except a socket. It does not wait for the other end of a pipe;
// Read does.
func OpenStream(ctx context.Context, path string) (*Stream, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENXIO) { // a socket, or a device without a driver
		return nil, &os.PathError{Op: "open", Path: path, Err: errKind}
	}
	if err != nil {
		return nil, err
	}
	return NewStream(ctx, f), nil
}

// NewStream returns a Stream of an open file, which Close closes.
func NewStream(ctx context.Context, f *os.File) *Stream { return &Stream{ctx: ctx, file: f} }

// Close closes the file.
func (s *Stream) Close() error { return s.file.Close() }

// Stat returns the status of the file.
func (s *Stream) Stat() (os.FileInfo, error) { return s.file.Stat() }

func (s *Stream) Read(b []byte) (int, error) {
	if err := s.wait(); err != nil {
		return 0, &os.PathError{Op: "read", Path: s.file.Name(), Err: err}
	}
	return s.file.Read(b)
}

// wait returns when data, the end or an error can be read. poll(2) reports the end of a pipe only
// after a writer has been connected since the open (pipe_poll of fs/pipe.c, 6.12), while read(2)
// returns the end before the first writer.
func (s *Stream) wait() error {
	conn, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	for n := 0; n == 0; {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		var failed error
		if err := conn.Control(func(fd uintptr) {
			n, failed = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
				int(pollEvery.Milliseconds()))
		}); err != nil {
			return err
		}
		if failed != nil && !errors.Is(failed, unix.EINTR) {
			return fmt.Errorf("poll: %w", failed)
		}
		if failed != nil {
			n = 0
		}
	}
	return nil
}

var _ io.ReadCloser = (*Stream)(nil)
