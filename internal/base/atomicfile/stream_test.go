package atomicfile

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/base/filetest"
)

// A pipe with a late writer is read completely. Without a writer, or with a silent one, Read
// returns the cause of the context.
func TestStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenStream(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		time.Sleep(2 * pollEvery)
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = w.WriteString("late")
			err = errors.Join(err, w.Close())
		}
		written <- err
	}()
	text, err := io.ReadAll(s)
	if err := errors.Join(err, <-written, s.Close()); err != nil || string(text) != "late" {
		t.Errorf("text from a late writer = %q, %v; want late", text, err)
	}

	stopped := errors.New("stopped")
	for _, writer := range []bool{false, true} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*pollEvery, stopped)
		s, err := OpenStream(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		if writer {
			w, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, stopped) {
			t.Errorf("Read with writer %v: error %v, want %v", writer, err, stopped)
		}
		cancel()
		_ = s.Close()
	}
}

// A regular file is read completely, and a socket is rejected.
func TestStreamOfFile(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStream(t.Context(), filetest.Write(t, filepath.Join(dir, "file"), "12345"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if text, err := io.ReadAll(s); err != nil || string(text) != "12345" {
		t.Errorf("text of a file = %q, %v; want 12345", text, err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	t.Chdir(dir) // the name of a socket may have 108 bytes
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStream(t.Context(), "socket"); !errors.Is(err, errKind) {
		t.Errorf("OpenStream of a socket: error %v, want errKind", err)
	}
}
