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

// pollEvery is how late at most a Stream hears that its context has ended.
const pollEvery = 100 * time.Millisecond

// Stream reads what may be a pipe, a terminal or a device as well as a file, and waits for what is
// to come only as long as its context has not ended: from then on Read returns the context's cause.
type Stream struct {
	ctx  context.Context
	file *os.File
}

// OpenStream opens whatever has the path, but no socket. It does not wait for a pipe's other end:
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

// NewStream reads from an open file, which Close closes.
func NewStream(ctx context.Context, f *os.File) *Stream { return &Stream{ctx: ctx, file: f} }

// Close closes the file.
func (s *Stream) Close() error { return s.file.Close() }

// Stat says what it reads from.
func (s *Stream) Stat() (os.FileInfo, error) { return s.file.Stat() }

func (s *Stream) Read(b []byte) (int, error) {
	if err := s.wait(); err != nil {
		return 0, &os.PathError{Op: "read", Path: s.file.Name(), Err: err}
	}
	return s.file.Read(b)
}

// wait returns when there is something to be read: data, an end, an error. A pipe has an end only
// where a writer has been there since it was opened (pipe_poll of fs/pipe.c, 6.12), while read(2)
// takes one that has had none yet for empty.
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
